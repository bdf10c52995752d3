"""Everything that a training works with, made ready from its plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch

from hyflash_bench.data import expanded
from hyflash_bench.drafters.base import Requires
from hyflash_bench.drafters.networks.network import DraftNetwork, TargetShape
from hyflash_bench.errors import DataError, SpecError
from hyflash_bench.targets.load import load_target
from hyflash_bench.targets.target import Target
from hyflash_bench.training.batches import Feeder
from hyflash_bench.training.contexts import ContextExam
from hyflash_bench.training.corpus.manifest import Manifest
from hyflash_bench.training.corpus.store import Corpus
from hyflash_bench.training.evaluate import Exam
from hyflash_bench.training.features import Documents, FeatureStore, OnDocument, are_kept
from hyflash_bench.training.plan import TrainingPlan
from hyflash_bench.training.pupil import Pupil
from hyflash_bench.training.roster import Entry, enlist
from hyflash_bench.training.start import first_network
from hyflash_bench.training.stream import Anchoring, Document, Packing, Stream
from hyflash_bench.training.team import ALONE, Team
from hyflash_bench.training.warm_start import first_segments, indices_of, warm_start

__all__ = ["Session", "has_fast_bfloat16", "open_corpus", "open_target"]

_GREEDY_ROLE = 2
_TOLD_STEPS = 64
"""Whose anchors are counted to tell how many of them are deep in their documents."""


def open_target(plan: TrainingPlan) -> Target:
    """Load the target in the precision that its features are computed in."""
    dtype = _kept_or_fast(plan) if plan.feature_dtype == "auto" else plan.feature_dtype
    return load_target(plan.target_spec.model_copy(update={"dtype": dtype}))


def _kept_or_fast(plan: TrainingPlan) -> str:
    """What is fast here, unless the corpus has been read in another precision, whole, and not in this one."""
    fast, other = ("bfloat16", "float32") if has_fast_bfloat16(plan.backend) else ("float32", "bfloat16")
    manifest = Manifest.read(expanded(plan.corpus))
    weights, shards = manifest.target.weights, manifest.shards.values()
    is_begun = any(are_kept(digest, weights, fast) for digest in shards)
    is_kept = bool(shards) and all(are_kept(digest, weights, other, whole=True) for digest in shards)
    return other if is_kept and not is_begun else fast


def open_corpus(plan: TrainingPlan, target: Target) -> Corpus:
    """Open the corpus of a plan.

    Raises:
        DataError: No corpus, a damaged or empty one, or one of another target.
    """
    return Corpus.open(expanded(plan.corpus), target.info)


@dataclass(slots=True)
class Session:
    """A training, ready to run.

    Attributes:
        plan: What was asked for.
        target: The loaded target.
        corpus: The text.
        entries: The drafters' configurations.
        pupils: The drafters in training.
        store: Features of the corpus.
        stream: What to train on.
        feeder: Makes lessons of it.
        exam: What to evaluate on.
        contexts: What to evaluate on at the end, by how much stands before.
        held_out: Documents that are not trained on.
        team: Processes that train together.
    """

    plan: TrainingPlan
    target: Target
    corpus: Documents
    entries: list[Entry]
    pupils: list[Pupil]
    store: FeatureStore
    stream: Stream
    feeder: Feeder
    exam: Exam
    contexts: ContextExam
    held_out: list[int]
    team: Team = ALONE

    @classmethod
    def open(
        cls,
        plan: TrainingPlan,
        target: Target,
        corpus: Documents,
        *,
        is_new: bool = False,
        team: Team = ALONE,
        on_document: OnDocument = lambda done, of: None,
    ) -> Self:
        """Make everything ready.

        Args:
            plan: What was asked for.
            target: Loaded.
            corpus: Opened.
            is_new: Nothing is to be restored: networks get the best start there is.
            team: Processes that train together.
            on_document: Told how many documents have been read for that start, and of how many.

        Raises:
            SpecError: A drafter's options make no sense.
            DataError: The corpus has nothing to train on or to hold out.
            DrafterError: A checkpoint to start from does not fit.
        """
        entries = enlist(plan, TargetShape.of(target.load_context()))
        frequent = _frequent_ids(corpus, target, plan.draft_vocab_size)
        starts = [first_network(entry, plan, target, frequent) for entry in entries]
        networks = [network for network, _ in starts]
        draft_ids = _shared_ids(networks, entries)
        autocast = torch.bfloat16 if _wants_bfloat16(plan) else None
        pupils = [
            Pupil(entry, network, plan, autocast, team, origin)
            for entry, (network, origin) in zip(entries, starts, strict=True)
        ]
        requires = Requires()
        for network in networks:
            requires |= network.requires
        train, held_out = _split(corpus, plan)
        store = FeatureStore(corpus, target, requires)
        packing = Packing(plan.segment_tokens, plan.max_segment_tokens, plan.long_share)
        anchoring = Anchoring(plan.num_anchors, plan.memory_rows, plan.min_context_share)
        documents = _documents(corpus, store, train, plan.roles, plan.repeat_share)
        stream = Stream(documents, packing, anchoring, plan.seed)
        feeder = Feeder(
            corpus,
            store,
            target.model.get_output_embeddings().weight,
            draft_ids,
            num_slots=max(entry.config.num_slots for entry in entries),
            roles=plan.roles,
            token_share=plan.token_share,
            softcap=getattr(target.model.config, "final_logit_softcapping", None),
        )
        unfitted = [pupil for pupil in pupils if pupil.origin is None or pupil.origin.new]
        if is_new and unfitted:
            segments = first_segments(stream)
            _fill(store, indices_of(stream, segments), team, on_document)
            warm_start(unfitted, stream, segments, feeder)
        for pupil in pupils:
            team.align(pupil.network.parameters())
            pupil.begin_average()
        examined = _exam_documents(corpus, store, held_out, plan)
        exam = Exam(examined, plan, feeder)
        contexts = ContextExam(examined, plan, feeder, max(entry.config.num_slots for entry in entries))
        if is_new and team.size > 1:
            _fill(store, exam.document_indices, team, on_document)
        return cls(
            plan, target, corpus, entries, pupils, store, stream, feeder, exam, contexts, held_out, team
        )

    @property
    def uses_bfloat16(self) -> bool:
        """Whether the drafters' passes run in bfloat16."""
        return _wants_bfloat16(self.plan)

    def describe(self) -> list[str]:
        """Documents, steps and disk, for people."""
        documents = (
            f"{len(self.stream.documents)} documents to learn from, {len(self.held_out)} held out, "
            f"{self.store.num_rows:,} tokens in all; {self.stream.epoch_steps} steps go through them once."
        )
        share = self.stream.deep_share(_TOLD_STEPS)
        anchors = f"{share:.0%} of the anchors have {self.plan.memory_rows} tokens or more before them."
        lines = [documents, anchors, self.store.describe()]
        num_gpus = torch.cuda.device_count() if self.plan.backend == "cuda" else 0
        if self.team.size > 1:
            lines.append(f"{self.team.size} processes take each step together.")
        elif num_gpus > 1:
            lines.append(
                f"One of {num_gpus} GPUs is used. For all of them: "
                f"accelerate launch --num_processes {num_gpus} -m hyflash_bench train ..."
            )
        return lines

    @property
    def facts(self) -> dict[str, Any]:
        """What must be the same when a training goes on."""
        return {
            "corpus": self.corpus.hash,
            "target": self.target.info.fingerprint.weights,
            "tokenizer": self.target.info.fingerprint.tokenizer,
        }


