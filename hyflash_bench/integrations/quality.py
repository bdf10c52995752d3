"""Scores of lm-eval tasks: the target alone and with each drafter, side by side, from one prefill."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field

import hyflash_bench
from hyflash_bench.atomic import write_text
from hyflash_bench.drafters.base import Drafter
from hyflash_bench.errors import DrafterError, UsageError
from hyflash_bench.integrations.keeping import Keeper
from hyflash_bench.integrations.likelihood import Likelihood
from hyflash_bench.integrations.lm_eval import ReplyLM
from hyflash_bench.integrations.replies import Replies, Round
from hyflash_bench.integrations.tasks import TaskRequest, hushed, load_tasks
from hyflash_bench.memory.lookup import networks_of
from hyflash_bench.registry import build_drafter, require_drafter
from hyflash_bench.results.layout import RESULTS_FOLDER, Layout
from hyflash_bench.results.records import Manifest
from hyflash_bench.results.writer import RunWriter
from hyflash_bench.runner.environment import busy_share, environment, git_state
from hyflash_bench.runner.events import ConversationFinished, Event, Log, Planned, TargetLoaded, WorkFinished
from hyflash_bench.runner.recording import turn_finished
from hyflash_bench.spec.base import MAX_COUNT, Spec
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.plan import content_id
from hyflash_bench.spec.run import RunSpec
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target

__all__ = ["SCORES_FILE", "Outcome", "Prepared", "QualitySpec", "Score", "measure", "prepare"]

SCORES_FILE = "quality.json"
"""Beside the lines of the run folder."""

_ALONE = DrafterSpec(name="autoregressive")
_STDERR_SAMPLES = 1000

Agreement = Literal["identical", "near_tie", "mismatch"]
Listener = Callable[[Event], None]


class QualitySpec(Spec):
    """A request for scores."""

    tasks: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        min_length=1, description="Tasks, groups or patterns of lm-eval; vt, cwe and fwe are RULER's."
    )
    include_path: tuple[Path, ...] = Field((), description="Folders with tasks of one's own.")
    lengths: tuple[Annotated[int, Field(ge=64, le=MAX_COUNT)], ...] = Field(
        (), description="Context lengths of tasks that make their own texts, in tokens."
    )
    num_fewshot: int | None = Field(None, ge=0, le=1000, description="Examples before each question.")
    apply_chat_template: bool = Field(False, description="Write prompts as the target's chat template does.")
    add_bos_token: bool = Field(False, description="Begin every prompt as the tokenizer does by itself.")
    run: RunSpec = Field(description="Target, drafters, limit, max_new_tokens, draft_budget and seed.")

    @classmethod
    def of(cls, values: Mapping[str, Any], where: str = "quality") -> Self:
        """Build from one mapping: what is not a field here is one of a run.

        Raises:
            SpecError: See :meth:`Spec.parse`.
        """
        own = {key: value for key, value in values.items() if key in cls.model_fields}
        rest = {key: value for key, value in values.items() if key not in own}
        run = RunSpec.parse(
            {**rest, "suites": tuple(values.get("tasks", ())) or ("none",), "mode": "live"}, where
        )
        return cls.parse({**own, "run": run}, where)

    def ordered_drafters(self) -> tuple[DrafterSpec, ...]:
        """Plain decoding first, asked for or not: the others are held against it."""
        others = [spec for spec in self.run.drafters if spec.label != _ALONE.label]
        return (_ALONE, *others)


@dataclass(frozen=True, slots=True)
class Score:
    """One metric of one task with one drafter.

    Attributes:
        task: Name of the task.
        metric: As lm-eval names it; RULER names it after the length.
        drafter: Label; plain decoding is the target alone.
        score: As lm-eval computes it; None if the drafter failed.
        stderr: Its standard error, where lm-eval gives one.
        num_prompts: How many were asked.
        agreement: Greedy replies compared with the target alone: ``identical``, ``near_tie`` (rounding of
            nearly equal logits), ``mismatch``; None where replies are drawn, or for the target itself.
        message: Why there is no score.
    """

    task: str
    metric: str
    drafter: str
    score: float | None
    stderr: float | None
    num_prompts: int
    agreement: Agreement | None
    message: str | None = None


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
    """Ask all prompts of all tasks, and write a run folder with the scores beside it.

    Args:
        prepared: See :func:`prepare`.
        output_path: Exactly this folder; by default one in ``results/`` named after tasks and target.
        fresh: Replace what the folder holds.
        listener: Told what goes on.
        command: The command line, for the record.

    Raises:
        UsageError: The folder holds a run already.
        HyFlashError: A prompt does not fit the target, or a task cannot be asked.
    """
    spec, target = prepared.spec, prepared.target
    folder = output_path or RESULTS_FOLDER / _name(spec, target)
    if Layout(folder).is_run and not fresh:
        raise UsageError(f"{folder} holds a run. Add --fresh to replace it, or give another --output-path.")
    busy = busy_share()
    with RunWriter(folder, fresh=fresh) as writer:
        keeper = Keeper(
            writer,
            target,
            prepared.drafters,
            prepared.specs,
            suite_hash=_tasks_hash(spec),
            draft_budget=spec.run.draft_budget,
            seed=spec.run.seed,
        )
        watch = _Watch(keeper, listener, _num_prompts(prepared))
        replies = Replies(target, prepared.drafters, spec.run.draft_budget, spec.run.seed, watch.take)
        likelihood = Likelihood(target, watch.scored)
        try:
            scores = [
                score
                for label in prepared.drafters
                for score in _scores(prepared, label, replies, likelihood, watch.agreements)
            ]
        finally:
            writer.write_manifest(_manifest(prepared, folder, keeper, busy, command))
            writer.write_tables()
        write_text(folder / SCORES_FILE, _document(spec, scores))
    return Outcome(folder, tuple(_compared(scores)))


class _Watch:
    """Keeps every round, tells of it, and remembers how far replies agree."""

    def __init__(self, keeper: Keeper, tell: Listener, num_prompts: int) -> None:
        self.agreements: dict[tuple[str, str], Agreement] = {}
        self._keeper = keeper
        self._tell = tell
        self._num_prompts = num_prompts
        self._done = 0
        self._started = time.perf_counter()
        self._tell(Planned(num_prompts, 0))

    def take(self, played: Round) -> None:
        """Keep one round."""
        for label, record in self._keeper.keep(played).items():
            if record.turns:
                self._tell(turn_finished(record.item_id, label, record.turns[0]))
            self._tell(ConversationFinished(record.item_id, label, record.status, record.message))
        for label, reply in played.replies.items():
            if reply.judged is not None and label != _ALONE.label:
                key = (played.origin.task, label)
                self.agreements[key] = _worse(self.agreements.get(key, "identical"), reply.judged.verdict)
        self._done += 1
        eta_s = (time.perf_counter() - self._started) / self._done * (self._num_prompts - self._done)
        item = played.origin.item_id
        self._tell(WorkFinished(item, self._done, self._num_prompts, max(0.0, eta_s)))

    def scored(self, done: int, total: int) -> None:
        """Tell of likelihoods, ten times in all."""
        if done == total or done % max(1, total // 10) == 0:
            self._tell(Log(f"{done} of {total} continuations scored"))


def _scores(
    prepared: Prepared,
    label: str,
    replies: Replies,
    likelihood: Likelihood,
    agreements: Mapping[tuple[str, str], Agreement],
) -> list[Score]:
    from lm_eval.evaluator import evaluate

    spec = prepared.spec
    model = ReplyLM(replies, likelihood, label, add_bos_token=spec.add_bos_token)
    names = list(prepared.tasks["tasks"])
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
        return [Score(name, "", label, None, None, 0, None, str(error)) for name in names]
    return [
        Score(name, metric, label, value, stderr, count, agreements.get((name, label)))
        for name in names
        for metric, value, stderr in _metrics(found["results"][name], spec.lengths)
        for count in [found["n-samples"][name]["effective"]]
    ]


def _metrics(result: Mapping[str, Any], lengths: Sequence[int]) -> list[tuple[str, float, float | None]]:
    """Metric, value and standard error; ``name,filter`` loses a filter that does nothing."""
    rows = []
    for key, value in result.items():
        metric, _, filtered = key.partition(",")
        is_unasked = metric.isdecimal() and int(metric) not in lengths and value == -1
        if not isinstance(value, int | float) or not filtered or metric.endswith("_stderr") or is_unasked:
            continue
        stderr = result.get(f"{metric}_stderr,{filtered}")
        name = metric if filtered == "none" else f"{metric} ({filtered})"
        rows.append((name, float(value), float(stderr) if isinstance(stderr, int | float) else None))
    return rows


def _compared(scores: Sequence[Score]) -> list[Score]:
    """Equal replies must have equal scores; what differs nevertheless is a mismatch too."""
    alone = {(score.task, score.metric): score.score for score in scores if score.drafter == _ALONE.label}
    return [
        replace(score, agreement="mismatch")
        if score.agreement == "identical" and score.score != alone[score.task, score.metric]
        else score
        for score in scores
    ]


def _worse(one: Agreement, other: Agreement) -> Agreement:
    order: tuple[Agreement, ...] = ("identical", "near_tie", "mismatch")
    return max(one, other, key=order.index)


def _num_prompts(prepared: Prepared) -> int:
    tasks = [t for t in prepared.tasks["tasks"].values() if t.OUTPUT_TYPE == "generate_until"]
    sizes = [len(task.eval_docs) for task in tasks]
    limit = prepared.spec.run.limit
    return sum(size if limit is None else min(size, limit) for size in sizes)


def _tasks_hash(spec: QualitySpec) -> str:
    """Changes with everything that prompts depend on, besides the target."""
    names = ("tasks", "lengths", "num_fewshot", "apply_chat_template", "add_bos_token")
    asked = spec.model_dump(mode="json", include=set(names)) | {"seed": spec.run.seed}
    own = [
        path.read_text(encoding="utf-8", errors="replace")
        for folder in spec.include_path
        for path in sorted(folder.rglob("*"))
        if path.suffix in {".yaml", ".py"}
    ]
    return content_id([asked, own, version("lm_eval")])


def _name(spec: QualitySpec, target: Target) -> str:
    parts = ["quality", *spec.tasks, target.info.name]
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in "-".join(parts).lower())
    return name if len(name) <= 60 else f"{name[:60]}-{content_id(parts)}"


def _manifest(
    prepared: Prepared, folder: Path, keeper: Keeper, busy: float, command: Sequence[str]
) -> Manifest:
    spec, info = prepared.spec, prepared.target.info
    now = datetime.now(UTC).isoformat(timespec="seconds")
    cells = keeper.cells()
    return Manifest(
        run_id=folder.resolve().name,
        created_at=now,
        finished_at=now,
        package_version=hyflash_bench.__version__,
        command=list(command),
        request=spec.run.model_dump(mode="json", exclude_unset=True),
        resolved=spec.run.to_mapping(),
        target=info.to_json(),
        suites=[
            {
                "suite_hash": _tasks_hash(spec),
                "name": name,
                "version": str(task.VERSION),
                "title": f"lm-eval {name}",
                "licence": "as the task says",
                "description": f"Task {name} of lm-eval {version('lm_eval')}, generated text only.",
            }
            for name, task in prepared.tasks["tasks"].items()
            if name in {cell.task for cell in cells}
        ],
        environment={**environment(), "busy_share": round(busy, 2), "lm_eval": version("lm_eval")},
        git=git_state(Path(hyflash_bench.__file__).parent),
        networks=networks_of(prepared.specs.values(), info.name),
        cells=cells,
    )


def _document(spec: QualitySpec, scores: Sequence[Score]) -> str:
    document = {
        "lm_eval": version("lm_eval"),
        "request": spec.model_dump(mode="json", exclude={"run"}) | {"run": spec.run.to_mapping()},
        "scores": [asdict(score) for score in _compared(scores)],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
