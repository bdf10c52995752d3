"""Runs on disk: records, writer, reader, export. Nothing else touches ``results/``."""

from hyflash_bench.results.export import export_table
from hyflash_bench.results.reader import Run, RunListing, list_runs, load_run
from hyflash_bench.results.writer import RunWriter

__all__ = ["Run", "RunListing", "RunWriter", "export_table", "list_runs", "load_run"]
