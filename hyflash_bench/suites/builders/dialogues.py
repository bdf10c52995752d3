"""Multi-turn conversations written down in YAML; the replies are the target's own."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, model_validator

from hyflash_bench.errors import DataError
from hyflash_bench.spec.base import Spec
from hyflash_bench.spec.yaml import read_yaml
from hyflash_bench.suites.builders.base import Builder, conversation
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.suites.conversation import Conversation, Item, UserTurn
from hyflash_bench.suites.cutting import excerpt, split_sentences
from hyflash_bench.suites.sources import within

__all__ = ["Dialogues"]

_Turn = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class QuotedDocument(Spec):
    """A text that the first turn brings along."""

    source: str
    file: str
    max_chars: int = Field(9000, ge=200, description="It ends with the last sentence that fits.")

    @property
    def name(self) -> str:
        """The file, the same in every conversation that quotes it."""
        return f"{self.source}:{self.file}"


class Dialogue(Spec):
    """One conversation."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", description="Name within the task.")
    system: str | None = Field(None, min_length=1)
    document: QuotedDocument | None = None
    turns: tuple[_Turn, ...]


class DialogueFile(Spec):
    """A file of conversations of one category."""

    category: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    conversations: tuple[Dialogue, ...] = Field(min_length=1)


class DialoguesOptions(Spec):
    """Options of the builder ``dialogues``."""

    files: str = Field(description="Pattern of YAML files, relative to the suite file.")
    min_turns: int = Field(6, ge=1)
    max_turns: int = Field(12, ge=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.min_turns > self.max_turns:
            raise ValueError(f"min_turns {self.min_turns} is over max_turns {self.max_turns}")
        return self


class Dialogues(Builder[DialoguesOptions]):
    """Reads conversations from YAML files."""

    name = "dialogues"
    Options = DialoguesOptions

    def items(self) -> tuple[Item, ...]:
        """Plan the conversations."""
        suite, task = self.context.suite, self.context.task.name
        return tuple(
            Item(
                item_id=item_id,
                suite=suite,
                task=task,
                kind=category,
                category=category,
                context_length=None,
                num_turns=len(dialogue.turns),
                document=dialogue.document.name if dialogue.document else None,
            )
            for item_id, (category, dialogue) in self._dialogues.items()
        )

    def sources(self, item: Item) -> frozenset[str]:
        """Name the sources of an item."""
        document = self._dialogues[item.item_id][1].document
        return frozenset({document.source} if document else ())

    def build(self, item: Item, chat: ChatTokenizer) -> Conversation:
        """Build one conversation."""
        dialogue = self._dialogues[item.item_id][1]
        turns, used = list(dialogue.turns), []
        if dialogue.document:
            quoted, origin = self._quote(dialogue.document)
            turns[0] = f"{quoted}\n\n{turns[0]}"
            used = [origin]
        spoken = [UserTurn(text) for text in turns]
        return conversation(item, spoken, system=dialogue.system, sources=used)

    def fingerprint(self) -> Any:
        """Stand for the files beside the suite file."""
        return [content.model_dump(mode="json") for _, content in self._files]

    def _quote(self, document: QuotedDocument) -> tuple[str, str]:
        library = self.context.library
        whole = library.read(document.source, document.file).strip()
        kept, length = [], 0
        for piece in split_sentences(whole):
            length += len(piece)
            if length > document.max_chars:
                break
            kept.append(piece)
        origin = library.describe(document.source, document.file, whole)
        quoted = excerpt(kept)
        return f'"""\n{quoted}\n"""', f"{origin} [0:{len(quoted)}]"

    @cached_property
    def _files(self) -> list[tuple[Path, DialogueFile]]:
        try:
            paths = sorted(self.context.folder.glob(self.options.files))
        except (ValueError, NotImplementedError) as error:
            raise DataError(
                f"{self.context.where}: {self.options.files!r} is no pattern of files: {error}. "
                "Write one relative to the suite file, for example talks/*.yaml."
            ) from None
        if not paths:
            raise DataError(
                f"{self.context.where}: no file matches {self.options.files!r} in "
                f"{self.context.folder}. Correct the pattern or add a file."
            )
        for path in paths:
            within(self.context.folder, path, self.options.files)
        return [(path, DialogueFile.parse(read_yaml(path), str(path))) for path in paths]

    @cached_property
    def _dialogues(self) -> dict[str, tuple[str, Dialogue]]:
        """Category and conversation of each item."""
        found: dict[str, tuple[str, Dialogue]] = {}
        origin: dict[str, Path] = {}
        for path, content in self._files:
            for dialogue in content.conversations:
                self._check(path, dialogue)
                key = f"{self.context.suite}/{self.context.task.name}/{dialogue.id}"
                if key in found:
                    raise DataError(
                        f"{path}: conversation {dialogue.id!r} is already in {origin[key]}. "
                        "Rename one of the two."
                    )
                found[key] = (content.category, dialogue)
                origin[key] = path
        return found

    def _check(self, path: Path, dialogue: Dialogue) -> None:
        fewest, most = self.options.min_turns, self.options.max_turns
        if not fewest <= len(dialogue.turns) <= most:
            raise DataError(
                f"{path}: conversation {dialogue.id!r} has {len(dialogue.turns)} turns; "
                f"{fewest} to {most} are allowed here."
            )
        if dialogue.document:
            self.context.library.source(dialogue.document.source)
