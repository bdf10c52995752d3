"""Claim files: strict, and the shipped one says what it should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hyflash_bench.analysis.claims import require_claimable
from hyflash_bench.errors import SpecError, UsageError
from hyflash_bench.spec.claims import Claim, ClaimFile, read_claims, shipped_claims
from hyflash_bench.suites import list_suites, load_suite

CLAIM: dict[str, Any] = {
    "id": "c",
    "statement": "HyFlash is better.",
    "source": "paper",
    "metric": "acceptance_length",
    "drafter": "hyflash",
    "against": "full-context",
    "relation": "higher",
    "strata": {"suites": ["longctx"]},
}
LONG = {"suites": ["longctx"], "contexts": {"from": 2048}}
APART = {"suites": ["longctx"], "contexts": {"only": [512], "apart": True}}


def claim(**changes: Any) -> Claim:
    return Claim.parse({**CLAIM, **changes}, "claim")


def test_drafters_are_named_as_runs_label_them() -> None:
    made = claim(drafter="hyflash:memory=zero,checkpoint=hyflash-l3", than={"drafter": "window"})
    assert made.drafters == ("hyflash:checkpoint=hyflash-l3,memory=zero", "full-context", "window")


def test_a_plain_list_means_these_lengths_together() -> None:
    strata = claim(strata={"suites": ["longctx"], "contexts": [512, 1024]}).strata
    assert strata.contexts is not None
    assert strata.contexts.only == (512, 1024)
    assert strata.each() == (strata,)


def test_lengths_told_apart_are_strata_each() -> None:
    strata = claim(strata={"suites": ["longctx"], "contexts": {"only": [512, 1024], "apart": True}}).strata
    assert [each.contexts.only for each in strata.each() if each.contexts] == [(512,), (1024,)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metrik": "x"}, "unknown key 'metrik', did you mean 'metric'"),
        ({"relation": "better"}, "relation"),
        ({"source": "rumour"}, "source"),
        ({"id": "Not A Name"}, "id"),
        ({"statement": ""}, "statement"),
        ({"threshold": 0}, "threshold"),
        ({"threshold": float("nan")}, "threshold"),
        ({"tolerance": 0.1}, "tolerance belongs to relation equal"),
        ({"against": "hyflash"}, "compared with itself"),
        ({"than": {"drafter": "hyflash"}}, "than names the same gain"),
        ({"drafter": "hyflash:memory"}, "not key=value"),
        ({"strata": {"suites": []}}, r"strata\.suites"),
        ({"strata": {}}, r"'strata\.suites' is missing"),
        ({"strata": {**LONG, "contexts": []}}, "either a list of context lengths, or from and below"),
        ({"strata": {**LONG, "contexts": {"only": [1], "from": 1}}}, "either a list"),
        ({"strata": {**LONG, "contexts": {"from": 5, "below": 5}}}, "nothing lies from 5 and below 5"),
        ({"strata": {**LONG, "contexts": {"from": 5, "apart": True}}}, "apart needs a list"),
        ({"strata": {**LONG, "contexts": {"from": 0}}}, "greater than or equal to 1"),
        ({"than": {}}, "something has to differ"),
        ({"than": {"strata": LONG}, "against_strata": LONG}, "not both"),
        ({"than": {"strata": APART}}, "only strata can tell contexts apart"),
        ({"strata": APART, "against_strata": LONG}, "cannot be compared with other strata"),
    ],
)
def test_claims_that_make_no_sense(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        claim(**changes)


def test_a_file_is_read_strictly_and_named_in_the_message(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("title: t\nclaims:\n  - {id: a, id: b}\n")
    with pytest.raises(SpecError, match=r"mine\.yaml: line 3: key 'id' was already given"):
        read_claims(path)
    path.write_text("title: t\nclaims: []\n")
    with pytest.raises(SpecError, match=r"claims .*mine\.yaml: claims"):
        read_claims(path)
    with pytest.raises(UsageError, match="No file"):
        read_claims(tmp_path / "nothing.yaml")


def test_ids_are_unique() -> None:
    with pytest.raises(SpecError, match="claim c is given twice"):
        ClaimFile.parse({"title": "t", "claims": [CLAIM, CLAIM]}, "claims")


def test_claims_of_several_files_follow_each_other(tmp_path: Path) -> None:
    one, two = (tmp_path / name for name in ("one.yaml", "two.yaml"))
    for path, name in ((one, "a"), (two, "b")):
        path.write_text(json.dumps({"title": f"Claims {name}", "claims": [{**CLAIM, "id": name}]}))
    both = read_claims(two, one)
    assert (both.title, [each.id for each in both.claims]) == ("Claims b; Claims a", ["b", "a"])
    with pytest.raises(SpecError, match=r"Claim a is in .*one\.yaml and in .*one\.yaml; rename one"):
        read_claims(one, one)


def test_the_shipped_claims_are_about_shipped_suites_and_known_metrics() -> None:
    claims = read_claims(*shipped_claims())
    require_claimable(claims)
    assert set(claims.suites) <= set(list_suites())
    lengths = {item.context_length for name in claims.suites for item in load_suite(name).items()}
    for one in claims.claims:
        for contexts in (strata.contexts for strata in (one.strata, one.against_strata) if strata):
            assert contexts is None or set(contexts.only) <= lengths
    of_files = [{claim.source for claim in read_claims(path).claims} for path in shipped_claims()]
    assert of_files == [{"paper"}, {"control"}]


def test_the_claim_file_is_no_suite() -> None:
    assert [path.name for path in shipped_claims()] == ["claims-paper.yaml", "claims-checks.yaml"]
    assert not {path.stem for path in shipped_claims()} & set(list_suites())
