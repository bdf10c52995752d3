"""What a training corpus is made of: the recipe that ``corpus build`` follows."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from hyflash_bench.spec.base import MAX_COUNT, MAX_SEED, Spec
from hyflash_bench.spec.suite import FileSource, NpmSource, PypiSource

__all__ = [
    "PARTS",
    "AnswersSpec",
    "CorpusRecipe",
    "DocumentsSpec",
    "RowsSource",
    "SelfTalkSpec",
    "TalkSpec",
    "TextSource",
    "TextsSpec",
]

PARTS = ("documents", "answers", "self-talk")
"""Names of the parts, in the order in which they are built: the endless one last."""

_Share = Annotated[float, Field(ge=0.0, le=1.0)]
_Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
_Words = Annotated[str, StringConstraints(min_length=1)]


class TalkSpec(Spec):
    """How the target carries a conversation on by itself, both sides of it."""

    greedy_share: _Share = Field(0.6, description="Conversations whose replies are greedy.")
    reply_temperature: float = Field(0.7, gt=0.0, le=10.0, description="Of the replies that are not.")
    user_temperature: float = Field(0.9, gt=0.0, le=10.0, description="Of the user's turns.")
    top_k: int = Field(64, ge=1, le=MAX_COUNT, description="Both are drawn from so many tokens.")
    top_p: float = Field(0.95, gt=0.0, le=1.0, description="And from those that hold this mass.")
    user_limit: _Count = Field(120, description="Most tokens of a user's turn that are sampled.")
    reply_limits: tuple[_Count, ...] = Field(
        (96, 128, 192, 256), min_length=1, description="Most tokens of a reply; each reply draws one."
    )
    follow_ups: tuple[_Words, ...] = Field((), description="First words of later user turns.")
    follow_up_share: _Share = Field(0.5, description="Later user turns that begin with one of them.")


class SelfTalkSpec(Spec):
    """Conversations that the target makes up by itself."""

    waves: _Count = Field(96, description="Batches; raise it to add to a corpus.")
    rows: _Count = Field(64, description="Conversations of a wave; the KV cache holds rows x length tokens.")
    length: int = Field(1024, ge=64, le=MAX_COUNT, description="Tokens of each.")
    openers: tuple[_Words, ...] = Field((), description="First words of the first user turn.")
    opened_share: _Share = Field(0.6, description="Conversations that begin with one of them.")
    talk: TalkSpec = TalkSpec()


class RowsSource(Spec):
    """A data set with a text in each row: JSON lines, JSON, Parquet, packed by gzip or not; or on the hub."""

    type: Literal["rows"]
    licence: str = Field(min_length=1, description="Licence of the texts, by name.")
    files: tuple[_Words, ...] = Field((), description="Files beside or below the recipe.")
    hub: str | None = Field(None, pattern=r"^[\w.-]+(/[\w.-]+)?$", description="Or its id: owner/name.")
    config: str | None = Field(None, description="Its configuration on the hub.")
    split: str = Field("train", description="Its split on the hub.")
    revision: str | None = Field(None, description="Commit or tag; null for the newest when it is fetched.")
    text: str = Field("text", min_length=1, description="Key of the text in a row.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.files) == (self.hub is not None):
            raise ValueError("a source of rows needs either files or hub")
        return self

    @property
    def label(self) -> str:
        """``owner/name``, or the files."""
        return self.hub or ", ".join(self.files)


TextSource = Annotated[PypiSource | NpmSource | FileSource | RowsSource, Field(discriminator="type")]


class TextsSpec(Spec):
    """Files (or rows) of a source; those that a shipped suite names are left out by themselves."""

    source: str
    files: tuple[str, ...] = Field(("*",), min_length=1, description="Patterns, e.g. docs/*.txt.")
    weight: float = Field(1.0, gt=0.0, le=1000.0, description="How often an excerpt comes from here.")


class AnswersSpec(Spec):
    """Questions, summaries and continuations of excerpts, answered by the target."""

    batches: _Count = Field(24, description="Raise it to add to a corpus.")
    rows: _Count = Field(16, description="Conversations of a batch.")
    contexts: tuple[Annotated[int, Field(ge=128, le=MAX_COUNT)], ...] = Field(
        (384, 768, 1536, 3072), min_length=1, description="Prompt tokens; batches take them in turn."
    )
    new_tokens: _Count = Field(384, description="Tokens after the prompt: the reply and what follows it.")
    texts: tuple[TextsSpec, ...] = Field(min_length=1)
    prompts: tuple[_Words, ...] = Field(min_length=1, description="Wordings, each with {text}.")
    talk: TalkSpec = TalkSpec()

    @model_validator(mode="after")
    def _check(self) -> Self:
        for prompt in self.prompts:
            if prompt.count("{text}") != 1:
                raise ValueError(f"the prompt {prompt!r} needs {{text}} exactly once")
        return self


class DocumentsSpec(Spec):
    """Long texts by people, as they are."""

    texts: tuple[TextsSpec, ...] = Field(min_length=1)
    piece_tokens: int = Field(4096, ge=64, le=MAX_COUNT, description="Longest piece of a document.")
    max_tokens: _Count = Field(1_000_000, description="Texts are drawn until they hold this much.")


class CorpusRecipe(Spec):
    """A recipe, as read from YAML."""

    seed: int = Field(0, ge=0, le=MAX_SEED, description="Seed of every random choice.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "bfloat16", description="Precision in which the target writes; bfloat16 is fast where the CPU has it."
    )
    sources: dict[str, TextSource] = Field(
        default_factory=dict, description="As in a suite; data sets besides, as type rows."
    )
    self_talk: SelfTalkSpec | None = None
    answers: AnswersSpec | None = None
    documents: DocumentsSpec | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.parts:
            raise ValueError("a recipe needs self_talk, answers or documents")
        for part in (self.answers, self.documents):
            for texts in part.texts if part else ():
                if texts.source not in self.sources:
                    known = ", ".join(self.sources) or "none"
                    raise ValueError(f"source {texts.source!r} is not under sources: (known: {known})")
        return self

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts it has, in order of building."""
        return tuple(part for part in PARTS if getattr(self, part.replace("-", "_")) is not None)
