"""What is asked for: tasks of lm-eval, a target and drafters."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field

from hyflash_bench.spec.base import MAX_COUNT, Spec
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.plan import content_id
from hyflash_bench.spec.run import RunSpec

__all__ = ["ALONE", "QualitySpec"]

ALONE = DrafterSpec(name="autoregressive")
"""The target alone."""


class QualitySpec(Spec):
    """A request for scores."""

    tasks: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        min_length=1, description="Tasks, groups or patterns of lm-eval; vt, cwe and fwe are RULER's."
    )
    include_path: tuple[Path, ...] = Field((), description="Folders with tasks of one's own.")
    lengths: tuple[Annotated[int, Field(ge=64, le=MAX_COUNT)], ...] = Field(
        (), description="Context lengths of tasks that make their own texts, in tokens."
    )
    num_fewshot: int | None = Field(None, ge=0, le=1000, description="Examples before each question.")
    apply_chat_template: bool = Field(False, description="Write prompts as the target's chat template does.")
    add_bos_token: bool = Field(False, description="Begin every prompt as the tokenizer does by itself.")
    batch_size: int | None = Field(
        None,
        ge=1,
        le=MAX_COUNT,
        description="Most continuations of a context that are scored in one pass; null for as many as fit.",
    )
    run: RunSpec = Field(description="Target, drafters, limit, max_new_tokens, draft_budget and seed.")

    @classmethod
    def of(cls, values: Mapping[str, Any], where: str = "quality") -> Self:
        """Build from one mapping: what is not a field here is one of a run.

        Raises:
            SpecError: See :meth:`Spec.parse`.
        """
        own = {key: value for key, value in values.items() if key in cls.model_fields}
        rest = {key: value for key, value in values.items() if key not in own}
        run = RunSpec.parse(
            {**rest, "suites": tuple(values.get("tasks", ())) or ("none",), "mode": "live"}, where
        )
        return cls.parse({**own, "run": run}, where)

    def ordered_drafters(self) -> tuple[DrafterSpec, ...]:
        """Plain decoding first, asked for or not: the others are held against it."""
        others = [spec for spec in self.run.drafters if spec.label != ALONE.label]
        return (ALONE, *others)

    def task_hash(self, task: str) -> str:
        """Changes with everything that the prompts of a task depend on, besides the target."""
        names = ("lengths", "num_fewshot", "apply_chat_template", "add_bos_token")
        asked = self.model_dump(mode="json", include=set(names)) | {"seed": self.run.seed}
        own = [
            path.read_text(encoding="utf-8", errors="replace")
            for folder in self.include_path
            for path in sorted(folder.rglob("*"))
            if path.suffix in {".yaml", ".py"}
        ]
        return content_id([task, asked, own, version("lm_eval")])
