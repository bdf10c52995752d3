"""YAML without surprises: safe, and a key given twice is an error."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from hyflash_bench.errors import SpecError, UsageError

__all__ = ["dump_yaml", "load_yaml", "read_yaml"]


_MAX_NODES = 1_000_000
"""Values of one document, each alias counted as what it stands for."""


class _StrictLoader(yaml.SafeLoader):
    """Safe loader that refuses duplicate keys, merge tricks that hide them, and alias bombs."""

    def get_single_node(self) -> Any:
        node = super().get_single_node()
        if node is not None:
            _count(node, {})
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[Any, int] = {}
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if not isinstance(key, Hashable):
                raise SpecError(f"line {line}: a key must be a plain value")
            if key in seen:
                raise SpecError(f"line {line}: key {key!r} was already given on line {seen[key]}")
            seen[key] = line
        return super().construct_mapping(node, deep=deep)


def _count(node: Any, known: dict[int, int]) -> int:
    """Values below a node, with every alias followed.

    Args:
        node: Of the composed document.
        known: Counts of nodes seen before by identity, 0 while a node is being counted.
    """
    if id(node) in known:
        if known[id(node)] == 0:
            raise SpecError(f"line {node.start_mark.line + 1}: a value contains itself")
        return known[id(node)]
    known[id(node)] = 0
    inner = node.value if isinstance(node, yaml.CollectionNode) else []
    parts = [part for pair in inner for part in (pair if isinstance(pair, tuple) else (pair,))]
    total = 1 + sum(_count(part, known) for part in parts)
    if total > _MAX_NODES:
        raise SpecError(f"line {node.start_mark.line + 1}: aliases unfold to over {_MAX_NODES:,} values")
    known[id(node)] = total
    return total


def load_yaml(text: str, where: str) -> dict[str, Any]:
    """Parse one YAML mapping.

    Args:
        text: The document.
        where: Its name, for messages.

    Raises:
        SpecError: Not YAML, not a mapping, a key given twice or an alias bomb; with the line.
    """
    try:
        value = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader
    except SpecError as error:
        raise SpecError(f"{where}: {error}. Correct that line.") from None
    except RecursionError:
        raise SpecError(f"{where} is nested too deeply. Write it flatter.") from None
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise SpecError(f"{where} is not valid YAML: {problem}") from None
    except ValueError as error:  # a date or a number that YAML recognises and Python refuses
        raise SpecError(f"{where} holds a value that cannot be read: {error}. Put it in quotes.") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise SpecError(f"{where}: expected keys and values, found a {type(value).__name__}.")
    return value


def read_yaml(path: Path) -> dict[str, Any]:
    """Parse the YAML mapping in a file.

    Raises:
        UsageError: There is no such file.
        SpecError: See :func:`load_yaml`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"No file {path}. Check the path.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} cannot be read as UTF-8 text: {error}") from None
    return load_yaml(text, str(path))


def dump_yaml(values: dict[str, Any]) -> str:
    """Write a mapping as YAML, keys in the given order."""
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=False)
