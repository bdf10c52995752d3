"""Which drafter to run, with which options."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Self

import yaml
from pydantic import Field

from hyflash_bench.data import expanded
from hyflash_bench.errors import SpecError
from hyflash_bench.spec.base import Spec
from hyflash_bench.spec.formats.recognise import recognise

__all__ = ["DrafterSpec", "split_outside_brackets"]


class DrafterSpec(Spec):
    """A drafter as a user asks for it: ``name`` or ``name:key=value,key=value``.

    ``name`` is a registered name, an installed plugin's ``package/name`` or ``path/to/file.py:Class``.
    The folder of a checkpoint stands for the drafter that runs it, with that folder as its checkpoint.
    """

    name: str = Field(min_length=1)
    options: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read the command-line form.

        Values are YAML scalars, or flat lists of them as in ``half_lives=[8,4096]``; a scalar may hold
        ``=`` and ``:`` but no comma.

        Raises:
            SpecError: An option without ``=``, one given twice, a value that is no scalar, or a folder that
                is not there.
            DrafterError: A folder that holds no checkpoint that is known.
        """
        name, separator, rest = _split_name(text)
        options: dict[str, Any] = {}
        if _is_folder(name):
            options["checkpoint"], name = name, recognise(expanded(name)).drafter
        elif name.startswith((".", "~", "/")) and not name.endswith(".py") and ".py:" not in name:
            raise SpecError(
                f"Drafter {text!r}: there is no folder {name}. Give the folder of a checkpoint, whose path "
                "has no comma and no colon, or a drafter by name."
            )
        for part in filter(None, (piece.strip() for piece in split_outside_brackets(rest))):
            key, equals, value = part.partition("=")
            if not equals or not key.strip():
                raise SpecError(
                    f"Drafter {text!r}: {part!r} is not key=value. "
                    "Write for example prompt-lookup:max_ngram=3,num_draft_tokens=10."
                )
            key = key.strip().replace("-", "_")
            if key in options:
                raise SpecError(f"Drafter {text!r}: option {key!r} is given twice; keep one.")
            options[key] = _scalar(value, text)
        if separator and not options:
            raise SpecError(f"Drafter {text!r}: nothing follows the colon. Drop it or add key=value.")
        return cls.parse({"name": name, "options": options}, where=f"drafter {text!r}")

    @property
    def label(self) -> str:
        """Name with the options that were given: ``prompt-lookup:max_ngram=2``."""
        if not self.options:
            return self.name
        given = ",".join(f"{key}={_plain(value)}" for key, value in sorted(self.options.items()))
        return f"{self.name}:{given}"


def split_outside_brackets(text: str) -> list[str]:
    """Split at the commas that stand in no list."""
    return re.split(r",(?![^\[\]]*\])", text)


def _is_folder(name: str) -> bool:
    """Whether a name means the folder of a checkpoint; a bare word never does."""
    return ("/" in name or "\\" in name or name.startswith((".", "~"))) and expanded(name).is_dir()


def _split_name(text: str) -> tuple[str, bool, str]:
    """Split off the options; ``file.py:Class`` keeps its own colon."""
    if ".py:" in text:
        path, _, rest = text.partition(".py:")
        name, separator, options = rest.partition(":")
        return f"{path}.py:{name}", bool(separator), options
    name, separator, options = text.partition(":")
    return name.strip(), bool(separator), options


def _scalar(value: str, text: str) -> Any:
    # ValueError: a date or a number that YAML recognises and Python refuses.
    with suppress(yaml.YAMLError, ValueError, RecursionError):
        found = yaml.safe_load(value)
        if _is_scalar(found) or (isinstance(found, list) and all(map(_is_scalar, found))):
            return found
    raise SpecError(
        f"Drafter {text!r}: {value!r} is not a plain value. Write a number, a word, true, false, null, or a "
        "list of these in brackets."
    )


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_plain, value))}]"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
