"""The lm-eval model ``hyflash-bench``: a target that generates through a drafter.

``lm_eval --model hyflash-bench --model_args target=smollm2-135m,drafter=suffix --tasks ...``

lm-eval knows its models by a registry of its own and has no entry points for them. So importing this
module registers the model, and :mod:`hyflash_bench.integrations.plug` has it found by the command.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from hyflash_bench.errors import UsageError
from hyflash_bench.integrations.likelihood import Likelihood
from hyflash_bench.integrations.model import MAX_GEN_TOKS, ReplyLM  # first: it says what is missing
from hyflash_bench.integrations.replies import Replies
from hyflash_bench.registry import build_drafter
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target

from lm_eval.api.registry import register_model  # isort: skip
from tqdm import tqdm  # isort: skip

__all__ = ["MODEL", "HyFlashLM"]

MODEL = "hyflash-bench"

_log = logging.getLogger("lm_eval.hyflash_bench")


class HyFlashLM(ReplyLM):
    """A target with one drafter, made from ``--model_args``.

    Args:
        drafter: As for ``run``: a name, ``name:key=value`` or a checkpoint's folder. With several options
            give ``--model_args`` as JSON, since lm-eval splits its own arguments at commas.
        draft_budget: Most tokens of a draft.
        max_gen_toks: Most tokens of a reply where the task does not say.
        add_bos_token: Begin every prompt as the tokenizer does by itself.
        tokenizer: Read by tasks that make their own texts (RULER), not here.
        device: lm-eval's ``--device``, which is cuda:0 where nobody gives one; ``backend=`` wins over it.
        batch_size: Most continuations of one context that are scored in one pass; ``auto`` for as many as
            fit. Replies are written one after the other, whatever it says.
        max_batch_size: Most of them with ``auto``.
        options: Fields of :class:`~hyflash_bench.spec.target.TargetSpec`: target, dtype, kv_dtype ...
    """

    def __init__(
        self,
        drafter: str = "autoregressive",
        *,
        draft_budget: int = 16,
        max_gen_toks: int = MAX_GEN_TOKS,
        add_bos_token: bool = False,
        tokenizer: str | None = None,
        device: str | None = None,
        batch_size: int | str | None = 1,
        max_batch_size: int | None = None,
        **options: Any,
    ) -> None:
        together = _batch_size(batch_size, max_batch_size)
        given = {**_backend(device), **options}
        target = load_target(TargetSpec.parse(given, "--model_args"))
        spec = DrafterSpec.from_text(drafter)
        loaded = build_drafter(spec)
        loaded.load(target.load_context())
        replies = Replies(target, {spec.label: loaded}, draft_budget=draft_budget)
        super().__init__(
            replies,
            Likelihood(target, batch_size=together),
            spec.label,
            max_gen_toks=max_gen_toks,
            add_bos_token=add_bos_token,
        )

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Replies, in the order of the requests; then what the drafter achieved, as a log line."""
        with self._bar(requests, disable_tqdm):
            texts = super().generate_until(requests)
        for (task, label), tally in self.replies.tallies.items():
            _log.info("%s with %s: %s", task, label, tally)
        return texts

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Log-likelihood of continuations, and whether each is the target's own."""
        with self._bar(requests, disable_tqdm):
            return super().loglikelihood(requests)

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Log-likelihood of whole texts, in windows as long as the target allows."""
        with self._bar(requests, disable_tqdm):
            return super().loglikelihood_rolling(requests)

    def get_model_info(self) -> dict[str, Any]:
        """What lm-eval stores with its results."""
        return {"drafter": self._drafter, "target": self.replies.target.info.to_json()}

    @contextmanager
    def _bar(self, requests: Sequence[Any], is_hidden: bool) -> Iterator[None]:
        """Progress as lm-eval's own models show it."""
        with tqdm(total=len(requests), desc="Requests answered", disable=is_hidden) as bar:
            self._on_done = lambda _: bar.update()
            yield


def _batch_size(given: int | str | None, most: int | None) -> int | None:
    """Continuations that are scored together; None for as many as fit.

    Raises:
        UsageError: It is no whole number from 1, and not ``auto``.
    """
    text = str(given)
    if given is None or text.partition(":")[0] == "auto":  # auto:N has lm-eval look again N times
        return most
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"batch_size={text}: give a whole number from 1, or auto for as many as fit.")
    return int(text)


def _backend(device: str | None) -> dict[str, str]:
    """What lm-eval's device means here: a GPU that is not there was not asked for but is its default."""
    is_absent = device is not None and device.startswith("cuda") and not torch.cuda.is_available()
    return {} if device is None or is_absent else {"backend": device}


register_model(MODEL)(HyFlashLM)
