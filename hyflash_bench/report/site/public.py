"""What may leave the machine: manifests and tables without the names of people, machines and folders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from hyflash_bench.report.facts import PRIVATE
from hyflash_bench.report.text import without_paths

if TYPE_CHECKING:
    import pandas as pd

    from hyflash_bench.results.records import Manifest

__all__ = ["machine_of", "public_frame", "public_manifest", "public_text"]

_SPOKEN: Final = frozenset({"text", "rejected_text"})
"""Columns of what models said, which is no name of anything."""


def public_text(text: str, *, include_host: bool) -> str:
    """The text without the folders of absolute paths."""
    return text if include_host else without_paths(text)


def public_manifest(manifest: Manifest, *, include_host: bool) -> dict[str, Any]:
    """The manifest as JSON; what is private is left out, or cut."""
    values: dict[str, Any] = manifest.model_dump(mode="json")
    if include_host:
        return values
    for name in ("target", "environment"):
        values[name] = values[name] and _without_private(values[name])
    cut: dict[str, Any] = _cut(values)
    return cut


def public_frame(frame: pd.DataFrame, *, include_host: bool) -> pd.DataFrame:
    """The table with texts cut; each word once, since tables repeat them."""
    from pandas.api.types import is_string_dtype

    if include_host:
        return frame
    changed = {}
    for name in frame.columns:
        if name in _SPOKEN or not is_string_dtype(frame[name]):
            continue
        cut = {word: without_paths(word) for word in frame[name].dropna().unique()}
        if any(word != text for word, text in cut.items()):
            changed[str(name)] = frame[name].map(cut).astype(frame[name].dtype)
    return frame.assign(**changed)


def machine_of(manifest: Manifest) -> str:
    """What the run's speed depends on, in a few words: the accelerator it ran on, or the processor."""
    facts, target = manifest.environment, manifest.target or {}
    gpus = facts.get("gpus") or []
    if str(target.get("backend", target.get("device", "cpu"))).startswith("cuda") and gpus:
        return without_paths(str(gpus[0].get("name", "GPU")))
    cores, vectors = facts.get("num_cores"), facts.get("vector_units")
    parts = [str(facts.get("cpu") or "unknown processor"), *([str(vectors)] if vectors else [])]
    parts += [f"{cores} core{'s' * (cores != 1)}"] if isinstance(cores, int) else []
    return without_paths(", ".join(parts))


def _without_private(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_private(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if not (key in PRIVATE or key.endswith(("path", "folder", "dir")))
    }


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return without_paths(value)
    if isinstance(value, dict):
        return {without_paths(key): _cut(item) for key, item in value.items()}
    return [_cut(item) for item in value] if isinstance(value, list) else value
