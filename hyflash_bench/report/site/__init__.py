"""Runs as a static site that grows: a page a run, and an index of them all."""

from hyflash_bench.report.site.publishing import Published, publish

__all__ = ["Published", "publish"]
