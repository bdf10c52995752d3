"""Every baseline has a card that hubs can read."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from hyflash_bench.data import data_folder
from hyflash_bench.spec.baselines import shipped_baselines
from hyflash_bench.training.card import front_matter

SHIPPED = {baseline.name: baseline for baseline in shipped_baselines("smollm2-135m")}


def test_each_folder_has_one() -> None:
    cards = {path.parent.name for path in (data_folder("baselines") / "smollm2-135m").glob("*/README.md")}
    assert cards == set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_its_front_matter_is_what_hubs_expect(name: str) -> None:
    folder: Path = SHIPPED[name].folder
    data = ModelCard.load(folder / "README.md").data
    assert data.license == "apache-2.0"
    assert data.library_name == "hyflash-bench"
    assert data.base_model == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert data.pipeline_tag == "text-generation"
    assert SHIPPED[name].drafter in data.tags
    assert data.model_name == name
    (result,) = data.eval_results
    with (folder / "curve.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    assert result.metric_type == "acceptance_length"
    assert result.metric_value == pytest.approx(float(last["acceptance_length"]), abs=1e-3)


def test_what_was_not_evaluated_claims_no_result() -> None:
    data = ModelCard(front_matter("eagle", "eagle", "org/name", "0" * 64, []) + "\n\n# It\n").data
    assert data.base_model == "org/name"
    assert data.eval_results is None
