"""First weights: what a checkpoint has is taken, what it lacks starts anew, what is left over is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hyflash_bench.errors import DrafterError, SpecError, UnknownName
from hyflash_bench.suites.download import sha256_of
from hyflash_bench.targets.target import Target
from hyflash_bench.training.corpus.store import Corpus
from hyflash_bench.training.pupil import Pupil
from hyflash_bench.training.session import Session
from hyflash_bench.training.trainer import train
from tests.training.toys import toy_plan

SMALL = "num_slots=2,window=4,chunk=2,intermediate_size=64"
MEMORY = "memory_heads=2,memory_key_dim=8,memory_value_dim=8"
HYFLASH, WINDOW = f"hyflash:{SMALL},{MEMORY}", f"window:{SMALL}"


@pytest.fixture(scope="module")
def trained(
    toy_corpus: Path, tiny_target: Path, toy: Target, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Drafters that have left their start behind, copying among them switched off once."""
    folder = tmp_path_factory.mktemp("trained")
    drafters = [HYFLASH, WINDOW, f"window:{SMALL},copy_window=0,label=mute", "medusa:num_slots=2"]
    plan = toy_plan(toy_corpus, tiny_target, drafters=drafters, steps=3, learning_rate=0.05)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HYFLASH_BENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr("hyflash_bench.training.trainer.open_target", lambda plan: toy)
        return train(plan, folder / "out").folder


@pytest.fixture
def started(toy: Target, toy_corpus: Path, tiny_target: Path, cache: Path) -> Callable[..., Pupil]:
    """The first drafter of a session, before its first step."""

    def call(drafter: str, **changes: Any) -> Pupil:
        plan = toy_plan(toy_corpus, tiny_target, drafters=[drafter], **changes)
        session = Session.open(plan, toy, Corpus.open(toy_corpus, toy.info), is_new=True)
        return session.pupils[0]

    return call


def _weights(pupil: Pupil) -> dict[str, torch.Tensor]:
    return {name: value.detach() for name, value in pupil.network.named_parameters()}


def _is_stored(pupil: Pupil, folder: Path, *, but: tuple[str, ...] = ()) -> bool:
    """Whether every weight is the one of a checkpoint, apart from some."""
    stored = load_file(folder / "model.safetensors")
    return all(
        torch.equal(value, stored[name].float())
        for name, value in _weights(pupil).items()
        if not name.startswith(but)
    )


def test_a_whole_checkpoint_is_taken_whole(started, trained: Path) -> None:
    pupil = started(HYFLASH, init_from=str(trained))
    assert _is_stored(pupil, trained / "hyflash-l1")
    assert (pupil.origin.new, pupil.origin.left, pupil.origin.options) == ((), (), {})
    assert pupil.warm_start == {}


def test_copying_that_a_checkpoint_lacks_is_fitted_and_the_rest_is_its_own(started, trained: Path) -> None:
    pupil = started(f"window:{SMALL},label=mute", init_from=str(trained))
    assert _is_stored(pupil, trained / "mute", but=("copying.",))
    assert pupil.origin.new == ("copying",)
    assert pupil.origin.options == {"copy_window": (0, 512)}
    assert pupil.warm_start["passes"] > 0
    # Fitted to what the checkpoint makes of the text, not to what a fresh start would.
    fitted, anew = _weights(pupil), _weights(started(f"window:{SMALL}"))
    drawn = torch.nn.Linear(*reversed(fitted["copying.project.weight"].shape)).weight
    assert fitted["copying.project.weight"].std() > 2 * drawn.std()
    assert not torch.allclose(fitted["copying.project.weight"], anew["copying.project.weight"], rtol=1e-3)
    again = _weights(started(f"window:{SMALL},label=mute", init_from=str(trained)))
    assert all(torch.equal(value, fitted[name]) for name, value in again.items())


def test_parts_left_behind_start_as_they_do_in_a_new_training(started, trained: Path) -> None:
    anew = started(HYFLASH)
    pupil = started(HYFLASH, init_from=str(trained), init_without=["markov", "writers", "layers.0.reader"])
    assert _is_stored(pupil, trained / "hyflash-l1", but=("markov.", "writers.", "layers.0.reader."))
    mine, theirs = _weights(pupil), _weights(anew)
    for name, value in mine.items():
        if name.startswith(("markov.", "writers.", "layers.0.reader.")):
            assert torch.equal(value, theirs[name]), name
    assert set(pupil.origin.new) == set(pupil.origin.left) == {"markov", "writers", "layers.0.reader"}


def test_a_memory_is_added_to_a_checkpoint_that_has_none(started, trained: Path) -> None:
    pupil = started(HYFLASH, init_from=str(trained / "window-l1"))
    assert _is_stored(pupil, trained / "window-l1", but=("writers.", "layers.0.reader."))
    assert set(pupil.origin.new) == {"writers", "layers.0.reader"}
    assert pupil.origin.checkpoint == "window-l1"
    assert pupil.origin.weights == sha256_of(trained / "window-l1" / "model.safetensors")
    assert pupil.origin.options["memory"] == ("none", "gated-delta")


