"""What a recipe will give, known before a target is loaded."""

from __future__ import annotations

from collections.abc import Sequence

from hyflash_bench.errors import UnknownName
from hyflash_bench.spec.corpus import CorpusRecipe

__all__ = ["chosen_parts", "planned_tokens"]


def chosen_parts(recipe: CorpusRecipe, asked: Sequence[str]) -> tuple[str, ...]:
    """Parts to build, in order; all if none is asked for.

    Raises:
        UnknownName: The recipe has no such part.
    """
    for name in asked:
        if name not in recipe.parts:
            raise UnknownName("part of the recipe", name, recipe.parts)
    return tuple(name for name in recipe.parts if not asked or name in asked)


def planned_tokens(recipe: CorpusRecipe, max_tokens: int | None = None) -> dict[str, int]:
    """About how many tokens each part will give, by name.

    Args:
        recipe: What to build.
        max_tokens: Most tokens of all parts, which keep the recipe's proportions; but one batch of
            answers and one wave of self-talk are made whole.
    """
    planned, least = {}, {}
    if (documents := recipe.documents) is not None:
        planned["documents"], least["documents"] = documents.max_tokens, 1
    if (answers := recipe.answers) is not None:
        prompts = [answers.contexts[unit % len(answers.contexts)] for unit in range(answers.batches)]
        planned["answers"] = answers.rows * (sum(prompts) + answers.batches * answers.new_tokens)
        least["answers"] = answers.rows * (prompts[0] + answers.new_tokens)
    if (self_talk := recipe.self_talk) is not None:
        least["self-talk"] = self_talk.rows * self_talk.length
        planned["self-talk"] = self_talk.waves * least["self-talk"]
    total = sum(planned.values())
    if max_tokens is None or total <= max_tokens:
        return planned
    return {name: max(least[name], max_tokens * planned[name] // total) for name in planned}
