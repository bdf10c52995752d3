"""Files of data sets, row by row: nothing is ever held but the row at hand and where the others stand."""

from hyflash_bench.suites.datafiles.choice import DataFiles
from hyflash_bench.suites.datafiles.hub import HubSource
from hyflash_bench.suites.datafiles.index import Index, Place, index_of, row_at
from hyflash_bench.suites.datafiles.plain import Plain, plain_file

__all__ = ["DataFiles", "HubSource", "Index", "Place", "Plain", "index_of", "plain_file", "row_at"]
