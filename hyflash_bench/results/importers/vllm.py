"""vLLM: the JSON of ``vllm bench serve`` and the text of ``/metrics``. Both tell sums over all requests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from hyflash_bench.errors import DataError
from hyflash_bench.results.importers.base import MAX_STEPS, Imported, Told, counted, remark, rows_of, seconds
from hyflash_bench.results.importers.engine import EngineCounts, accepted_per_step, turn_of
from hyflash_bench.results.records import ReportedTurn
from hyflash_bench.suites.datafiles.plain import plain_file
from hyflash_bench.suites.datafiles.scan import RawRow, raw_rows
from hyflash_bench.suites.formats.base import BadRow, Row

__all__ = ["is_bench", "is_metrics", "read_bench", "read_metrics"]

_ALL = "all-requests"
_REPORTED = re.compile(
    r"(mean|median|std|p\d+)_(ttft|tpot|itl|e2el)_ms|.*_throughput|duration|spec_decode_acceptance_\w+"
)
_CUT = "acceptance_length: steps cut by the token limit are not told apart and are counted"
_MEMORY = "memory: null, not told"
_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>[^\s]+)(?:\s+-?\d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_DRAFTS = "vllm:spec_decode_num_drafts"


def is_bench(row: Row) -> bool:
    """Whether a row looks like a result of ``vllm bench serve``."""
    return "total_output_tokens" in row.fields and "completed" in row.fields


def is_metrics(head: str) -> bool:
    """Whether a text looks like a server's metrics."""
    return re.search(r"^(# (HELP|TYPE) |vllm:\w+[{ ])", head, re.MULTILINE) is not None


def read_bench(path: Path) -> Imported:
    """Read a result; several of a file that was appended to are repeats.

    Raises:
        DataError: It is none, or its numbers contradict each other.
    """
    found: list[Told] = []
    made: Imported | None = None
    for repeat, (where, row) in enumerate(rows_of(path)):
        try:
            one = _bench(row, repeat)
        except BadRow as reason:
            raise DataError(f"{where}: {reason}. Correct the file.") from None
        if made is not None and (one.target, one.drafter) != (made.target, made.drafter):
            raise DataError(f"{where}: the model is another one than before. Split the file.")
        found += one.conversations
        made = made or one
    if made is None:
        raise DataError(f"{path} has no result.")
    made.conversations = found
    return made


def _bench(row: Row, repeat: int) -> Imported:
    if not is_bench(row):
        raise BadRow("total_output_tokens and completed are missing: no result of vllm bench serve")
    notes = [_MEMORY]
    told: list[Told] = []
    counts = _bench_counts(row, notes)
    if counts is not None:
        turn = {"turn": 0, "is_pooled": True, **turn_of(counts)}
        told.append(Told(_ALL, [ReportedTurn(**turn)], repeat=repeat))
        notes += [_CUT, *counts.notes]
    told += _timed(row, repeat, notes)
    if not told:
        raise BadRow(
            "it counts no drafts, and its times are no single request's: nothing in it has a counterpart here"
        )
    shown = {key: value for key, value in row.fields.items() if _REPORTED.fullmatch(key)}
    return Imported(
        format="vllm-bench",
        conversations=told,
        drafter=row.text("label", "") or None,
        target=row.text("model_id", "") or None,
        notes=notes,
        reported={key: value for key, value in shown.items() if _is_finite(value)},
    )


def _bench_counts(row: Row, notes: list[str]) -> EngineCounts | None:
    def number(name: str) -> int | None:
        key = f"spec_decode_{name}"
        return counted(row, key) if row.has(key) else counted(row, name)

    drafts, accepted, drafted = number("num_drafts"), number("accepted_tokens"), number("draft_tokens")
    if drafts is None or accepted is None:
        notes.append("acceptance: null, the file counts no drafts")
        return None
    _require_sense(drafts, drafted, accepted)
    made = EngineCounts(
        drafts, drafted, accepted, counted(row, "completed"), counted(row, "total_output_tokens"), notes=[]
    )
    key = "per_position_acceptance_rates"
    rates = row.fields.get(f"spec_decode_{key}", row.fields.get(key))
    if isinstance(rates, list) and all(_is_finite(rate) for rate in rates):
        _add_positions(made, [round(rate * drafts) for rate in rates])
    return made


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15


def _require_sense(drafts: int, drafted: int | None, accepted: int) -> None:
    if drafted is not None and accepted > drafted:
        raise BadRow(f"{accepted} accepted of {drafted} drafted tokens cannot be")
    if drafts == 0:
        raise BadRow("nothing was drafted; for plain decoding give --plain and a file without these counts")


def _add_positions(made: EngineCounts, per_position: list[int]) -> None:
    """The steps that the counts of each position imply, if they agree with the sums."""
    if made.num_drafts > MAX_STEPS:
        made.notes.append(f"position_acceptance: null, more than {MAX_STEPS:,} steps")
        return
    steps = accepted_per_step(per_position, made.num_drafts)
    if steps is None or sum(steps) != made.num_accepted:
        made.notes.append("position_acceptance: null, the positions do not add up to the accepted tokens")
        return
    made.accepted, made.is_chain = steps, True
    if made.num_drafted == made.num_drafts * len(per_position):
        made.drafted = [len(per_position)] * made.num_drafts
    else:
        made.notes.append("position_acceptance: null, drafts were not all of one length")


