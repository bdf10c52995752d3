"""Trains drafters: the corpus, the stream they share, their losses."""
