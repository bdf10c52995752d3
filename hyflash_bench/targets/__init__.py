"""Targets: loading, the KV cache, prefill, verification and the features that drafters read."""
