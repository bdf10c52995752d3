"""Files that are either the old ones or the new ones, never half of one."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hyflash_bench.errors import DataError, UsageError

__all__ = ["replacing", "scratch_folder", "write_error", "write_text"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; it takes its place when the block ends well.

    Raises:
        UsageError: The path names no file.
        DataError: The disk is full or the file cannot be written; the old file is untouched.
    """
    if not path.name:
        raise UsageError("The name of the file to write is empty. Give one.")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        with suppress(OSError):  # a read-only folder refuses this too; the first error says more
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text with Unix line ends, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def scratch_folder(parent: Path, key: str) -> Iterator[Path]:
    """Yield a new folder in ``parent`` for what takes its place when it is complete.

    It is removed in the end, and so is what killed processes left of the same key: the caller holds a
    lock on that.
    """
    prefix = f".{key}-"
    for left in [path for path in parent.iterdir() if path.name.startswith(prefix)]:
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def write_error(path: Path, error: OSError) -> DataError:
    """Say what a failed write means for the user."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DataError(
            f"Disk full while writing {path}. Free space and run the same command again; "
            "nothing that was finished is lost."
        )
    return DataError(
        f"{path} cannot be written: {error.strerror or error}. "
        "Check the folder's permissions, or choose another place to write to."
    )


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make the new name durable; Windows cannot open folders and does without."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
