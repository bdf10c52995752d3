"""The card that lies beside a trained drafter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hyflash_bench.drafters.networks.block import BlockConfig
from hyflash_bench.drafters.networks.network import NetworkConfig
from hyflash_bench.spec.yaml import dump_yaml
from hyflash_bench.targets.presets import hub_name
from hyflash_bench.training.roster import Entry

if TYPE_CHECKING:
    from hyflash_bench.training.session import Session

__all__ = ["card", "estimate_text", "front_matter"]

NOT_MEASURED = "\u2013"

_WHAT_IT_IS = {
    "hyflash": "a parallel block drafter with a local window and a recurrent memory of fixed size. It "
    "is a re-implementation from the abstract of HyFlash (arXiv 2611.07263); no code or weights of its "
    "authors were available, so its results say nothing about theirs",
    "full-context": "a parallel block drafter that attends to the whole context, in the style of DFlash "
    "(arXiv 2602.06036). It is the control of hyflash: the same code without window and memory",
    "window": "a parallel block drafter that attends to a local window only. It is the control of hyflash "
    "without its memory",
    "window-equal-bytes": "a parallel block drafter that attends to a local window only, as long as makes it "
    "hold as many bytes as hyflash. It is the control of hyflash for spending its memory's bytes on a window",
    "memory-only": "a parallel block drafter that reads a memory of fixed size and no window. It is the "
    "control of hyflash without local attention",
    "medusa": "a set of residual-block heads in the style of Medusa (arXiv 2401.10774)",
    "eagle": "a one-layer autoregressive drafter in the style of EAGLE-3 (arXiv 2503.01840)",
}

_RULES = {
    "gated-delta": "of the gated delta rule",
    "gated-linear": "plain gated linear attention, which overwrites nothing",
    "delta": "of the delta rule without a gate, which forgets nothing",
}


def card(
    entry: Entry,
    session: Session,
    training: Mapping[str, Any],
    curve: Sequence[Mapping[str, Any]],
    contexts: Sequence[Mapping[str, Any]],
) -> str:
    """A README in Markdown with YAML front matter.

    Args:
        entry: The drafter.
        session: That it was trained in.
        training: Its budget, as stored in ``config.json``.
        curve: Its evaluations; the last one is shown.
        contexts: How it did by context, a row for each span.
    """
    info = session.target.info
    corpus = session.corpus.hash
    parts = [
        front_matter(entry.label, entry.drafter, hub_name(info), corpus, curve),
        f"# {entry.label} for {info.name}",
        f"This is {_WHAT_IT_IS[entry.name]}.{_options(entry.config)}",
        _use(entry),
        _budget(entry, session, training),
        _results(curve, contexts, entry, session),
        _limits(entry, session, training),
    ]
    return "\n\n".join(parts) + "\n"


def front_matter(
    label: str, drafter: str, base_model: str, corpus: str, curve: Sequence[Mapping[str, Any]]
) -> str:
    """What hubs read of a model card: YAML between two lines of dashes.

    Args:
        label: Of the drafter, as its folder is named.
        drafter: As registered.
        base_model: The target, as hubs name it.
        corpus: Hash of the training text.
        curve: Evaluations; the acceptance length of the last one is the card's result.
    """
    front: dict[str, Any] = {
        "license": "apache-2.0",
        "library_name": "hyflash-bench",
        "pipeline_tag": "text-generation",
        "base_model": base_model,
        "tags": ["speculative-decoding", "draft-model", drafter],
        "inference": False,  # it drafts for its target and cannot speak by itself
    }
    if curve:
        held_out = {"name": "held-out documents of the training corpus", "type": f"corpus-{corpus[:16]}"}
        metric = {
            "name": "acceptance length, greedy, teacher-forced",
            "type": "acceptance_length",
            "value": round(float(curve[-1]["acceptance_length"]), 3),
        }
        task = {"type": "text-generation"}
        front["model-index"] = [
            {"name": label, "results": [{"task": task, "dataset": held_out, "metrics": [metric]}]}
        ]
    return f"---\n{dump_yaml(front)}---"


def _options(config: NetworkConfig) -> str:
    """What is switched on, a sentence each."""
    said = []
    if isinstance(config, BlockConfig):
        if config.attention == "window":
            said.append(f"Its window is {config.window} rows.")
        if config.memory != "none":
            said.append(f"Its memory is {_RULES[config.memory]}.")
            if config.memory_shifts:
                lags = ", ".join(map(str, config.memory_shifts))
                said.append(
                    f"The memory's heads bind what stands at a row to the key of {lags} rows before it "
                    "(memory_shifts), so asking with what is now finds what came after."
                )
        if config.follow_heads:
            said.append(
                f"{config.follow_heads} of its key heads look for what followed rows like the last one "
                "(follow_heads)."
            )
    if config.copy_window:
        said.append(
            f"What it says is mixed with tokens copied from the last {config.copy_window:,} rows, from where "
            "the text was like this before (`copying=false` switches that off)."
        )
    if config.recall_rows:
        said.append(
            f"Of rows before these it remembers {config.recall_rows:,}, the last one of each pair of tokens "
            "by hash, and copies from them too (`recall_rows=0` switches that off)."
        )
    return "".join(f" {sentence}" for sentence in said)


def _use(entry: Entry) -> str:
    return (
        "## Use\n\n"
        f"```\nhyflash-bench run quick --drafter {entry.drafter}:checkpoint=FOLDER\n```\n\n"
        "It fits no other target: `config.json` names the weights it was trained for."
    )


def _budget(entry: Entry, session: Session, training: Mapping[str, Any]) -> str:
    plan, info = session.plan, session.target.info
    matched = ""
    if entry.reference is not None:
        gap = entry.parameters - entry.reference
        matched = f", {gap:+,} against full-context of the same depth"
    if entry.bytes_gap is not None:
        matched += f"; holds {entry.bytes_gap:+,} bytes of the text against hyflash in float32"
    fitted = "none"
    if warm := training.get("warm_start"):
        fitted = (
            f"by least squares, before the first step: {warm['passes']} passes, {warm['tokens']:,} tokens, "
            f"{warm['seconds']:.0f} s"
        )
    rows = {
        "target": f"{info.name}, weights `{info.fingerprint.weights[:16]}`",
        "corpus": f"`{session.corpus.hash[:16]}`",
        "parameters": f"{entry.parameters:,}{matched}",
        "steps": f"{training['steps']:,} of {training['planned_steps']:,} planned",
        "tokens seen": f"{training['tokens_seen']:,}",
        "anchors": f"{training['steps'] * plan.num_anchors:,} at most, {entry.config.num_slots} slots each",
        "warm start": fitted,
        "time": f"{training['seconds'] / 60:.0f} min in this drafter's own passes, the warm start apart",
        "updates left out": f"{training['num_skipped']}",
        "seed": f"{plan.seed}",
    }
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    fellows = [other.label for other in session.entries if other is not entry]
    shared = f" The same stream trained {', '.join(fellows)}." if fellows else ""
    start = _start(training.get("origin"))
    return (
        f"## Budget\n\n| | |\n|---|---|\n{table}\n\n"
        f"Every drafter of a training sees the same batches and anchors.{shared}{start} "
        "`recipe.yaml` holds the whole recipe, `curve.csv` how it went."
    )


def _start(origin: Mapping[str, Any] | None) -> str:
    """What came from where, if it was not started anew."""
    if origin is None:
        return ""
    said = [
        f"It was started from the checkpoint `{origin['checkpoint']}` (weights `{origin['weights'][:16]}`), "
        "whose budget is not counted here"
    ]
    for key, words in (("new", "started as in a new training"), ("left", "left behind")):
        if parts := origin[key]:
            said.append(f"{', '.join(f'`{part}`' for part in parts)} {words}")
    changes = [f"{key} {there} there, {here} here" for key, (there, here) in origin["options"].items()]
    return f" {'; '.join(said + changes)}."


def _results(
    curve: Sequence[Mapping[str, Any]], contexts: Sequence[Mapping[str, Any]], entry: Entry, session: Session
) -> str:
    if not curve:
        return "## Results\n\nNot evaluated: the training was stopped before its first evaluation."
    last = curve[-1]
    slots = " / ".join(_number(last.get(f"slot_{slot}")) for slot in range(1, entry.config.num_slots + 1))
    return (
        f"## Results\n\nAcceptance length {_number(last['acceptance_length'])} on held-out documents at step "
        f"{last['step']:,}; acceptance by slot, given that those before were accepted: {slots}.\n\n"
        f"{_by_context(contexts, entry, session)}"
        "These are greedy, teacher-forced figures at anchors drawn uniformly, not at the steps of a live "
        "run. They compare drafters of one training; `hyflash-bench run` measures what a user gets."
    )


def _by_context(contexts: Sequence[Mapping[str, Any]], entry: Entry, session: Session) -> str:
    """A table, and what it is compared with."""
    if not contexts:
        return ""
    first = session.entries[0].label
    is_compared = entry.label != first
    titles = ["tokens before the draft", "documents", "anchors", "acceptance length"]
    titles += [f"above {first}"] if is_compared else []
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for row in contexts:
        cells = [
            f"{row['context_from']:,} to {row['context_to']:,}",
            row["num_documents"],
            row["num_anchors"],
        ]
        cells += [estimate_text(row, "acceptance_length")]
        cells += [estimate_text(row, "gain", sign="+")] if is_compared else []
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    step = f"At step {contexts[0]['step']:,}, with the standard error over documents:\n\n"
    return step + "\n".join(lines) + "\n\n"


def estimate_text(row: Mapping[str, Any], name: str, sign: str = "") -> str:
    """A figure with its standard error, where there is one."""
    error = row[f"{name}_error"]
    return f"{row[name]:{sign}.3f}" + ("" if error is None else f" \u00b1 {error:.3f}")


def _limits(entry: Entry, session: Session, training: Mapping[str, Any]) -> str:
    longest = session.plan.max_segment_tokens
    size = entry.config.draft_vocab_size
    text = (
        f"## Limits\n\nIt can propose {size:,} of the target's {entry.config.target.vocab_size:,} tokens. It "
        f"was trained on contexts of up to {longest:,} tokens; beyond, it is used outside what it has seen. "
        "The training text decides what it is good at. A drafter never changes the target's output, only its "
        "speed."
    )
    if training["steps"] < training["planned_steps"]:
        text += " The training was not finished: its learning rate had not come down yet."
    return text


def _number(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value:.3f}"
