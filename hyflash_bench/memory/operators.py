"""Operators that torch starts one by one, as its dispatcher sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["count_operators"]


def count_operators(work: Callable[[], object]) -> int:
    """Operators that torch's dispatcher sees in a piece of work."""
    with _Counter() as counter:
        work()
    return int(counter.num_operators)


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_operators = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.num_operators += 1
        return func(*args, **(kwargs or {}))
