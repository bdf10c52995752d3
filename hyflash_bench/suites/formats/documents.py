"""Long texts with questions: LongBench 1 and 2, RULER, L-Eval, QMSum, LoCoMo.

The wordings around the texts are this project's own, so scores are no leaderboard's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hyflash_bench.suites.conversation import Expected, UserTurn
from hyflash_bench.suites.formats.base import BadRow, Entry, Format, Row, name_of

__all__ = ["FORMATS"]

_BRIEFLY = "Answer from the text above, as briefly as you can."
_SUMMARISE = "Summarise the text above in about one page."
_CONTINUED = frozenset({"trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"})
"""LongBench's few-shot and code sets: the input goes on where the context ends."""


def _longbench(row: Row) -> Sequence[Entry]:
    name = row.text("dataset", row.file)
    base = name.removesuffix("_e")
    context, question = row.filled("context"), row.text("input", "").strip()
    expected = None
    if base in _CONTINUED:
        text = f"{context}\n{row.text('input', '')}"
    elif base.startswith("passage_retrieval"):
        text = f"{context}\n\nWhich paragraph above does this sum up? Reply with its name only.\n\n{question}"
        expected = Expected("contains_all", tuple(row.texts("answers")))
    elif base == "passage_count":
        text = f"{context}\n\nHow many different paragraphs are there above? Reply with the number only."
    else:
        text = f"{context}\n\n{_BRIEFLY}\n\n{question}" if question else f"{context}\n\n{_SUMMARISE}"
    return [Entry((UserTurn(text, expected),), row.name("_id"), category=name, document=name_of(context))]


def _longbench_v2(row: Row) -> Sequence[Entry]:
    context = row.filled("context")
    choices = "\n".join(f"{letter}. {row.filled(f'choice_{letter}')}" for letter in "ABCD")
    answer = row.filled("answer").strip()
    if answer not in set("ABCD"):
        raise BadRow(f"key 'answer' is {answer!r}, not A, B, C or D")
    text = (
        f"{context}\n\n{row.filled('question')}\n\n{choices}\n\n"
        "Answer from the text above. Reply with the letter only."
    )
    turn = UserTurn(text, Expected("choice", (answer,)))
    return [Entry((turn,), row.name("_id"), category=row.text("domain", ""), document=name_of(context))]


def _ruler(row: Row) -> Sequence[Entry]:
    """Inputs and predictions alike. Its index is no name: some tasks write other numbers there."""
    rule = "contains_any" if row.file.startswith("qa") else "contains_all"
    expected = Expected(rule, tuple(row.texts("outputs")))  # type: ignore[arg-type]
    text = row.filled("input") + row.text("answer_prefix", "")
    return [Entry((UserTurn(text, expected),), category=row.file)]


def _leval(row: Row) -> Sequence[Entry]:
    """A conversation for each of a document's instructions."""
    document, instructions = row.filled("input"), row.texts("instructions")
    if row.has("outputs") and len(row.fields["outputs"]) != len(instructions):
        raise BadRow(f"{len(instructions)} instructions have {len(row.fields['outputs'])} outputs")
    about = name_of(document)
    return [
        Entry((UserTurn(f"{document}\n\n{text}"),), part=str(number), category=row.file, document=about)
        for number, text in enumerate(instructions, start=1)
    ]


def _qmsum(row: Row) -> Sequence[Entry]:
    """A conversation for each query about a meeting."""
    said = [f"{part.text('speaker')}: {part.text('content')}" for part in row.rows("meeting_transcripts")]
    if not said:
        raise BadRow("key 'meeting_transcripts' is an empty list")
    meeting = "\n".join(said)
    about = name_of(meeting)
    found = []
    for kind in ("general", "specific"):
        queries = row.rows(f"{kind}_query_list") if row.has(f"{kind}_query_list") else []
        for number, query in enumerate(queries, start=1):
            text = f"{meeting}\n\n{_BRIEFLY}\n\n{query.filled('query')}"
            part = f"{kind}-{number}"
            found.append(Entry((UserTurn(text),), part=part, category=kind, document=about))
    if not found:
        raise BadRow("it has no query: general_query_list and specific_query_list are empty")
    return found


_LOCOMO = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}


def _locomo(row: Row) -> Sequence[Entry]:
    """A conversation for each question about the months of talk of two people."""
    talk = _sessions(row.row("conversation"))
    key, about = row.name("sample_id"), name_of(talk)
    found = []
    for number, question in enumerate(row.rows("qa"), start=1):
        label = question.fields.get("category")
        text = f"{talk}\n\n{_BRIEFLY}\n\n{question.filled('question')}"
        category = _LOCOMO.get(label, "") if isinstance(label, int) else ""
        found.append(Entry((UserTurn(text),), key, str(number), category, document=about))
    if not found:
        raise BadRow("key 'qa' is an empty list")
    return found


def _sessions(conversation: Row) -> str:
    found = (re.fullmatch(r"session_(\d{1,6})", key, re.ASCII) for key in conversation.fields)
    numbers = sorted(int(match[1]) for match in found if match)
    if not numbers:
        raise BadRow("key 'conversation' has no session_1")
    parts = []
    for number in numbers:
        date = conversation.text(f"session_{number}_date_time", "")
        said = [_utterance(each) for each in conversation.rows(f"session_{number}")]
        parts.append("\n".join(filter(None, [date, *said])))
    return "\n\n".join(parts)


def _utterance(said: Row) -> str:
    """What one says; of a picture, what it shows."""
    picture = f" [shows {said.text('blip_caption')}]" if said.has("blip_caption") else ""
    return f"{said.text('speaker')}: {said.text('text')}{picture}"


FORMATS = (
    Format("longbench", "input, context, answers, dataset, _id", _longbench),
    Format("longbench-v2", "_id, domain, question, choice_A..D, answer, context", _longbench_v2),
    Format("ruler", "input, outputs, answer_prefix?; predictions too", _ruler),
    Format("l-eval", "instructions, outputs, input, evaluation", _leval),
    Format("qmsum", "meeting_transcripts, general_query_list, specific_query_list", _qmsum),
    Format("locomo", "sample_id, conversation: session_1.., qa", _locomo),
)
