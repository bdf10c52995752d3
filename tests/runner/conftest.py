from __future__ import annotations

from pathlib import Path

import pytest

SUITE = """
name: small
version: 1
title: Two short talks
description: For tests.
licence: Apache-2.0
sampling: [{temperature: 0}, {temperature: 0.7}]
max_new_tokens: 12
tasks:
  - name: talk
    builder: dialogues
    options: {files: "talks/*.yaml", min_turns: 1}
"""
TALKS = """
category: chat
conversations:
  - id: one
    turns: ["Hello there, hello there, hello there.", "And again: hello there."]
  - id: two
    turns: ["Say a b c a b c a b c.", "Once more.", "Thanks."]
  - id: three
    turns: ["What is the time?"]
"""


def write_suite(folder: Path) -> Path:
    """A suite of three short conversations."""
    (folder / "talks").mkdir(parents=True)
    (folder / "talks" / "talks.yaml").write_text(TALKS)
    path = folder / "small.yaml"
    path.write_text(SUITE)
    return path


@pytest.fixture
def small_suite(tmp_path: Path) -> Path:
    """File of a suite of three short conversations."""
    return write_suite(tmp_path / "suite")
