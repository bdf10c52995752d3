"""Every error a user can meet.

    HyFlashError
    |-- UsageError            what was asked for makes no sense (exit 2)
    |   |-- UnknownName       no such drafter, suite, target, metric ...
    |   `-- SpecError         a YAML file or an option does not fit its schema
    |-- MissingDependency     an extra, pip, npm or a file is not there
    |-- DownloadError         something could not be fetched or has another hash
    |-- DataError             a suite, trace or run on disk is not what it should be
    |   |-- RunLocked         another process writes to the run
    |   `-- SchemaTooNew      written by a newer version
    |-- TargetError           the target cannot be loaded or used
    |   |-- UnsupportedTarget its architecture is outside what the engine can verify
    |   `-- ContextTooLong    more tokens than the target was made for
    `-- DrafterError          a drafter broke its contract

The message says what is wrong, what was given, what is allowed and how to fix it, in that order;
the command line shows it without a traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "ContextTooLong",
    "DataError",
    "DownloadError",
    "DrafterError",
    "HyFlashError",
    "MissingDependency",
    "RunLocked",
    "SchemaTooNew",
    "SpecError",
    "TargetError",
    "UnknownName",
    "UnsupportedTarget",
    "UsageError",
]


class HyFlashError(Exception):
    """Base of all errors that are shown to the user as one message."""


class UsageError(HyFlashError):
    """The request makes no sense as given."""


class UnknownName(UsageError):
    """A name that nothing answers to; the message offers the nearest ones."""

    def __init__(self, kind: str, given: str, allowed: Iterable[str], hint: str = "") -> None:
        names = sorted(allowed)
        near = get_close_matches(given, names, n=1, cutoff=0.5)
        offer = f" Did you mean {near[0]!r}?" if near else ""
        known = ", ".join(names) if names else "none"
        tail = f" {hint}" if hint else ""
        super().__init__(f"Unknown {kind} {given!r}.{offer} Known: {known}.{tail}")


class SpecError(UsageError):
    """A YAML file, an option or a keyword does not fit its schema."""


class MissingDependency(HyFlashError):
    """A package, program or file that the request needs is not installed."""


class DownloadError(HyFlashError):
    """A text or a model could not be fetched, or is not the expected one."""


class DataError(HyFlashError):
    """Stored data is not what its schema says."""


class RunLocked(DataError):
    """Another process is writing to the run folder."""


class SchemaTooNew(DataError):
    """The data was written by a newer version of this package."""


class TargetError(HyFlashError):
    """The target cannot be loaded or used."""


class UnsupportedTarget(TargetError):
    """The target's architecture cannot be verified losslessly by this engine."""


class ContextTooLong(TargetError):
    """More positions were asked for than the target was made for."""


class DrafterError(HyFlashError):
    """A drafter broke its contract (see :class:`hyflash_bench.drafters.base.Drafter`)."""
