"""Scores of lm-eval tasks: the target alone and with each drafter, side by side, from one prefill."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hyflash_bench.atomic import write_text
from hyflash_bench.drafters.base import Drafter
from hyflash_bench.errors import DrafterError
from hyflash_bench.integrations.asked import ALONE, QualitySpec
from hyflash_bench.integrations.keeping import Keeper
from hyflash_bench.integrations.likelihood import Likelihood
from hyflash_bench.integrations.manifest import manifest_of
from hyflash_bench.integrations.model import ReplyLM
from hyflash_bench.integrations.replies import Replies
from hyflash_bench.integrations.scores import Agreement, Score, compared, metrics_of
from hyflash_bench.integrations.tasks import TaskRequest, hushed, load_tasks, reseed
from hyflash_bench.integrations.watch import Watch
from hyflash_bench.registry import build_drafter, require_drafter
from hyflash_bench.results.layout import RESULTS_FOLDER
from hyflash_bench.results.writer import RunWriter
from hyflash_bench.runner.events import Event, Log, TargetLoaded
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.plan import content_id
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target

__all__ = ["SCORES_FILE", "Outcome", "Prepared", "measure", "prepare"]

SCORES_FILE = "quality.json"
"""Beside the lines of the run folder: the scores of the last request, once all of them are there."""

_STDERR_SAMPLES = 1000

Listener = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a measurement starts from.

    Attributes:
        spec: The request.
        target: Loaded.
        drafters: Loaded, by label, plain decoding first.
        specs: What was asked for, by label.
        tasks: As lm-eval takes them.
    """

    spec: QualitySpec
    target: Target
    drafters: Mapping[str, Drafter]
    specs: Mapping[str, DrafterSpec]
    tasks: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured.

    Attributes:
        path: The run folder.
        scores: By task, metric and drafter.
    """

    path: Path
    scores: tuple[Score, ...]

    @property
    def exit_code(self) -> int:
        """1 if a drafter failed or changed the target's output, else 0."""
        return int(any(score.message or score.agreement == "mismatch" for score in self.scores))


def prepare(spec: QualitySpec, tell: Listener) -> Prepared:
    """Load target and drafters, and build the tasks.

    Raises:
        HyFlashError: The request cannot be met.
    """
    specs = {drafter.label: drafter for drafter in spec.ordered_drafters()}
    for asked in specs.values():
        require_drafter(asked)
    started = time.perf_counter()
    target = load_target(spec.run.target_spec)
    tell(TargetLoaded(target.info.to_json(), time.perf_counter() - started))
    drafters = {label: build_drafter(asked) for label, asked in specs.items()}
    for drafter in drafters.values():
        drafter.load(target.load_context())
    tell(Log(f"Building {', '.join(spec.tasks)}; tasks that make their texts make all of them ..."))
    request = TaskRequest(
        spec.tasks,
        spec.include_path,
        spec.lengths,
        spec.num_fewshot,
        spec.run.max_new_tokens,
        spec.run.seed,
    )
    info = target.info
    tasks = load_tasks(request, target.tokenizer, None if info.extrapolate else info.max_positions)
    return Prepared(spec, target, drafters, specs, tasks)


def measure(
    prepared: Prepared,
    *,
    output_path: Path | None = None,
    fresh: bool = False,
    listener: Listener,
    command: Sequence[str] = (),
) -> Outcome:
    """Ask all requests of all tasks, and write a run folder with the scores beside it.

    What the folder holds of an earlier process, however it ended, is not asked again.

    Args:
        prepared: See :func:`prepare`.
        output_path: Exactly this folder; by default one in ``results/`` named after tasks and target.
        fresh: Discard what the folder holds.
        listener: Told what goes on.
        command: The command line, for the record.

    Raises:
        UsageError: The folder was written under other conditions.
        HyFlashError: A prompt does not fit the target, or a task cannot be asked.
    """
    spec, target, tasks = prepared.spec, prepared.target, prepared.tasks["tasks"]
    folder = output_path or RESULTS_FOLDER / _name(spec, target)
    run_id = folder.resolve().name
    manifest = manifest_of(spec, target.info, prepared.specs.values(), tasks, run_id=run_id, command=command)
    with RunWriter(folder, fresh=fresh) as writer:
        keeper = Keeper(
            writer,
            manifest,
            target,
            prepared.drafters,
            prepared.specs,
            suite_hashes={name: spec.task_hash(name) for name in tasks},
            draft_budget=spec.run.draft_budget,
            seed=spec.run.seed,
        )
        (folder / SCORES_FILE).unlink(missing_ok=True)
        watch = Watch(keeper, listener, tasks.values())
        replies = Replies(target, prepared.drafters, spec.run.draft_budget, spec.run.seed, watch)
        likelihood = Likelihood(
            target, batch_size=spec.batch_size, known=keeper.scored(), on_scored=watch.keep_scored
        )
        try:
            scores = compared(
                [
                    score
                    for label in prepared.drafters
                    for score in _scores(
                        prepared,
                        label,
                        ReplyLM(
                            replies,
                            likelihood,
                            label,
                            add_bos_token=spec.add_bos_token,
                            on_done=watch.done,
                        ),
                        keeper,
                    )
                ]
            )
            keeper.close()
        finally:
            writer.write_tables()
        write_text(folder / SCORES_FILE, _document(spec, scores))
    return Outcome(folder, tuple(scores))


def _scores(prepared: Prepared, label: str, model: ReplyLM, keeper: Keeper) -> Iterator[Score]:
    from lm_eval.evaluator import evaluate

    spec, tasks = prepared.spec, prepared.tasks["tasks"]
    reseed(tasks.values(), spec.run.seed)
    try:
        with hushed(with_bars=False):
            found = evaluate(
                model,
                prepared.tasks,
                limit=spec.run.limit,
                bootstrap_iters=_STDERR_SAMPLES,
                log_samples=False,
                apply_chat_template=spec.apply_chat_template,
            )
    except DrafterError as error:
        yield from (Score(name, "", label, None, None, 0, None, str(error)) for name in tasks)
        return
    for name in tasks:
        count = found["n-samples"][name]["effective"]
        for metric, value, stderr in metrics_of(found["results"][name], spec.lengths):
            yield Score(name, metric, label, value, stderr, count, _agreement(keeper, name, label))


def _agreement(keeper: Keeper, task: str, label: str) -> Agreement | None:
    verdict = keeper.verdict(task, label)
    return None if label == ALONE.label or verdict == "not_judged" else verdict


def _name(spec: QualitySpec, target: Target) -> str:
    parts = ["quality", *spec.tasks, target.info.name]
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in "-".join(parts).lower())
    return name if len(name) <= 60 else f"{name[:60]}-{content_id(parts)}"


def _document(spec: QualitySpec, scores: Sequence[Score]) -> str:
    document = {
        "lm_eval": version("lm_eval"),
        "request": spec.model_dump(mode="json", exclude={"run"}) | {"run": spec.run.to_mapping()},
        "scores": [asdict(score) for score in scores],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
