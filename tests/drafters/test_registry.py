"""Names, plugins and files of one's own lead to drafters or to one clear line."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from hyflash_bench import registry
from hyflash_bench.drafters.prompt_lookup import PromptLookup
from hyflash_bench.errors import DrafterError, HyFlashError, SpecError, UnknownName, UsageError
from hyflash_bench.registry import (
    build_drafter,
    describe_drafter,
    drafter_names,
    drafter_summaries,
    resolve_drafter,
)
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.run import DEFAULT_DRAFTERS

GOOD = '''
from pydantic import Field
from hyflash_bench.drafters import Draft, Drafter, DrafterOptions, Held

class Mine(Drafter):
    """Says nothing."""
    name = "mine"

    class Options(DrafterOptions):
        size: int = Field(3, description="A size.")

    def reset(self): ...
    def observe(self, tokens, features): ...
    def draft(self, last_token, budget, sampler, along=None):
        return Draft.empty()
    def memory(self):
        return []
'''


def spec(text: str) -> DrafterSpec:
    return DrafterSpec.from_text(text)


def written(folder: Path, source: str) -> Path:
    path = folder / "mine.py"
    path.write_text(source)
    return path


def refusal(text: str) -> str:
    with pytest.raises(HyFlashError) as caught:
        build_drafter(spec(text))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_names_are_listed_without_importing_torch() -> None:
    code = (
        "import sys; from hyflash_bench.registry import drafter_summaries; "
        "assert drafter_summaries(); print('torch' in sys.modules)"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "False"


def test_every_name_has_a_summary_and_leads_to_a_class_of_that_name() -> None:
    assert list(drafter_summaries()) == drafter_names()
    for name, summary in drafter_summaries().items():
        assert summary
        if "/" not in name:
            assert resolve_drafter(spec(name)).name == name


def test_the_default_drafters_are_registered() -> None:
    assert set(DEFAULT_DRAFTERS) <= set(drafter_names())


def test_options_reach_the_drafter() -> None:
    drafter = build_drafter(spec("prompt-lookup:max_ngram=2"))
    assert isinstance(drafter, PromptLookup)
    assert drafter.options.max_ngram == 2


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'prompt-lookup'") as caught:
        build_drafter(spec("promt_lookup"))
    assert "hyflash-bench ls drafters" in str(caught.value)


def test_an_unknown_option_offers_the_nearest() -> None:
    with pytest.raises(SpecError, match="did you mean 'max_ngram'"):
        build_drafter(spec("prompt-lookup:max_ngrams=2"))


def test_a_bad_value_is_shown_with_what_is_allowed() -> None:
    with pytest.raises(SpecError, match=r"max_ngram.*greater than or equal to 1.*given 0"):
        build_drafter(spec("prompt-lookup:max_ngram=0"))


def test_details_list_options_with_defaults() -> None:
    detail = describe_drafter(spec("prompt-lookup"))
    by_name = {option.name: option for option in detail.options}
    assert by_name["max_ngram"].default == 3
    assert by_name["match"].type == "latest | first"
    assert all(option.description for option in detail.options)
    assert detail.summary == drafter_summaries()["prompt-lookup"]


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    drafter = build_drafter(spec(f"{path}:Mine:size=5"))
    assert drafter.options.model_dump() == {"size": 5}
    assert describe_drafter(spec(f"{path}:Mine")).summary == "Says nothing."


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        build_drafter(spec(f"{tmp_path}/none.py:Mine"))


def test_a_file_without_a_class_named(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    assert f"for example {path}:Mine" in refusal(str(path))


def test_a_class_that_is_not_there(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    message = refusal(f"{path}:Mime")
    assert "Did you mean 'Mine'?" in message
    assert str(path) in message


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("class Mine(:\n", "line 1: not valid Python"),
        ("import nothing_of_that_name\n", "ModuleNotFoundError: No module named"),
        ("raise SystemError('first\\nsecond')\n", "SystemError: first second"),
        ("class Mine: ...\n", "'Mine' is not a drafter. Derive the class from"),
        ("Mine = 3\n", "is not a drafter"),
        (GOOD.replace("    def memory(self):\n        return []\n", ""), "lacks memory"),
        (GOOD.replace('    name = "mine"\n', ""), "Mine has no name. Add to the class: name = 'mine'."),
        (GOOD.replace("Field(3, ", "Field("), "option 'size' has no default"),
        (GOOD.replace("(DrafterOptions)", ""), "Mine.Options is not a set of options"),
        (GOOD + "    def __init__(self): ...\n", "cannot be made: TypeError"),
    ],
)
def test_mistakes_in_a_file_are_one_line_that_names_it(tmp_path: Path, source: str, expected: str) -> None:
    path = written(tmp_path, source)
    message = refusal(f"{path}:Mine")
    assert expected in message
    assert str(path) in message


def test_a_file_that_failed_leaves_no_module_behind(tmp_path: Path) -> None:
    before = set(sys.modules)
    refusal(f"{written(tmp_path, 'raise ValueError')}:Mine")
    assert not [name for name in set(sys.modules) - before if "user_mine" in name]


class FakeDistribution:
    def __init__(self) -> None:
        self.name = "drafters-of-others"
        self.metadata = {"Summary": "Drafters of others."}


def plug_in(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    point = EntryPoint("theirs", value, registry.ENTRY_POINT_GROUP)
    vars(point).update(dist=FakeDistribution())
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])


def test_plugins_are_listed_under_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, "hyflash_bench.drafters.prompt_lookup:PromptLookup")
    assert drafter_names()[-1] == "drafters-of-others/theirs"
    assert drafter_summaries()["drafters-of-others/theirs"] == "Drafters of others."
    assert resolve_drafter(spec("drafters-of-others/theirs")) is PromptLookup


def test_a_broken_plugin_is_still_listed_and_names_its_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plug_in(monkeypatch, "nothing_of_that_name:Theirs")
    assert "drafters-of-others/theirs" in drafter_names()
    with pytest.raises(DrafterError, match="package 'drafters-of-others'"):
        build_drafter(spec("drafters-of-others/theirs"))
