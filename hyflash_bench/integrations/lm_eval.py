"""The lm-eval model ``hyflash-bench``: a target that generates through a drafter.

``lm_eval --model hyflash-bench --model_args target=smollm2-135m,drafter=suffix --tasks ...``

lm-eval knows its models by a registry of its own and has no entry points for them. So importing this
module registers the model, and :mod:`hyflash_bench.integrations.plug` has it found by the command.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hyflash_bench.errors import MissingDependency, UsageError
from hyflash_bench.integrations.likelihood import Likelihood
from hyflash_bench.integrations.replies import Ask, Origin, Replies
from hyflash_bench.registry import build_drafter
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.sampling import Sampling
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
    from lm_eval.models.utils import normalize_gen_kwargs
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
except ImportError as error:
    raise MissingDependency(
        f"lm-eval cannot be imported ({error}). Install it with: pip install 'hyflash-bench[lm-eval]'"
    ) from error

__all__ = ["MODEL", "HyFlashLM", "ReplyLM"]

MODEL = "hyflash-bench"
MAX_GEN_TOKS = 256
"""Where a task does not say; as lm-eval's own models have it."""

_SAMPLED = ("temperature", "top_k", "top_p")
_UNDERSTOOD = {"until", "max_gen_toks", "do_sample", *_SAMPLED}
_IDLE = {"num_beams": 1, "repetition_penalty": 1.0, "min_p": 0.0, "top_k": 0, "top_p": 1.0}
"""Values at which an option changes nothing."""

_log = logging.getLogger("lm_eval.hyflash_bench")


