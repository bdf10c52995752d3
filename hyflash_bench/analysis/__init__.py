"""Numbers from frames: metrics, intervals, summaries, comparisons. Reads no files and prints nothing."""
