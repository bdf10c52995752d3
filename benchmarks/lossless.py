"""Whether speculative output is the target's own on every conversation of every shipped suite.

Greedy, live, in float32: each conversation's turns are generated with a drafter and compared with the
target's own tokens. One line a conversation goes to a file that the next call goes on from, however this
one ended; what the file holds of other texts or weights is done again. Prints what is done and what is
left, by suite and context length. All of it takes about three hours on two cores.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from hyflash_bench import load_run
from hyflash_bench.registry import build_drafter
from hyflash_bench.runner.conversation import ConversationRunner
from hyflash_bench.runner.plan import target_id
from hyflash_bench.runner.work import Work, WorkCell
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.sampling import GREEDY
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.suites.catalog import load_suite
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.suites.suite import Suite
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target

SUITES = ("quick", "multiturn", "longctx")
FILE = Path("results/lossless.csv")
SEED, BUDGET = 0, 16


@dataclass(frozen=True)
class Row:
    """A conversation."""

    suite: str
    suite_hash: str
    item_id: str
    target_id: str
    drafter: str
    turns: int
    identical: int
    tokens: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--drafter", default="prompt-lookup")
    parser.add_argument("--minutes", type=float, default=None, help="begin no conversation after so many")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--part", default="1/1", help="K/N: only every Nth conversation, from the Kth on")
    parser.add_argument("--file", type=Path, default=FILE)
    parser.add_argument("--take", type=Path, nargs="*", default=[], help="finished runs to take lines from")
    arguments = parser.parse_args()
    target = load_target(TargetSpec(target=arguments.target, num_threads=arguments.threads))
    suites = [load_suite(name) for name in SUITES]
    hashes = {suite.spec.name: suite.suite_hash for suite in suites}
    done = {row.item_id: row for row in _stored(arguments.file) if _is_of(row, target, hashes)}
    for folder in arguments.take:
        done |= {row.item_id: row for row in _taken(folder) if _is_of(row, target, hashes)}
    _store(arguments.file, done)
    end = None if arguments.minutes is None else time.monotonic() + 60 * arguments.minutes
    part, num_parts = map(int, arguments.part.split("/"))
    for row in _measured(target, suites, arguments.drafter, done, slice(part - 1, None, num_parts)):
        done = {row.item_id: row for row in _stored(arguments.file) if _is_of(row, target, hashes)}
        done[row.item_id] = row
        _store(arguments.file, done)
        print(f"{row.item_id}: {row.identical} of {row.turns} turns identical", flush=True)
        if end is not None and time.monotonic() > end:
            break
    _summarise(target, suites, done)


def _measured(
    target: Target, suites: list[Suite], drafter: str, done: dict[str, Row], part: slice
) -> Iterator[Row]:
    chat = ChatTokenizer(target.tokenizer)
    spec = DrafterSpec.from_text(drafter)
    loaded = build_drafter(spec)
    loaded.load(target.load_context())
    runner = ConversationRunner(target, {spec.label: loaded}, lambda event: None)
    for suite in suites:
        left = [item for item in _items(target, suite) if item.item_id not in done][part]
        if left:
            suite.prepare()
        for item in left:
            work = Work(
                trace_id="lossless",
                suite=suite.spec.name,
                item_id=item.item_id,
                sampling=GREEDY,
                seed=SEED,
                max_new_tokens=suite.max_new_tokens(item.task),
                draft_budget=BUDGET,
                mode="live",
                cells=(WorkCell(cell_id=spec.label, drafter=spec, memory_cap_bytes=None, repeat=0),),
            )
            turns = runner.run(work, suite.build(item, chat)).conversations[0].turns
            yield Row(
                suite.spec.name,
                suite.suite_hash,
                item.item_id,
                _identity(target),
                spec.label,
                len(turns),
                sum(turn.lossless == "identical" for turn in turns),
                sum(turn.num_output_tokens for turn in turns),
            )


def _items(target: Target, suite: Suite) -> list:
    return list(suite.items(max_positions=target.info.max_positions))


def _taken(folder: Path) -> Iterator[Row]:
    """Rows of a greedy live run."""
    turns = load_run(folder).turns
    turns = turns[(turns["mode"] == "live") & (turns["temperature"] == 0) & (turns["status"] == "ok")]
    for (suite, suite_hash, item, target, drafter), rows in turns.groupby(
        ["suite", "suite_hash", "item_id", "target_id", "drafter"], observed=True
    ):
        identical = int((rows["lossless"] == "identical").sum())
        tokens = int(rows["num_output_tokens"].sum())
        yield Row(suite, suite_hash, item, target, drafter, len(rows), identical, tokens)


def _is_of(row: Row, target: Target, hashes: dict[str, str]) -> bool:
    return row.target_id == _identity(target) and hashes.get(row.suite) == row.suite_hash


def _identity(target: Target) -> str:
    return target_id(asdict(target.info))


def _stored(path: Path) -> list[Row]:
    if not path.exists():
        return []
    kinds = {field.name: int if field.type == "int" else str for field in fields(Row)}
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Row(**{name: kinds[name](value) for name, value in line.items()}) for line in csv.DictReader(file)
        ]


def _store(path: Path, done: dict[str, Row]) -> None:
    scratch = path.with_suffix(".tmp")
    with scratch.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in sorted(done.values(), key=lambda row: row.item_id))
    scratch.replace(path)


def _summarise(target: Target, suites: list[Suite], done: dict[str, Row]) -> None:
    for suite in suites:
        planned = Counter(item.context_length for item in _items(target, suite))
        for context, count in sorted(planned.items(), key=lambda pair: pair[0] or 0):
            ids = {item.item_id for item in _items(target, suite) if item.context_length == context}
            rows = [done[item_id] for item_id in ids if item_id in done]
            identical, turns, tokens = (
                sum(getattr(row, name) for row in rows) for name in ("identical", "turns", "tokens")
            )
            where = f"{suite.spec.name} at {context:,} tokens" if context else suite.spec.name
            print(
                f"{where}: {len(rows)} of {count} conversations, {identical} of {turns} turns identical, "
                f"{tokens:,} tokens"
            )


if __name__ == "__main__":
    main()
