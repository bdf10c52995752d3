"""Networks of the trained drafters: one form for training, one for drafting, equal per anchor."""
