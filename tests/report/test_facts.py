"""What a page says about a run besides its numbers."""

from __future__ import annotations

from typing import Any

from hyflash_bench.report import facts
from hyflash_bench.results.records import Manifest
from hyflash_bench.spec.yaml import load_yaml
from tests.results.factory import manifest_of


def _manifest(**changes: Any) -> Manifest:
    return manifest_of([], **changes)


def test_nested_facts_become_pairs() -> None:
    """Lists and mappings in words."""
    manifest = _manifest(environment={"packages": {"torch": "2.13.0"}, "memory_bytes": 2**30, "gpus": None})

    assert facts.environment_of(manifest) == [
        ("packages torch", "2.13.0"),
        ("memory bytes", "1 GiB"),
        ("gpus", "\u2013"),
    ]


def test_private_facts_are_left_out() -> None:
    """Names of machines, people and folders."""
    environment = {"hostname": "h", "user": "u", "cwd": "/x", "cache_dir": "/y", "nested": {"node": "n"}}

    assert facts.environment_of(_manifest(environment=environment)) == []


def test_the_command_can_be_typed_again() -> None:
    """Words with spaces are quoted; a run from Python has none."""
    assert facts.command_of(_manifest(command=["hyflash-bench", "run", "a b"])) == "hyflash-bench run 'a b'"
    assert facts.command_of(_manifest(command=[])).startswith("not recorded")
    both = _manifest(command=["hyflash-bench", "b"], earlier_commands=[["hyflash-bench", "a"]])
    assert facts.command_of(both) == "hyflash-bench a\nhyflash-bench b"


def test_the_configuration_can_be_read_back() -> None:
    """It is YAML."""
    resolved = {"suites": ["quick"], "temperature": None, "seed": 3}

    assert load_yaml(facts.resolved_of(_manifest(resolved=resolved)), "page") == resolved


def test_commit_and_local_changes_are_told() -> None:
    """A number from changed code is not the commit's."""
    pairs = dict(facts.identity_of(_manifest(git={"commit": "abc", "dirty": True}, finished_at=None)))

    assert pairs["commit"] == "abc with local changes"
    assert pairs["finished"] == "not yet"


def test_every_suite_has_its_licence() -> None:
    """Texts are other people's."""
    table = facts.suites_of(_manifest())

    assert [cell.text for cell in table.rows[0]] == ["quick", "1", "The quick suite", "CC0-1.0", "hash-quick"]
