"""Turns a GGUF file into a model folder that transformers loads fast, once."""

from __future__ import annotations

import logging
import sys
from contextlib import nullcontext, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from filelock import FileLock

from hyflash_bench.atomic import scratch_folder
from hyflash_bench.errors import MissingDependency, TargetError
from hyflash_bench.targets.cachedir import cache_dir, writable

__all__ = ["converted_folder"]

logger = logging.getLogger("hyflash_bench.targets")


def converted_folder(gguf: Path, digest: str) -> Path:
    """The model folder made from a GGUF file, in the user's cache under the file's hash.

    Args:
        gguf: The file; only read when the folder is not there yet.
        digest: Its SHA-256.

    Raises:
        MissingDependency: A package that reads GGUF files is not installed.
        TargetError: The file cannot be read, or there is no room for the result.
    """
    parent = cache_dir("models")
    folder = parent / digest
    if folder.exists():
        return folder
    with writable(parent), FileLock(parent / f"{digest}.lock"):
        if folder.exists():
            return folder
        logger.info("converting %s to safetensors (once)", gguf.name)
        # transformers draws its progress bar whether or not anybody watches.
        hushed = nullcontext() if sys.stderr.isatty() else redirect_stderr(StringIO())
        try:
            with scratch_folder(parent, digest) as scratch:
                with hushed:
                    _convert(gguf, scratch)
                scratch.replace(folder)
        except ImportError as error:
            raise MissingDependency(
                f"Reading {gguf.name} needs the packages gguf and accelerate: {error}"
            ) from error
        except Exception as error:  # a damaged file raises all sorts of errors
            raise TargetError(f"{gguf.name} could not be converted: {error}") from error
    return folder


def _convert(gguf: Path, folder: Path) -> None:
    # Listing and fetching presets must not cost the seconds that these imports take.
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # The weights are plain by now, but transformers would refuse to save them.
    model.is_quantized, model.hf_quantizer = False, None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