class ReplyLM(TemplateLM):  # type: ignore[misc]
    """lm-eval's view of one drafter: generation by the real loop, likelihoods by the target.

    Requests go one after the other, the longest first, through one KV cache; likelihoods in the order in
    which they share most of it.

    Args:
        replies: Answers prompts; may serve several drafters.
        likelihood: Scores text; may be shared as well.
        drafter: Label of the one whose replies are returned.
        max_gen_toks: Most tokens of a reply where the task does not say.
        add_bos_token: Begin every prompt as the tokenizer does by itself.
    """

    def __init__(
        self,
        replies: Replies,
        likelihood: Likelihood,
        drafter: str,
        *,
        max_gen_toks: int = MAX_GEN_TOKS,
        add_bos_token: bool = False,
    ) -> None:
        super().__init__()
        self.replies = replies
        self.tokenizer = replies.target.tokenizer
        self.max_length = replies.target.info.max_positions
        self.max_gen_toks = max_gen_toks
        self._likelihood = likelihood
        self._drafter = drafter
        self._add_bos_token = add_bos_token
        self._device = replies.target.device

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        """What stands before a text that has no context."""
        bos = self.tokenizer.bos_token_id
        return self.eot_token_id if bos is None else int(bos)

    @property
    def tokenizer_name(self) -> str:
        """Names lm-eval's cache of requests."""
        return str(self.replies.target.info.fingerprint.tokenizer)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Token ids of a text."""
        special = self._add_bos_token if add_special_tokens is None else add_special_tokens
        return list(self.tokenizer.encode(string, add_special_tokens=special))

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """A conversation as the target's template writes it."""
        return str(
            self.tokenizer.apply_chat_template(
                chat_history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
        )

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Replies, in the order of the requests."""
        asked = []
        takes: Counter[str] = Counter()
        for request in requests:
            context, options = request.args
            origin = _origin(request)
            ask = self._ask(options, takes[origin.item_id])
            takes[origin.item_id] += 1
            prompt = self.tok_encode(context) or [self.prefix_token_id]
            self.replies.check(len(prompt), ask.max_new_tokens)
            asked.append((prompt, ask, origin))
        texts: dict[int, str] = {}  # by place among the requests
        for index in sorted(range(len(asked)), key=lambda i: (-len(asked[i][0]), asked[i][0])):
            texts[index] = self.replies.text(self._drafter, *asked[index])
            self.cache_hook.add_partial("generate_until", requests[index].args, texts[index])
        return [texts[index] for index in range(len(asked))]

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        """Log-likelihood of continuations, and whether each is the target's own."""
        return list(super().loglikelihood(requests, disable_tqdm=disable_tqdm))

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Log-likelihood of whole texts, in windows as long as the target allows."""
        windows: list[list[tuple[list[int], list[int]]]] = []
        for (text,) in (request.args for request in requests):
            found = get_rolling_token_windows(
                token_list=self.tok_encode(text),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            windows.append([make_disjoint_window(window) for window in found])
        scored = iter(self._likelihood.score_all([pair for each in windows for pair in each]))
        totals = [sum(next(scored).logprob for _ in each) for each in windows]
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        scored = self._likelihood.score_all([(context, wanted) for _, context, wanted in requests])
        for request, score in zip(requests, scored, strict=True):
            self.cache_hook.add_partial("loglikelihood", request[0], (score.logprob, score.is_greedy))
        return [(score.logprob, score.is_greedy) for score in scored]

    def _ask(self, options: Mapping[str, Any], take: int) -> Ask:
        given = normalize_gen_kwargs(dict(options), self.max_gen_toks)
        active = {
            name: value for name, value in given.items() if value is not None and _IDLE.get(name) != value
        }
        unknown = sorted(set(active) - _UNDERSTOOD)
        if unknown:
            raise UsageError(
                f"The task asks for {unknown[0]}={active[unknown[0]]!r}, which is not offered here. "
                f"Understood: {', '.join(sorted(_UNDERSTOOD))}. Override it with --gen_kwargs."
            )
        until = given.get("until") or ()
        until = (until,) if isinstance(until, str) else tuple(until)
        is_drawn = bool(given.get("do_sample")) and bool(given.get("temperature"))
        names = [name for name in _SAMPLED if is_drawn and name in active]
        sampling = Sampling.parse({name: active[name] for name in names}, "gen_kwargs")
        return Ask(int(given["max_gen_toks"]), until, sampling, take)


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
        batch_size: Taken since lm-eval gives it; requests go one after the other.
        max_batch_size: As batch_size.
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
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        **options: Any,
    ) -> None:
        given = {**_backend(device), **options}
        target = load_target(TargetSpec.parse(given, "--model_args"))
        spec = DrafterSpec.from_text(drafter)
        loaded = build_drafter(spec)
        loaded.load(target.load_context())
        replies = Replies(target, {spec.label: loaded}, draft_budget=draft_budget)
        super().__init__(
            replies,
            Likelihood(target),
            spec.label,
            max_gen_toks=max_gen_toks,
            add_bos_token=add_bos_token,
        )
        if batch_size not in (None, 1, "1"):
            _log.info("batch_size=%s: requests go one after the other, the KV cache is reused", batch_size)

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Replies, in the order of the requests; then what the drafter achieved, as a log line."""
        texts = super().generate_until(requests, disable_tqdm)
        for (task, label), tally in self.replies.tallies.items():
            _log.info("%s with %s: %s", task, label, tally)
        return texts

    def get_model_info(self) -> dict[str, Any]:
        """What lm-eval stores with its results."""
        return {"drafter": self._drafter, "target": self.replies.target.info.to_json()}


def _backend(device: str | None) -> dict[str, str]:
    """What lm-eval's device means here: a GPU that is not there was not asked for but is its default."""
    is_absent = device is not None and device.startswith("cuda") and not torch.cuda.is_available()
    return {} if device is None or is_absent else {"backend": device}


def _origin(request: Any) -> Origin:
    """Where a request comes from; RULER's documents say for which length they were made."""
    task, document = str(request.task_name), request.doc if isinstance(request.doc, Mapping) else {}
    rung = document.get("max_length")
    name = f"{task}/{request.doc_id}" + (f"/{request.idx}" if request.idx else "")
    return Origin(task, name, rung if isinstance(rung, int) else None)


register_model(MODEL)(HyFlashLM)
