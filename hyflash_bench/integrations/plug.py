"""Has the ``lm_eval`` command find our model, once it is installed.

lm-eval has no entry points for models. ``lm_eval_plug.pth``, installed beside the packages, calls
:func:`install` at the start of a Python whose command line names lm-eval, and of no other; then nothing
is imported until lm-eval loads its own list of models, to which ours is added by name.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["install"]

_MODELS = "lm_eval.models"
_NAME, _PATH = "hyflash-bench", "hyflash_bench.integrations.lm_eval:HyFlashLM"


class _Models(MetaPathFinder):
    """Waits for lm-eval's models, once."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _MODELS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_add(module: ModuleType) -> None:
                load(module)
                from lm_eval.api.registry import model_registry

                model_registry.register(_NAME, target=_PATH)

            spec.loader.exec_module = load_and_add  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Add the model to lm-eval's as soon as these are loaded."""
    sys.meta_path.insert(0, _Models())
