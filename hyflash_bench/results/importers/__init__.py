"""Results of other programs as runs: read, converted to this project's definitions, marked as imported.

They live with the records since they know these and nothing above them.
"""

from hyflash_bench.results.importers.base import Imported, Told
from hyflash_bench.results.importers.detect import FORMATS, read_results
from hyflash_bench.results.importers.write import Labels, write_imported

__all__ = ["FORMATS", "Imported", "Labels", "Told", "read_results", "write_imported"]
