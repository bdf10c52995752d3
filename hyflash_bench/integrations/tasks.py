"""Tasks of lm-eval: by name, ready to be asked, without a word of theirs on stdout."""

from __future__ import annotations

import io
import logging
import math
import os
import random
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from hyflash_bench.errors import ContextTooLong, DownloadError, HyFlashError, MissingDependency, UsageError

try:
    import lm_eval.tasks
    from lm_eval.tasks import TaskManager
except ImportError as error:
    raise MissingDependency(
        f"lm-eval cannot be imported ({error}). Install it with: pip install 'hyflash-bench[lm-eval]'"
    ) from error

__all__ = ["OFFLINE_TASKS", "SHORTEST", "TaskRequest", "hushed", "load_tasks", "reseed"]

OFFLINE_TASKS = ("niah_single_1", "niah_multikey_2", "ruler_vt", "ruler_cwe", "ruler_fwe")
"""RULER tasks that make their own texts and download nothing."""

SHORTEST = {
    "ruler_vt": 1024,
    "ruler_cwe": 1024,
    "ruler_fwe": 256,
    "niah_single_1": 256,
    "niah_multikey_2": 256,
}
"""Below these lengths RULER's generators find no text that fits, and search for ever or give up.

For tokenizers of at most :data:`TOKENS_PER_WORD`; the lengths grow with the tokens of a word.
"""

TOKENS_PER_WORD = 1.5

_SHORT_NAMES = {"vt": "ruler_vt", "cwe": "ruler_cwe", "fwe": "ruler_fwe"}
_RULER = Path(lm_eval.tasks.__file__).parent / "ruler"
_SENTENCE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
_OFFLINE = ("HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE")


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """Which tasks, and how their texts are made.

    Attributes:
        names: Tasks, groups or tags; ``vt``, ``cwe`` and ``fwe`` stand for RULER's.
        include_path: Folders with tasks of one's own.
        lengths: Context lengths of tasks that make their texts, in tokens.
        num_fewshot: Examples before each question; None leaves it to the task.
        max_new_tokens: Most tokens of a reply; None leaves it to the task.
        seed: Of the texts.
    """

    names: tuple[str, ...]
    include_path: tuple[Path, ...] = ()
    lengths: tuple[int, ...] = ()
    num_fewshot: int | None = None
    max_new_tokens: int | None = None
    seed: int = 0


def load_tasks(request: TaskRequest, tokenizer: Any, max_positions: int | None) -> dict[str, Any]:
    """Build tasks as :func:`lm_eval.evaluator.evaluate` takes them.

    Args:
        request: What is wanted.
        tokenizer: Of the target: RULER measures its texts with it.
        max_positions: Longest context that the target was made for; None for any.

    Raises:
        UsageError: A folder or a task that is not there, or a length that a task cannot be made for.
        ContextTooLong: A length past the target's limit.
        DownloadError: A task needs a data set that is not here.
    """
    _check_lengths(request.lengths, max_positions)
    for folder in request.include_path:
        if not folder.is_dir():
            raise UsageError(
                f"--include-path {folder}: there is no such folder. Give one that holds task YAML."
            )
    found: dict[str, Any] = {"tasks": {}, "groups": {}, "group_map": {}}
    with tempfile.TemporaryDirectory() as saved:
        tokenizer.save_pretrained(saved)  # RULER loads it by itself
        metadata: dict[str, Any] = {"tokenizer": saved}
        if request.lengths:
            metadata["max_seq_lengths"] = list(request.lengths)
        manager = _manager(request, metadata)
        names = _matched(request, manager)
        for name in names:
            _check_length(name, request.lengths, tokenizer)
        for name in names:
            for part, values in _load(name, request, manager).items():
                found[part].update(values)
    for task in found["tasks"].values():
        _prepare(task, request)
    return found


def reseed(tasks: Iterable[Any], seed: int) -> None:
    """Have the same examples drawn as the last time: they stand in the prompts."""
    for task in tasks:
        task.set_fewshot_seed(seed=seed)


