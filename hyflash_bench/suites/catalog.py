"""Finds suites by name or file."""

from __future__ import annotations

from pathlib import Path

from hyflash_bench.data import data_folder, expanded
from hyflash_bench.errors import SpecError, UnknownName
from hyflash_bench.spec.claims import CLAIM_FILES
from hyflash_bench.spec.suite import SuiteSpec
from hyflash_bench.spec.yaml import read_yaml
from hyflash_bench.suites.datafiles.choice import DataFiles
from hyflash_bench.suites.suite import Suite

__all__ = ["list_suites", "load_suite"]


def list_suites() -> tuple[str, ...]:
    """Names of the suites that come with the package."""
    files = data_folder("suites").glob("*.yaml")
    return tuple(sorted(path.stem for path in files if not path.match(CLAIM_FILES)))


def load_suite(name_or_path: str | Path, data: DataFiles | None = None) -> Suite:
    """Read and check a suite.

    Args:
        name_or_path: A name from :func:`list_suites`, or the path of a YAML file.
        data: Files of a data set, for suites that read one.

    Raises:
        UnknownName: There is no suite of that name.
        UsageError: There is no such file.
        SpecError: The file does not fit its schema.
    """
    path = _path(name_or_path)
    spec = SuiteSpec.parse(read_yaml(path), where=f"suite {path.stem} ({path})")
    if spec.name != path.stem:
        raise SpecError(
            f"{path}: the suite calls itself {spec.name!r}. Name the file {spec.name}.yaml, "
            f"or write name: {path.stem}."
        )
    return Suite(spec, path, data)


def _path(name_or_path: str | Path) -> Path:
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith((".yaml", ".yml")) or "/" in text:
        return expanded(name_or_path)
    if text not in list_suites():
        hint = "List them with: hyflash-bench ls suites. A file of your own ends in .yaml."
        raise UnknownName("suite", text, list_suites(), hint)
    return data_folder("suites") / f"{text}.yaml"
