"""Which columns are shown, and in which order; in the page and in the terminal."""

from __future__ import annotations

__all__ = ["BY_CONTEXT", "CROSSOVER", "FAILURES", "HEADLINE", "LOSSLESS", "SPEED", "TIME", "WHERE"]

WHERE = ("suite", "sampling", "memory_cap_bytes", "device", "cap_policy", "cap_kind", "weight_bits")
HEADLINE = (
    *("drafter", "status", "acceptance_length", "decode_tok_per_s", "speedup", "verdict"),
    *("drafter_bytes", "drafter_peak_bytes", "num_conversations"),
)
SPEED = ("drafter", "status", "decode_tok_per_s", "speedup", "acceptance_length", "num_conversations")
TIME = (
    *("drafter", "ttft_s", "prefill_s", "observe_prompt_s"),
    *("draft_share", "verify_share", "observe_share", "overhead_share"),
)
LOSSLESS = ("drafter", "sampling", "num_identical", "num_near_tie", "num_mismatch", "num_not_judged")
FAILURES = (
    *("drafter", "status", "message", "num_conversations", "suite", "task", "sampling"),
    *("memory_cap_bytes", "device", "cap_policy", "context_reached", "peak_bytes"),
)
BY_CONTEXT = ("drafter", "context_length", "status", "acceptance_length", "decode_tok_per_s", "drafter_bytes")
CROSSOVER = (
    *("drafter", "reference", "metric", "crossover_context", "ahead_before", "ahead_after"),
    *("num_documents", "reason"),
)
