"""Data sets by their name on the hub, through the library ``datasets``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from hyflash_bench.errors import DownloadError, MissingDependency
from hyflash_bench.spec.base import Spec
from hyflash_bench.spec.plan import content_id
from hyflash_bench.suites.datafiles.plain import Plain, kept_rows

__all__ = ["HubSource"]


class HubSource(Spec):
    """A split of a data set on the hub."""

    path: str = Field(min_length=1, pattern=r"^[\w.-]+(/[\w.-]+)?$", description="Its id: owner/name.")
    name: str | None = Field(None, description="Its configuration.")
    split: str = "test"
    revision: str | None = Field(None, description="Commit or tag; null for the newest when it is fetched.")
    data_files: str | None = Field(None, description="Only this file of it.")

    def fetched(self, hint: str) -> Plain:
        """Its rows in the cache, fetched the first time.

        Args:
            hint: How to do without the hub, for messages.

        Raises:
            MissingDependency: The library is not installed.
            DownloadError: The data set cannot be had.
        """
        key = content_id({"hub": self.model_dump(mode="json")}, 16)
        return Plain(kept_rows(key, lambda: self._rows(hint)), f"{self.path} ({self.split})", "row")

    def _rows(self, hint: str) -> Iterator[Mapping[str, Any]]:
        try:
            import datasets
        except ImportError:
            raise MissingDependency(
                f"Data set {self.path} is read with the library datasets, which is not installed. "
                f"Install it with: pip install 'hyflash-bench[data]'. {hint}"
            ) from None
        try:
            rows = datasets.load_dataset(
                self.path, self.name, split=self.split, revision=self.revision, data_files=self.data_files
            )
            yield from rows
        except Exception as error:  # whatever the library, the network or the hub has to say
            reason = str(error).strip().partition("\n")[0][:300]
            offline = (
                " The hub is switched off by HF_HUB_OFFLINE." if os.environ.get("HF_HUB_OFFLINE") else ""
            )
            raise DownloadError(
                f"Data set {self.path} cannot be had from the hub: {type(error).__name__}: {reason}."
                f"{offline} {hint}"
            ) from error
