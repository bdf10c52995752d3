"""Formats of public data sets: from one row of a file to conversations."""

from hyflash_bench.suites.formats.base import BadRow, Entry, Row
from hyflash_bench.suites.formats.catalog import FORMATS, format_named

__all__ = ["FORMATS", "BadRow", "Entry", "Row", "format_named"]
