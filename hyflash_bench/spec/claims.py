"""What a claim file says: sentences about drafters that a run can bear out or not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from hyflash_bench.data import data_folder
from hyflash_bench.errors import SpecError
from hyflash_bench.spec.base import MAX_COUNT, Spec
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.yaml import read_yaml

__all__ = ["CLAIM_FILES", "Claim", "ClaimFile", "Contexts", "Strata", "read_claims", "shipped_claims"]

CLAIM_FILES = "claims*.yaml"
"""The shipped files, in the folder of the suites that their claims are about."""


def _label(text: str) -> str:
    """The drafter as runs label it, whatever the order of the options here."""
    try:
        return DrafterSpec.from_text(text).label
    except SpecError as error:
        raise ValueError(str(error)) from None


def _listed(value: Any) -> Any:
    return {"only": value} if isinstance(value, list) else value


_Drafter = Annotated[str, AfterValidator(_label)]
_Name = Annotated[str, Field(min_length=1, max_length=100)]
_Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]


class Contexts(Spec):
    """Which context lengths count: some that the suite asks for, or a range of tokens.

    A range is laid on each step's own context where a metric follows from steps, so it cuts
    conversations that grow; on that of the turn otherwise.
    """

    only: tuple[_Count, ...] = Field((), description="These lengths of the suite; a plain list means them.")
    from_: _Count | None = Field(None, alias="from", description="This many tokens before the step, or more.")
    below: _Count | None = Field(None, description="Fewer tokens before the step.")
    apart: bool = Field(False, description="A verdict for each of `only`, not one for all together.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        is_range = self.from_ is not None or self.below is not None
        if bool(self.only) == is_range:
            raise ValueError("give either a list of context lengths, or from and below")
        if self.from_ is not None and self.below is not None and self.from_ >= self.below:
            raise ValueError(f"nothing lies from {self.from_} and below {self.below}")
        if self.apart and not self.only:
            raise ValueError("apart needs a list: only")
        return self


class Strata(Spec):
    """Which conversations a claim speaks about."""

    suites: tuple[_Name, ...] = Field(min_length=1, description="Names of suites.")
    kinds: tuple[_Name, ...] | None = Field(None, min_length=1, description="Kinds of work; null for all.")
    contexts: Annotated[Contexts | None, BeforeValidator(_listed)] = Field(
        None, description="A list of lengths, or keys; null for all."
    )
    sampling: _Name = Field("greedy", description="Label of the sampling.")

    @property
    def is_apart(self) -> bool:
        """Whether each context length is a case of its own."""
        return self.contexts is not None and self.contexts.apart

    def each(self) -> tuple[Strata, ...]:
        """These strata, or one for each context length where they are told apart."""
        if self.contexts is None or not self.is_apart:
            return (self,)
        each = [Contexts(only=(length,)) for length in self.contexts.only]
        return tuple(self.model_copy(update={"contexts": one}) for one in each)


class Than(Spec):
    """Where the same gain has to be beaten; what is left out stays as in the claim."""

    drafter: _Drafter | None = None
    against: _Drafter | None = None
    strata: Strata | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not (self.drafter or self.against or self.strata):
            raise ValueError("give drafter and against, or strata: something has to differ")
        return self


class Claim(Spec):
    """One claim: a metric of a drafter over that of another, held against a threshold.

    With ``than``, the ratio of that gain to the gain elsewhere is held against it.
    """

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,79}$", description="Short name, unique in the file.")
    statement: str = Field(min_length=1, max_length=400, description="One plain sentence.")
    source: Literal["paper", "control"] = Field(
        description="Claimed in the paper, or a check of this project."
    )
    metric: str = Field(min_length=1, description="Name of a metric; see hyflash-bench ls metrics.")
    drafter: _Drafter = Field(description="Label as in a run: name or name:key=value.")
    against: _Drafter = Field(description="Label of what it is compared with.")
    relation: Literal["higher", "lower", "equal", "at-least", "at-most"]
    threshold: float = Field(1.0, gt=0, le=1e6, allow_inf_nan=False, description="Of the ratio.")
    tolerance: float = Field(
        0.0, ge=0, lt=1, allow_inf_nan=False, description="With equal: how far from the threshold is equal."
    )
    strata: Strata
    against_strata: Strata | None = Field(None, description="Where `against` is read, if elsewhere.")
    than: Than | None = Field(None, description="Whose gain this gain is compared with, or where.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.tolerance and self.relation != "equal":
            raise ValueError(
                f"tolerance belongs to relation equal, not to {self.relation}; move the threshold"
            )
        if self.against_strata is not None and self.than is not None:
            raise ValueError("give against_strata or than, not both")
        if self.drafter == self.against and self.against_strata is None:
            raise ValueError(f"{self.drafter} is compared with itself; change against, or add against_strata")
        if self.than is not None and (
            (self.than.drafter or self.drafter, self.than.against or self.against)
            == (self.drafter, self.against)
            and self.than.strata in (None, self.strata)
        ):
            raise ValueError("than names the same gain, which is compared with itself; change what it names")
        others = [strata for strata in self._all_strata[1:] if strata]
        if any(strata.is_apart for strata in others):
            raise ValueError("only strata can tell contexts apart")
        if self.strata.is_apart and others:
            raise ValueError("contexts told apart cannot be compared with other strata")
        return self

    @property
    def drafters(self) -> tuple[str, ...]:
        """Labels of all drafters that it speaks about."""
        others = (self.than.drafter, self.than.against) if self.than else ()
        return tuple(dict.fromkeys([self.drafter, self.against, *filter(None, others)]))

    @property
    def suites(self) -> tuple[str, ...]:
        """Names of all suites that it speaks about."""
        return tuple(dict.fromkeys(name for strata in self._all_strata if strata for name in strata.suites))

    @property
    def _all_strata(self) -> tuple[Strata | None, ...]:
        return (self.strata, self.against_strata, self.than.strata if self.than else None)


class ClaimFile(Spec):
    """Claims that belong together."""

    title: str = Field(min_length=1, max_length=1000)
    description: str = ""
    claims: tuple[Claim, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        ids = [claim.id for claim in self.claims]
        twice = sorted({each for each in ids if ids.count(each) > 1})
        if twice:
            raise ValueError(f"claim {twice[0]} is given twice; rename one")
        return self

    @property
    def drafters(self) -> tuple[str, ...]:
        """Labels of all drafters, in order of appearance."""
        return tuple(dict.fromkeys(label for claim in self.claims for label in claim.drafters))

    @property
    def suites(self) -> tuple[str, ...]:
        """Names of all suites, in order of appearance."""
        return tuple(dict.fromkeys(name for claim in self.claims for name in claim.suites))


def read_claims(*paths: Path) -> ClaimFile:
    """Read claim files; of several, the claims follow each other.

    Raises:
        UsageError: There is no such file.
        SpecError: It does not fit, or two files name a claim alike; with every problem.
    """
    files = [ClaimFile.parse(read_yaml(path), where=f"claims {path}") for path in paths]
    known: dict[str, Path] = {}
    for path, file in zip(paths, files, strict=True):
        for claim in file.claims:
            if claim.id in known:
                raise SpecError(f"Claim {claim.id} is in {known[claim.id]} and in {path}; rename one.")
            known[claim.id] = path
    return ClaimFile(
        title="; ".join(file.title for file in files),
        description=" ".join(filter(None, (file.description for file in files))),
        claims=tuple(claim for file in files for claim in file.claims),
    )


def shipped_claims() -> tuple[Path, ...]:
    """Paths of the claims that come with the package: the paper's, then this project's own checks.

    Raises:
        MissingDependency: The package's data is missing.
    """
    return tuple(sorted(data_folder("suites").glob(CLAIM_FILES), reverse=True))
