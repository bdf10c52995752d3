"""Small files in the forms of other programs, written here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def answer(question: int = 81, *, model: str = "m-eagle2-temperature-0.0", **choice: Any) -> dict[str, Any]:
    """A line of Spec-Bench: two turns of three and two steps."""
    values = {
        "index": 0,
        "turns": ["One.", "Two."],
        "decoding_steps": [3, 2],
        "new_tokens": [7, 10],
        "wall_time": [0.5, 1.5],
        "accept_lengths": [3, 2, 1, 4, 5],
        **choice,
    }
    return {
        "question_id": question, "category": "writing", "answer_id": "x", "model_id": model,
        "choices": [{key: value for key, value in values.items() if value is not None}], "tstamp": 1.0,
    }  # fmt: skip


def medusa(question: int = 81, *, model: str = "medusa-7b", **choice: Any) -> dict[str, Any]:
    """A line of Medusa's: idxs count steps from 0, and there is no category."""
    values = {"turns": ["One."], "idxs": [3], "new_tokens": [10], "wall_time": [0.5], **choice}
    return {"question_id": question, "answer_id": "x", "model_id": model, "choices": [{"index": 0, **values}]}


def bench(**changes: Any) -> dict[str, Any]:
    """vLLM's result over two requests: 20 drafts of 3 tokens, 40 accepted, 62 output tokens."""
    values = {
        "model_id": "m", "max_concurrency": 1, "completed": 2, "duration": 3.0, "mean_ttft_ms": 150.0,
        "total_input_tokens": 10, "total_output_tokens": 62, "input_lens": [4, 6], "output_lens": [31, 31],
        "ttfts": [0.1, 0.2], "itls": [[0.1] * 10, [0.2] * 10], "errors": ["", ""],
        "spec_decode_num_drafts": 20, "spec_decode_draft_tokens": 60, "spec_decode_accepted_tokens": 40,
        "spec_decode_acceptance_rate": 66.7, "spec_decode_acceptance_length": 3.0,
        "spec_decode_per_position_acceptance_rates": [1.0, 0.7, 0.3],
        **changes,
    }  # fmt: skip
    return {key: value for key, value in values.items() if value is not None}


def metrics(factor: int = 1, *, without: str = "-", labels: str = 'engine="0",model_name="m"') -> str:
    """A server's counters after ``factor`` times the work of :func:`bench`."""
    counters = {
        "spec_decode_num_drafts_total": 20, "spec_decode_num_draft_tokens_total": 60,
        "spec_decode_num_accepted_tokens_total": 40, "generation_tokens_total": 62,
    }  # fmt: skip
    lines = ["# HELP vllm:spec_decode_num_drafts_total Number of drafts.", 'python_info{version="3"} 1.0']
    lines += [f"vllm:{name}{{{labels}}} {count * factor}.0" for name, count in counters.items()]
    for position, count in enumerate((20, 14, 6)):
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        lines.append(f'{name}{{{labels},position="{position}"}} {count * factor}.0')
    lines += [
        f"vllm:spec_decode_num_drafts_created{{{labels}}} 1.78e+09",
        f'vllm:request_success_total{{{labels},finished_reason="stop"}} {factor}.0',
        f'vllm:request_success_total{{{labels},finished_reason="length"}} {factor}.0',
        f'vllm:time_to_first_token_seconds_bucket{{{labels},le="+Inf"}} 2.0',
    ]
    return "\n".join(line for line in lines if without not in line) + "\n"


def request(
    number: int = 1, *, phase: str = "profiling", start: int | None = None, **record: Any
) -> dict[str, Any]:
    """A line of aiperf: 4 steps of 3 drafted tokens with 7 accepted; 12 tokens in 0.5 seconds."""
    begin = number * 10**9 if start is None else start
    values = {
        "engine": "vllm", "mean_acceptance_length": 2.75, "draft_acceptance_rate": 7 / 12,
        "acceptance_histogram": {"0": 1, "1": 1, "3": 2}, "num_accepted_draft_tokens": 7,
        "num_draft_tokens": 12, "num_spec_steps": 4, "num_spec_tokens": 3, **record,
    }  # fmt: skip
    metrics_ = {
        "time_to_first_token": {"value": 100.0, "unit": "ms"},
        "request_latency": {"value": 500.0, "unit": "ms"},
        "output_sequence_length": {"value": 12, "unit": "tokens"},
        "input_sequence_length": {"value": 9, "unit": "tokens"},
    }
    about = {"conversation_id": f"c{number}", "turn_index": 0, "benchmark_phase": phase}
    times = {"request_start_ns": begin, "request_end_ns": begin + 5 * 10**8}
    return {
        "metadata": {**about, **times},
        "metrics": metrics_,
        "error": None,
        "spec_decode_acceptance": values,
    }


def write(folder: Path, rows: list[Any] | str, name: str = "results.jsonl") -> Path:
    """Write lines, or a text."""
    path = folder / name
    path.write_text(rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows))
    return path