def _fill(store: FeatureStore, documents: Sequence[int], team: Team, on_document: OnDocument) -> None:
    """Compute features that all processes will read, each its share of them."""
    store.fill(documents[team.index :: team.size], on_document)
    team.wait()


def _frequent_ids(corpus: Documents, target: Target, size: int) -> list[int]:
    """The most frequent tokens, those that end a reply always among them."""
    vocab_size = target.info.vocab_size
    if size > vocab_size:
        raise SpecError(f"draft_vocab_size {size} exceeds the target's {vocab_size} tokens. Ask for fewer.")
    counts = corpus.token_counts().clone()
    counts[list(target.info.eos_token_ids)] = counts.max() + 1
    return torch.argsort(counts, descending=True, stable=True)[:size].tolist()


def _shared_ids(networks: Sequence[DraftNetwork], entries: Sequence[Entry]) -> torch.Tensor:
    """The draft vocabulary; drafters that were started from checkpoints must agree on it."""
    ids = networks[0].head.draft_ids
    for network, entry in zip(networks, entries, strict=True):
        if not torch.equal(network.head.draft_ids, ids):
            raise SpecError(
                f"{entry.label} and {entries[0].label} were trained with different draft vocabularies. "
                "Train them apart."
            )
    return ids


def _split(corpus: Documents, plan: TrainingPlan) -> tuple[list[int], list[int]]:
    """The same for every seed, so that seeds are compared on the same text and none has learnt it."""
    if corpus.num_documents == 0:
        raise DataError(f"The corpus {plan.corpus} is empty. Build it with: hyflash-bench corpus build")
    train, held_out = corpus.split(plan.held_out_share)
    if not train or not held_out:
        raise DataError(
            f"The corpus {plan.corpus} holds {corpus.num_documents} documents, of which {len(train)} fall to "
            f"training and {len(held_out)} to evaluation; neither can be empty. Change --held-out-share "
            f"(now {plan.held_out_share}), or build a larger corpus."
        )
    return train, held_out


def _documents(
    corpus: Documents,
    store: FeatureStore,
    indices: Sequence[int],
    roles: tuple[int, ...],
    repeat_share: float = 1.0,
) -> list[Document]:
    found = []
    for index in indices:
        tokens, by = (side[: store.lengths[index]] for side in corpus.document(index))
        found.append(Document.of(index, by.numpy(), roles, tokens.tolist(), repeat_share))
    return found


def _exam_documents(
    corpus: Documents, store: FeatureStore, indices: Sequence[int], plan: TrainingPlan
) -> list[Document]:
    """Held-out documents with anchors in greedy replies; in all that is scored, where there are none."""
    greedy = _documents(corpus, store, indices, (_GREEDY_ROLE,), plan.repeat_share)
    if any(len(document.candidates) for document in greedy):
        return greedy
    return _documents(corpus, store, indices, plan.roles, plan.repeat_share)


def _wants_bfloat16(plan: TrainingPlan) -> bool:
    if plan.precision == "auto":
        return has_fast_bfloat16(plan.backend)
    return plan.precision == "bfloat16"


def has_fast_bfloat16(backend: str) -> bool:
    """Whether products in bfloat16 are worth it: most GPUs, CPUs with instructions of their own for it."""
    if backend.startswith("cuda"):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    known = (
        getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    )
    return backend == "cpu" and any(ask() for ask in known if ask is not None)
