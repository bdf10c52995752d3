"""Fetches one archive with pip or npm, as the user has set them up.

The registries are reached through the user's own clients, so mirrors, proxies and offline folders
work as they do elsewhere, and no registry is named here.

No code of a package is run. pip insists on a source archive's metadata even to download it, and
would build the package for that; so it is told to use no build environment and finds a stand-in
for the build backend that answers with the name and version alone. The archive's hash is checked
by pip before it comes to that.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from hyflash_bench.errors import DownloadError, MissingDependency
from hyflash_bench.spec.suite import NpmSource, PypiSource

__all__ = ["HashMismatchError", "download_npm", "download_pypi", "has_pip", "sha256_of", "verify"]

TIMEOUT_S = 900.0

# Those of pip's own choice and of the common build systems.
_BACKENDS = (
    "setuptools.build_meta",
    "hatchling.build",
    "flit_core.buildapi",
    "poetry.core.masonry.api",
    "pdm.backend",
)
_STAND_IN = """\
import os, sys

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    name, version = os.environ["HYFLASH_BENCH_PACKAGE"], os.environ["HYFLASH_BENCH_VERSION"]
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    os.makedirs(os.path.join(folder, info))
    with open(os.path.join(folder, info, "METADATA"), "w") as file:
        file.write(f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return info

__legacy__ = sys.modules[__name__]
"""


class HashMismatchError(DownloadError):
    """An archive arrived, but not the one that the suite names."""

    def __init__(self, label: str, expected: str, found: str) -> None:
        super().__init__(
            f"{label} is not the archive that the suite was made with: "
            f"SHA-256 {expected} expected, {found} found. "
            "Check the mirror it came from; if the package really changed, the suite needs a new "
            "version with the new hash."
        )


def has_pip() -> bool:
    """Whether this Python can run pip.

    Looked for on the path alone: setuptools takes anybody who asks its import hook for pip to be pip, and
    then leaves the standard library's distutils in place, which breaks ``torch.compile`` later on.
    """
    return PathFinder.find_spec("pip") is not None


def download_pypi(source: PypiSource, folder: Path) -> Path:
    """Download a wheel or a source archive into ``folder``.

    Raises:
        MissingDependency: pip is not installed.
        DownloadError: pip failed.
        HashMismatchError: The archive is another one.
    """
    if not has_pip():
        raise MissingDependency(
            f"{source.label} is fetched with pip, which this Python has not got. "
            "Install it with: python -m ensurepip (or: uv pip install pip)."
        )
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{source.package}=={source.version} --hash=sha256:{source.sha256}\n")
    stand_in = folder / "stand-in"
    _write_stand_in(stand_in)
    kind = "--no-binary" if source.distribution == "sdist" else "--only-binary"
    archives = folder / "archives"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes"]
    command += [kind, ":all:", "--no-build-isolation", "--no-input", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(archives), "-r", str(requirements)]
    environment = {
        **os.environ,
        "PYTHONPATH": str(stand_in),
        "PIP_USE_PEP517": "1",  # a setup.py without pyproject.toml must not be run either
        "HYFLASH_BENCH_PACKAGE": source.package,
        "HYFLASH_BENCH_VERSION": source.version,
    }
    output = _run(command, source.label, "pip", environment)
    found = re.search(r"Got\s+([0-9a-f]{64})", output)
    if found:
        raise HashMismatchError(source.label, source.sha256, found.group(1))
    return _only_file(archives, source.label, "pip", output)


def download_npm(source: NpmSource, folder: Path) -> Path:
    """Download an npm package's archive into ``folder``.

    Raises:
        MissingDependency: npm is not installed.
        DownloadError: npm failed.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise MissingDependency(
            f"{source.label} is fetched with npm, which is not on the PATH. "
            "Install Node.js, or choose a suite or kinds that need no npm "
            "(the suite quick needs none)."
        )
    archives = folder / "archives"
    archives.mkdir()
    command = [npm, "pack", f"{source.package}@{source.version}", "--ignore-scripts"]
    command += ["--pack-destination", str(archives)]
    output = _run(command, source.label, "npm", dict(os.environ))
    return _only_file(archives, source.label, "npm", output)


def verify(archive: Path, label: str, expected: str) -> None:
    """Compare an archive with the hash that the suite names.

    Raises:
        HashMismatchError: It is another one.
    """
    found = sha256_of(archive)
    if found != expected:
        raise HashMismatchError(label, expected, found)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_stand_in(folder: Path) -> None:
    for backend in _BACKENDS:
        *packages, module = backend.split(".")
        place = folder
        for package in packages:
            place = place / package
            place.mkdir(parents=True, exist_ok=True)
            (place / "__init__.py").touch()
        (place / f"{module}.py").write_text(_STAND_IN)


def _run(command: list[str], label: str, tool: str, environment: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DownloadError(
            f"{label}: {tool} did not finish within {TIMEOUT_S:.0f} seconds. Check the network and try again."
        ) from None
    except OSError as error:
        raise MissingDependency(f"{label}: {tool} cannot be started: {error}.") from None
    return done.stdout


def _only_file(folder: Path, label: str, tool: str, output: str) -> Path:
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    if len(found) == 1:
        return found[0]
    lines = [line.strip() for line in output.splitlines() if "error" in line.lower()]
    reason = " | ".join(lines[:3]) or "it gave no reason"
    raise DownloadError(
        f"{label} could not be fetched with {tool}: {reason}. "
        f"Check the network and the index that {tool} is set to use."
    )
