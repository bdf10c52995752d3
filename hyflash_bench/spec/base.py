"""The strictness shared by everything a user can write down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from reprlib import Repr
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from hyflash_bench.errors import SpecError

__all__ = ["MAX_COUNT", "MAX_ROWS", "MAX_SEED", "MAX_SIZE", "Spec"]

MAX_COUNT = 10**9
"""Tokens, conversations: more than any model or suite has."""
MAX_ROWS = 2**20
"""Tokens of a text that room is made for at once: as many as a long context has."""
MAX_SIZE = 2**17
"""Of a row in a drafter's layers."""
MAX_SEED = 2**63 - 1
"""What a column of integers holds."""

# YAML anchors can make a few lines mean gigabytes, which a message must not spell out.
_GIVEN = Repr()
_GIVEN.maxstring = _GIVEN.maxother = 200


class Spec(BaseModel):
    """A frozen value object that rejects keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @classmethod
    def parse(cls, values: Mapping[str, Any], where: str) -> Self:
        """Build from untrusted values.

        Args:
            values: Keys and values as read from YAML, flags or keywords.
            where: What the values are, for the message ("suite longctx (suites/longctx.yaml)").

        Raises:
            SpecError: One line per problem, each with the value given and what is allowed.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            lines = [_explain(problem, cls) for problem in _causes(error.errors())]
            raise SpecError(f"{where}: " + "; ".join(lines)) from None


def _causes(problems: Sequence[Any]) -> list[Any]:
    """Without those that follow from others: defaults made from wrong keys, lists short of wrong parts."""
    broken = {problem["loc"][:-1] for problem in problems}
    return [
        problem
        for problem in problems
        if problem["type"] != "default_factory_not_called"
        and not (
            problem["type"] == "too_short"
            and any(loc[: len(problem["loc"])] == problem["loc"] for loc in broken)
        )
    ]


def _explain(problem: Any, model: type[BaseModel]) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        key = str(problem["loc"][-1])
        allowed = sorted(model.model_fields)
        near = get_close_matches(key, allowed, n=1)
        offer = f", did you mean {near[0]!r}?" if near else ""
        known = f" (known here: {', '.join(allowed)})" if len(problem["loc"]) == 1 else ""
        return f"unknown key {path!r}{offer}{known}"
    if problem["type"] == "missing":
        return f"key {path!r} is missing"
    given = problem.get("input")
    message = str(problem["msg"].removeprefix("Value error, "))
    if problem["type"] in ("list_type", "tuple_type"):
        message = "a list is needed, as in [first, second]"
    elif problem["type"] == "too_short":
        message = f"at least {problem['ctx']['min_length']} needed"
    elif problem["type"] == "string_pattern_mismatch" and path in model.model_fields:
        message = model.model_fields[path].description or message
    if not path:
        return message  # of several keys together, which it names
    return f"{path}: {message} (given {_GIVEN.repr(given)})"
