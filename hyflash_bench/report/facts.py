"""What a page says about a run besides its numbers: target, machine, command, texts.

A published page must name no person, machine or folder: what is not known to be harmless is left out, and
the templates take the folders out of paths.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from hyflash_bench.report.tables import Cell, Heading, Table
from hyflash_bench.report.text import cell_text, heading
from hyflash_bench.results.merge import VOLATILE
from hyflash_bench.results.records import Manifest
from hyflash_bench.spec.yaml import dump_yaml

__all__ = ["Pairs", "command_of", "environment_of", "identity_of", "resolved_of", "suites_of", "target_of"]

Pairs = list[tuple[str, str]]

PRIVATE = VOLATILE | {"host", "node", "username", "home", "model_path", "executable"}


def identity_of(manifest: Manifest) -> Pairs:
    """When, with which version and at which commit."""
    pairs = [
        ("run", manifest.run_id),
        ("started", manifest.created_at),
        ("finished", manifest.finished_at or "not yet"),
        ("package", f"hyflash-bench {manifest.package_version}"),
    ]
    if manifest.git and manifest.git.get("commit"):
        changed = " with local changes" if manifest.git.get("dirty") else ""
        pairs.append(("commit", f"{manifest.git['commit']}{changed}"))
    pairs += [("imported from", _imported(one)) for one in manifest.imported]
    return pairs


def _imported(one: Mapping[str, Any]) -> str:
    """A file of another program's, and what became of its numbers."""
    remarks = "; ".join(map(str, one.get("notes", ())))
    told = "".join(f" {key} = {cell_text(key, value)}." for key, value in one.get("reported", {}).items())
    return (
        f"{one.get('file')} ({one.get('format')}, sha256 {str(one.get('sha256'))[:16]}) "
        f"as {one.get('drafter')}: {remarks}.{' The file itself reports' if told else ''}{told}"
    )


def target_of(manifest: Manifest, *, include_host: bool = False) -> Pairs:
    """The target's facts."""
    return list(_leaves(manifest.target or {}, include_host))


def environment_of(manifest: Manifest, *, include_host: bool = False) -> Pairs:
    """Hardware and software; with ``include_host`` also names of machines, people and folders."""
    return list(_leaves(manifest.environment, include_host))


def command_of(manifest: Manifest) -> str:
    """The commands as they can be typed again, a line each."""
    commands = [*manifest.earlier_commands, *([manifest.command] if manifest.command else [])]
    if not commands:
        return "not recorded: the run was started from Python"
    return "\n".join(map(shlex.join, commands))


def resolved_of(manifest: Manifest) -> str:
    """The configuration with every default filled in, as YAML."""
    return dump_yaml(manifest.resolved).rstrip()


def suites_of(manifest: Manifest) -> Table:
    """The texts' licences."""
    names = ("name", "version", "title", "licence", "suite_hash")
    return Table(
        caption="Suites, the licences of their texts, and the hashes of their content",
        headings=tuple(
            Heading(heading(name), "", "prose" if name == "licence" else "name") for name in names
        ),
        rows=tuple(
            tuple(Cell(cell_text(name, suite.get(name))) for name in names) for suite in manifest.suites
        ),
    )


def _leaves(values: Mapping[str, Any], include_host: bool, prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        is_private = key in PRIVATE or key.endswith(("path", "folder", "dir"))
        if is_private and not include_host:
            continue
        if isinstance(value, Mapping):
            yield from _leaves(value, include_host, f"{prefix}{heading(key)} ")
        else:
            yield f"{prefix}{heading(key)}", cell_text(key, value)
