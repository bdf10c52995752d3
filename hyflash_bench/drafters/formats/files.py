"""Tensors of a checkpoint, read without running anything, and every one of them accounted for."""

from __future__ import annotations

import json
import pickle
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from hyflash_bench.errors import DrafterError

__all__ = ["Layout", "Part", "Tensors", "fill", "read_tensors", "whole_part"]

MEND = "Fetch it again, or give another checkpoint."
WEIGHT_DTYPES = (torch.float32, torch.bfloat16, torch.float16)

Part = tuple[str, int]
"""A tensor of the file, and its rows."""
Layout = Mapping[str, Sequence[Part]]
"""Each parameter by the file's tensors that make it up, one below the other."""

_SETS = (
    ("model.safetensors.index.json", "*.safetensors"),
    ("pytorch_model.bin.index.json", "*.bin"),
)
_MOST_NAMED = 5


class Tensors:
    """Tensors of a checkpoint by name; what is taken is not there any more.

    Attributes:
        where: File or folder, for messages.
    """

    def __init__(self, where: Path, found: dict[str, Tensor]) -> None:
        self.where = where
        self._found = found

    def __contains__(self, name: str) -> bool:
        return name in self._found

    @property
    def names(self) -> list[str]:
        """Those not taken yet."""
        return sorted(self._found)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor that is there."""
        return tuple(self._found[name].shape)

    def require(self, names: Iterable[str]) -> None:
        """Refuse a checkpoint that lacks any of these.

        Raises:
            DrafterError: Names of those that are missing.
        """
        if missing := sorted(set(names) - self._found.keys()):
            raise DrafterError(f"{self.where} lacks tensors: {_listed(missing)}. {MEND}")

    def take(self, name: str, shape: Sequence[int]) -> Tensor:
        """A weight of a known shape.

        Raises:
            DrafterError: Not there, of another shape or type, or not finite.
        """
        self.require([name])
        tensor = self._found.pop(name)
        self._check_shape(name, tensor, shape)
        if tensor.dtype not in WEIGHT_DTYPES:
            allowed = ", ".join(str(dtype).removeprefix("torch.") for dtype in WEIGHT_DTYPES)
            raise DrafterError(
                f"{self.where}: tensor {name} is {_dtype(tensor)}; allowed is {allowed}. "
                "Quantised checkpoints cannot be run; give the one they were made from."
            )
        if not tensor.isfinite().all():
            raise DrafterError(f"{self.where}: tensor {name} holds NaN or infinity. {MEND}")
        return tensor

    def take_whole(self, name: str, length: int, *, dtypes: Sequence[torch.dtype]) -> Tensor:
        """Whole numbers or truth values ``[length]``."""
        self.require([name])
        tensor = self._found.pop(name)
        self._check_shape(name, tensor, (length,))
        if tensor.dtype not in dtypes:
            allowed = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            raise DrafterError(
                f"{self.where}: tensor {name} is {_dtype(tensor)}; allowed is {allowed}. {MEND}"
            )
        return tensor

    def drop(self, pattern: str) -> None:
        """Tensors that are known and of no use here."""
        for name in [name for name in self._found if re.fullmatch(pattern, name)]:
            del self._found[name]

    def finish(self, known: Iterable[str]) -> None:
        """Refuse a checkpoint that holds anything else.

        Args:
            known: Names that a checkpoint of this kind may have, for the message.

        Raises:
            DrafterError: Names of the tensors that nobody knows.
        """
        if self._found:
            raise DrafterError(
                f"{self.where} has tensors that this kind of drafter does not know: {_listed(self.names)}. "
                f"It knows: {_listed(sorted(known))}. Give a checkpoint without them."
            )

    def _check_shape(self, name: str, tensor: Tensor, shape: Sequence[int]) -> None:
        if tuple(tensor.shape) != tuple(shape):
            raise DrafterError(
                f"{self.where}: tensor {name} is {list(tensor.shape)}, but the configuration and the target "
                f"say {list(shape)}. Give a checkpoint that was made for this target."
            )


def read_tensors(folder: Path, *, stem: str = "") -> Tensors:
    """Read all tensors of a checkpoint: safetensors where there are any, else torch's own files.

    Torch's files are pickles. They are read as weights only, so code in them is refused, not run.

    Args:
        folder: Holds them, in one file or in several with an index.
        stem: Only files with this name; empty for all.

    Raises:
        DrafterError: No file, a damaged or incomplete one, or one that holds more than tensors.
    """
    patterns = (f"{stem}.safetensors", f"{stem}.bin", f"{stem}.pt") if stem else ("*.safetensors", "*.bin")
    for pattern in patterns:
        files = sorted(folder.glob(pattern))
        if files:
            break
    else:
        raise DrafterError(f"{folder} holds no weights. Looked for {', '.join(patterns)}. {MEND}")
    _check_index(folder, files)
    found: dict[str, Tensor] = {}
    for path in files:
        for name, tensor in _read_file(path).items():
            if name in found:
                raise DrafterError(f"{path} has tensor {name}, which another file has too. {MEND}")
            found[name] = tensor
    return Tensors(files[0] if len(files) == 1 else folder, found)


def fill(network: nn.Module, layout: Layout, tensors: Tensors) -> None:
    """Give a network without storage its parameters, all of them, in the dtype of the file."""
    parameters = dict(network.named_parameters())
    assert parameters.keys() == layout.keys(), sorted(parameters.keys() ^ layout.keys())
    tensors.require(name for parts in layout.values() for name, _ in parts)
    state = {}
    for parameter, parts in layout.items():
        expected = parameters[parameter].shape
        pieces = [tensors.take(name, (rows, *expected[1:])) for name, rows in parts]
        whole = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
        assert whole.shape == expected, (parameter, whole.shape, expected)
        state[parameter] = whole
    network.load_state_dict(state, strict=False, assign=True)


def whole_part(network: nn.Module, parameter: str, name: str) -> list[Part]:
    """A parameter that is one tensor of the file."""
    return [(name, int(network.get_parameter(parameter).shape[0]))]


def _read_file(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old pickle protocols: what cannot be read is said below
            found: Any = (
                load_file(path)
                if path.suffix == ".safetensors"
                else torch.load(path, map_location="cpu", weights_only=True)
            )
    except pickle.UnpicklingError as error:
        name = re.search(r"GLOBAL (\S+)", str(error))
        what = f"asks for {name[1]}" if name else "is damaged, or no file of weights"
        raise DrafterError(
            f"{path} holds something other than tensors, and none of it was run: it {what}. "
            "Give its weights as .safetensors."
        ) from None
    except (OSError, SafetensorError, RuntimeError, EOFError, ValueError, KeyError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DrafterError(f"{path} cannot be read: {reason[:200]}. {MEND}") from None
    is_flat = isinstance(found, dict) and all(isinstance(value, Tensor) for value in found.values())
    if not is_flat or not all(isinstance(name, str) for name in found):
        raise DrafterError(f"{path} holds a {type(found).__name__}, not tensors by name. {MEND}")
    return dict(found)


def _check_index(folder: Path, files: Sequence[Path]) -> None:
    """Refuse a set of files that is not complete."""
    for index_name, pattern in _SETS:
        path = folder / index_name
        if not path.is_file() or not all(file.match(pattern) for file in files):
            continue
        try:
            listed = set(json.loads(path.read_text(encoding="utf-8"))["weight_map"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DrafterError(f"{path} cannot be read: {error}. {MEND}") from None
        if missing := sorted(listed - {file.name for file in files}):
            raise DrafterError(f"{folder} lacks files that its index names: {_listed(missing)}. {MEND}")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