def test_layers_are_added_without_an_effect_at_first(started, trained: Path) -> None:
    pupil = started(f"{WINDOW},num_layers=2", init_from=str(trained / "window-l1"))
    assert _is_stored(pupil, trained / "window-l1", but=("layers.1.",))
    assert pupil.origin.new == ("layers.1",)
    assert not _weights(pupil)["layers.1.out.weight"].any()


def test_what_the_drafter_lacks_is_refused_by_name_unless_left_behind(started, trained: Path) -> None:
    with pytest.raises(
        SpecError, match=r"lacks: layers.0.reader, writers.*--init-without layers.0.reader,writers"
    ):
        started(WINDOW, init_from=str(trained / "hyflash-l1"))
    pupil = started(
        WINDOW, init_from=str(trained / "hyflash-l1"), init_without=["layers.0.reader", "writers"]
    )
    assert _is_stored(pupil, trained / "hyflash-l1")
    assert (pupil.origin.new, set(pupil.origin.left)) == ((), {"layers.0.reader", "writers"})


def test_other_shapes_are_refused_by_name(started, trained: Path) -> None:
    wide = f"window:{SMALL},slot_rank=8"
    with pytest.raises(
        SpecError, match=r"block_input\.\S+ is \[.*\] there, \[.*\] here.*--init-without block_input"
    ):
        started(wide, init_from=str(trained / "window-l1"))
    pupil = started(wide, init_from=str(trained / "window-l1"), init_without=["block_input"])
    assert _is_stored(pupil, trained / "window-l1", but=("block_input.",))
    assert "block_input" in pupil.origin.new


@pytest.mark.parametrize(
    ("drafter", "changes", "words"),
    [
        ("eagle:num_slots=2", {}, "kind is block there and eagle here"),
        (f"{WINDOW},taps=[1]", {}, r"taps is \[0, 1\] there and \[1\] here"),
        (WINDOW, {"draft_vocab_size": 32}, "draft_vocab_size is 64 there and 32 here"),
    ],
)
def test_weights_that_would_mean_something_else_are_refused(
    started, trained: Path, drafter: str, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError, match=words):
        started(drafter, init_from=str(trained / "window-l1"), **changes)


def test_a_part_that_nobody_has_is_named(started, trained: Path) -> None:
    with pytest.raises(UnknownName, match=r"leave behind 'copyng'\. Did you mean 'copying'"):
        started(WINDOW, init_from=str(trained), init_without=["copyng"])


def test_a_checkpoint_must_be_whole_in_itself(started, trained: Path, tmp_path: Path) -> None:
    def broken(change: Callable[[dict[str, torch.Tensor]], Any]) -> str:
        folder = tmp_path / "broken"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text((trained / "window-l1" / "config.json").read_text())
        tensors = load_file(trained / "window-l1" / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")
        return str(folder)

    with pytest.raises(DrafterError, match=r"lacks tensors: markov\."):
        started(
            WINDOW, init_from=broken(lambda tensors: tensors.pop(next(n for n in tensors if "markov" in n)))
        )
    with pytest.raises(DrafterError, match="has unknown tensors: surplus"):
        started(WINDOW, init_from=broken(lambda tensors: tensors.update(surplus=torch.zeros(1))))
    with pytest.raises(DrafterError, match="holds NaN"):
        started(WINDOW, init_from=broken(lambda tensors: tensors["fuse.weight"].fill_(torch.nan)))
    with pytest.raises(DrafterError, match="no trained drafter"):
        started(WINDOW, init_from=str(tmp_path / "nowhere"))


def test_card_and_configuration_say_what_came_from_where(
    loaded: Target, trained: Path, toy_corpus: Path, tiny_target: Path, tmp_path: Path
) -> None:
    drafters = [f"{HYFLASH},label=one", f"{HYFLASH},label=two".replace("window=4", "window=8")]
    plan = toy_plan(
        toy_corpus,
        tiny_target,
        drafters=drafters,
        init_from=str(trained / "window-l1"),
        init_without=["markov"],
        steps=2,
    )
    stops = iter([True, False, False])
    train(plan, tmp_path / "out", should_stop=lambda: next(stops))
    train(plan, tmp_path / "out")
    card = " ".join((tmp_path / "out" / "two" / "README.md").read_text().split())
    digest = sha256_of(trained / "window-l1" / "model.safetensors")
    assert f"started from the checkpoint `window-l1` (weights `{digest[:16]}`)" in card
    assert "`writers`" in card.partition("started as in a new training")[0].rpartition("counted here")[2]
    assert "`markov` left behind" in card
    assert "window 4 there, 8 here" in card
    assert "by least squares, before the first step" in card
    origin = json.loads((tmp_path / "out" / "one" / "config.json").read_text())["training"]["origin"]
    assert origin["weights"] == digest
    assert set(origin["new"]) == {"writers", "layers.0.reader", "markov"}
    assert "window" not in origin["options"]