def _timed(row: Row, repeat: int, notes: list[str]) -> Iterator[Told]:
    """Times of requests that had the server to themselves."""
    times, lengths = row.fields.get("itls"), row.fields.get("output_lens")
    if row.fields.get("max_concurrency") != 1:
        notes.append(
            "ttft_s, decode_tok_per_s: null, since requests shared the server (max_concurrency is not 1)"
        )
        return
    if not (isinstance(times, list) and isinstance(lengths, list)):
        notes.append("ttft_s, decode_tok_per_s: null, since single requests are not told (--save-detailed)")
        return
    notes.append("ttft_s, decode_s: as a client saw them, the network included")
    errors, prompts = row.fields.get("errors"), row.fields.get("input_lens")
    for index, (gaps, length) in enumerate(zip(times, lengths, strict=False)):
        failed = isinstance(errors, list) and index < len(errors) and errors[index]
        prompt = prompts[index] if isinstance(prompts, list) and index < len(prompts) else None
        if failed or not isinstance(length, int) or not isinstance(gaps, list) or length < 1:
            message = remark(failed or "no reply")
            yield Told(f"request-{index}", [], status="error", message=message, repeat=repeat)
            continue
        known = [seconds(gaps, at) for at in range(len(gaps))]
        whole = None if None in known else sum(value for value in known if value is not None)
        turn = ReportedTurn(
            turn=0,
            num_prompt_tokens=prompt if isinstance(prompt, int) and prompt >= 0 else None,
            num_output_tokens=length,
            num_committed=length - 1,
            ttft_s=seconds(row.fields.get("ttfts"), index),
            decode_s=whole or None,
        )
        yield Told(f"request-{index}", [turn], repeat=repeat)


def read_metrics(path: Path, before: Path | None = None) -> Imported:
    """Read a server's counters, or what they grew by between two readings.

    Raises:
        DataError: A line is damaged, counters are missing, or they fell.
    """
    after = _samples(path)
    earlier = {} if before is None else _samples(before)
    grown = {key: value - earlier.get(key, 0.0) for key, value in after.items()}
    fallen = [key for key, value in grown.items() if value < 0]
    if fallen:
        raise DataError(
            f"{path}: {fallen[0][0]} is lower than in {before}. The server was started anew in between."
        )
    models = sorted({labels["model_name"] for _, labels in map(_key, grown) if "model_name" in labels})
    if len(models) > 1:
        raise DataError(
            f"{path} has counters of several models: {', '.join(models)}. Keep one model's lines."
        )
    drafts, accepted = _total(grown, _DRAFTS), _total(grown, "vllm:spec_decode_num_accepted_tokens")
    if drafts is None or accepted is None:
        raise DataError(
            f"{path}: {_DRAFTS}_total or vllm:spec_decode_num_accepted_tokens_total is not in it, so "
            "the server did not draft. A counter that is missing is not zero."
        )
    drafted = _total(grown, "vllm:spec_decode_num_draft_tokens")
    try:
        _require_sense(drafts, drafted, accepted)
    except BadRow as reason:
        raise DataError(f"{path}: {reason}.") from None
    counts = EngineCounts(
        drafts,
        drafted,
        accepted,
        _total(grown, "vllm:request_success"),
        _total(grown, "vllm:generation_tokens"),
    )
    _add_positions(counts, _positions(grown))
    turn = {"turn": 0, "is_pooled": True, **turn_of(counts)}
    notes = [_MEMORY, _CUT, "ttft_s, decode_tok_per_s: null, since requests may have shared the server"]
    if before is None:
        notes.append(
            "counters since the server's start, warm-up included; --before takes an earlier reading off"
        )
    return Imported(
        format="vllm-metrics",
        conversations=[Told(_ALL, [ReportedTurn(**turn)])],
        target=models[0] if models else None,
        notes=[*notes, *counts.notes],
    )


def _samples(path: Path) -> dict[tuple[str, str], float]:
    """Value of every counter by name and labels; as text, for these files are small."""
    found: dict[tuple[str, str], float] = {}
    plain = plain_file(path)
    for raw in raw_rows(plain.path):
        try:
            sample = _sample(raw)
        except BadRow as reason:
            raise DataError(f"{path}, line {raw.line}: {reason}. Correct the file.") from None
        if sample is not None and sample[0][0].startswith("vllm:") and abs(sample[1]) < 2**63:
            found[sample[0]] = sample[1]
    return found


def _sample(raw: RawRow) -> tuple[tuple[str, str], float] | None:
    """Name, labels and value of a line; None for a remark."""
    if raw.problem:
        raise BadRow(raw.problem)
    try:
        line = raw.content.decode().strip()
    except UnicodeDecodeError as error:
        raise BadRow(f"it is not UTF-8 text (byte {error.start + 1} of the line)") from None
    if not line or line.startswith("#"):
        return None
    match = _SAMPLE.fullmatch(line)
    with suppress(ValueError):
        if match is not None:
            return (match["name"], match["labels"] or ""), float(match["value"])
    raise BadRow(f"{line[:60]!r} is no sample")


def _key(key: tuple[str, str]) -> tuple[str, dict[str, str]]:
    name, labels = key
    return name, dict(_LABEL.findall(labels))


def _total(samples: Mapping[tuple[str, str], float], name: str) -> int | None:
    """A counter summed over its labels; with or without the ending that newer clients add."""
    values = [value for (found, _), value in samples.items() if found in (name, f"{name}_total")]
    return round(sum(values)) if values else None


def _positions(samples: Mapping[tuple[str, str], float]) -> list[int]:
    name = "vllm:spec_decode_num_accepted_tokens_per_pos"
    found: dict[int, float] = {}
    for key, value in samples.items():
        at, labels = _key(key)
        if at in (name, f"{name}_total") and labels.get("position", "").isdigit():
            position = int(labels["position"])
            found[position] = found.get(position, 0.0) + value
    return [round(found.get(position, 0.0)) for position in range(max(found, default=-1) + 1)]
