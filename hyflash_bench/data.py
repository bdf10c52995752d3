"""Where the files that come with the package live, and where fetched ones are kept."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from platformdirs import user_cache_path

from hyflash_bench.errors import MissingDependency

__all__ = ["cache_folder", "data_folder", "expanded"]


def data_folder(name: str) -> Path:
    """Folder of ``suites``, ``baselines`` or another kind of shipped data.

    Looked for in the environment variable ``HYFLASH_BENCH_<NAME>_DIR``, then beside the package
    (a checkout installed as editable), then inside the installed package.

    Raises:
        MissingDependency: None of the three has it.
    """
    variable = f"HYFLASH_BENCH_{name.upper()}_DIR"
    given = os.environ.get(variable)
    if given:
        folder = expanded(given)
        if not folder.is_dir():
            raise MissingDependency(
                f"{variable} is {given!r}, which is not a folder. Correct it or unset it."
            )
        return folder
    root = Path(__file__).resolve().parents[1]
    if (root / "pyproject.toml").is_file() and (root / name).is_dir():
        return root / name
    packaged = Path(str(files("hyflash_bench"))) / "_data" / name
    if packaged.is_dir():
        return packaged
    raise MissingDependency(
        f"The {name} folder of HyFlash Bench is missing. "
        f"Reinstall the package, or set {variable} to a checkout's {name}/ folder."
    )


def expanded(path: str | Path) -> Path:
    """A path as typed, with a leading ``~`` or ``~user`` written out where there is such a user."""
    with suppress(RuntimeError):
        return Path(path).expanduser()
    return Path(path)


def cache_folder() -> Path:
    """Folder for what was fetched; ``HYFLASH_BENCH_CACHE`` overrides the user's cache folder."""
    given = os.environ.get("HYFLASH_BENCH_CACHE")
    if given:
        return expanded(given)
    return user_cache_path("hyflash-bench")