@contextmanager
def hushed(*, with_bars: bool = True) -> Iterator[None]:
    """Keep what lm-eval and its tasks print out of the terminal; errors pass.

    Args:
        with_bars: Stderr too, which hides all else that is written there in the meantime.
    """
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with ExitStack() as stack:
            stack.enter_context(redirect_stdout(io.StringIO()))
            if with_bars:
                stack.enter_context(redirect_stderr(io.StringIO()))
            yield
    finally:
        logger.setLevel(level)


def _manager(request: TaskRequest, metadata: dict[str, Any]) -> Any:
    """Where names are looked up: reading all of lm-eval's thousands of tasks only if need be."""
    own = [str(folder) for folder in request.include_path]
    with hushed():
        few = TaskManager(include_path=[str(_RULER), *own], include_defaults=False, metadata=metadata)
        if all(few.match_tasks([_SHORT_NAMES.get(name, name)]) for name in request.names):
            return few
        return TaskManager(include_path=own, metadata=metadata)


def _check_lengths(lengths: Sequence[int], max_positions: int | None) -> None:
    for length in lengths:
        if max_positions is not None and length > max_positions:
            raise ContextTooLong(
                f"--length {length}: the target was made for {max_positions:,} positions. "
                "Choose a shorter length, or add --extrapolate."
            )


def _matched(request: TaskRequest, manager: Any) -> list[str]:
    """Names that lm-eval knows; patterns are spelt out."""
    names: list[str] = []
    for given in request.names:
        wanted = _SHORT_NAMES.get(given, given)
        matches = manager.match_tasks([wanted])
        if not matches:
            raise _unknown(given, manager)
        names += [match for match in matches if match not in names]
    return names


def _check_length(name: str, lengths: Sequence[int], tokenizer: Any) -> None:
    per_word = len(tokenizer.encode(_SENTENCE, add_special_tokens=False)) / len(_SENTENCE.split())
    least = math.ceil(SHORTEST.get(name, 0) * max(1.0, per_word / TOKENS_PER_WORD))
    for length in lengths:
        if length < least:
            raise UsageError(
                f"--length {length}: {name} cannot be made shorter than {least:,} of this target's tokens."
            )


def _unknown(given: str, manager: Any) -> UsageError:
    near = get_close_matches(given, [*manager.all_tasks, *_SHORT_NAMES], n=5, cutoff=0.5)
    offer = f" Nearest: {', '.join(near)}." if near else ""
    return UsageError(
        f"Unknown task {given!r}.{offer} These run without a download: {', '.join(OFFLINE_TASKS)}. "
        "All are listed by: lm_eval ls tasks. Tasks of your own are found with --include-path FOLDER."
    )


def _load(name: str, request: TaskRequest, manager: Any) -> dict[str, Any]:
    random.seed(request.seed)
    np.random.seed(request.seed)  # RULER draws from the global generators
    try:
        with hushed():
            return dict(manager.load([name]))
    except HyFlashError:
        raise
    except ImportError as error:
        raise MissingDependency(f"Task {name} needs a package that is not installed: {error}") from error
    except OSError as error:  # what datasets raises without a network, and for files that are not there
        off = [variable for variable in _OFFLINE if os.environ.get(variable)]
        why = f"{' and '.join(off)} forbid the network" if off else "the hub cannot be reached"
        raise DownloadError(
            f"Task {name} needs a data set that is not on this machine, and {why}: {_line(error)}. Fetch it "
            f"once with a network, or use tasks that need none: {', '.join(OFFLINE_TASKS)}."
        ) from error
    except Exception as error:  # a task is a program of somebody's
        raise UsageError(f"Task {name} cannot be made: {type(error).__name__}: {_line(error)}") from error


def _prepare(task: Any, request: TaskRequest) -> None:
    if request.num_fewshot is not None and task.get_config("num_fewshot") != 0:
        task.set_config(key="num_fewshot", value=request.num_fewshot)
    elif task.get_config("num_fewshot") is None:
        task.set_config(key="num_fewshot", value=0)
    if request.max_new_tokens is not None and task.OUTPUT_TYPE == "generate_until":
        limit = {"max_gen_toks": request.max_new_tokens}
        task.set_config(key="generation_kwargs", value=limit, update=True)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:400]
