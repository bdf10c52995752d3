"""The ``quality`` command on a tiny target and tasks of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hyflash_bench.cli.main import app
from tests.integrations import own
from tests.tiny import save_tiny_target

Quality = Callable[..., Result]


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target, tasks and a drafter."""
    folder = tmp_path_factory.mktemp("quality")
    save_tiny_target(folder / "target")
    own.write(folder)
    return folder


@pytest.fixture(scope="session")
def quality(workshop: Path) -> Iterator[Quality]:
    """Call ``quality`` with some words."""

    def call(*words: str) -> Result:
        always = ["--target", str(workshop / "target"), "--include-path", str(workshop / "tasks")]
        return CliRunner().invoke(app, ["quality", *always, *words])

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TQDM_DISABLE", "1")
        yield call
