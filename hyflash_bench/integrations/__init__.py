"""Other people's tools: lm-eval, and results that were measured elsewhere."""
