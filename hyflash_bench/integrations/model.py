"""lm-eval's view of one drafter: what it asks becomes prompts and pairs of texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hyflash_bench.errors import MissingDependency, UsageError
from hyflash_bench.integrations.likelihood import Likelihood
from hyflash_bench.integrations.prompts import Ask, Origin, Prompt
from hyflash_bench.integrations.replies import Replies
from hyflash_bench.spec.sampling import Sampling

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.models.utils import normalize_gen_kwargs
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
except ImportError as error:
    raise MissingDependency(
        f"lm-eval cannot be imported ({error}). Install it with: pip install 'hyflash-bench[lm-eval]'"
    ) from error

__all__ = ["MAX_GEN_TOKS", "ReplyLM"]

MAX_GEN_TOKS = 256
"""Where a task does not say; as lm-eval's own models have it."""

_SAMPLED = ("temperature", "top_k", "top_p")
_UNDERSTOOD = {"until", "max_gen_toks", "do_sample", *_SAMPLED}
_IDLE = {"num_beams": 1, "repetition_penalty": 1.0, "min_p": 0.0, "top_k": 0, "top_p": 1.0}
"""Values at which an option changes nothing."""


class ReplyLM(TemplateLM):  # type: ignore[misc]
    """Generation by the real loop with one drafter, likelihoods by the target.

    Replies are written one after the other, since that is what is measured; of texts that are only scored,
    those with one context go together. Either kind comes in the order that shares most of the KV cache.

    Args:
        replies: Answers prompts; may serve several drafters.
        likelihood: Scores text; may be shared as well.
        drafter: Label of the one whose replies are returned.
        max_gen_toks: Most tokens of a reply where the task does not say.
        add_bos_token: Begin every prompt as the tokenizer does by itself.
        on_done: Told of every request that has its answer, by a name that no other has.
    """

    def __init__(
        self,
        replies: Replies,
        likelihood: Likelihood,
        drafter: str,
        *,
        max_gen_toks: int = MAX_GEN_TOKS,
        add_bos_token: bool = False,
        on_done: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        self.replies = replies
        self.tokenizer = replies.target.tokenizer
        self.max_length = replies.target.info.max_positions
        self.max_gen_toks = max_gen_toks
        self._likelihood = likelihood
        self._drafter = drafter
        self._add_bos_token = add_bos_token
        self._on_done = on_done
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
        prompts, takes = [], Counter[str]()
        for request in requests:
            context, options = request.args
            origin = _origin(request)
            tokens = self.tok_encode(context) or [self.prefix_token_id]
            prompts.append(Prompt(tuple(tokens), self._ask(options, takes[origin.item_id]), origin))
            takes[origin.item_id] += 1
        texts: dict[int, str] = {}  # by place among the requests
        for index, text in self.replies.answer(self._drafter, prompts):
            texts[index] = text
            self._done("generate_until", requests[index].args, text, prompts[index].item_id)
        return [texts[index] for index in range(len(prompts))]

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        """Log-likelihood of continuations, and whether each is the target's own."""
        return list(super().loglikelihood(requests, disable_tqdm=disable_tqdm))

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Log-likelihood of whole texts, in windows as long as the target allows."""
        windows = [
            (index, context, wanted)
            for index, request in enumerate(requests)
            for context, wanted in self._windows(request)
        ]
        left = Counter(index for index, _, _ in windows)
        totals = [0.0] * len(requests)
        for index in sorted(set(range(len(requests))) - set(left)):  # empty texts
            self._done("loglikelihood_rolling", requests[index].args, 0.0, f"loglikelihood_rolling {index}")
        for place, scored in self._likelihood.score([(context, wanted) for _, context, wanted in windows]):
            index = windows[place][0]
            totals[index] += scored.logprob
            left[index] -= 1
            if not left[index]:
                self._done(
                    "loglikelihood_rolling",
                    requests[index].args,
                    totals[index],
                    f"loglikelihood_rolling {index}",
                )
        return totals

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        pairs = [(context or [self.prefix_token_id], wanted) for _, context, wanted in requests]
        found: dict[int, tuple[float, bool]] = {}
        for index, scored in self._likelihood.score(pairs):
            found[index] = (scored.logprob, scored.is_greedy)
            self._done("loglikelihood", requests[index][0], found[index], f"loglikelihood {index}")
        return [found[index] for index in range(len(pairs))]

    def _windows(self, request: Any) -> list[tuple[list[int], list[int]]]:
        (text,) = request.args
        found = get_rolling_token_windows(
            token_list=self.tok_encode(text),
            prefix_token=self.prefix_token_id,
            max_seq_len=self.max_length,
            context_len=1,
        )
        return [make_disjoint_window(window) for window in found]

    def _done(self, kind: str, args: Any, answer: Any, name: str) -> None:
        """Have lm-eval's own cache know an answer as soon as it is there."""
        self.cache_hook.add_partial(kind, args, answer)
        if self._on_done is not None:
            self._on_done(name)

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


def _origin(request: Any) -> Origin:
    """Where a request comes from; RULER's documents say for which length they were made."""
    task, document = str(request.task_name), request.doc if isinstance(request.doc, Mapping) else {}
    rung = document.get("max_length")
    name = f"{task}/{request.doc_id}" + (f"/{request.idx}" if request.idx else "")
    return Origin(task, name, rung if isinstance(rung, int) else None)
