"""Loads a target from wherever it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer
from transformers.utils import logging as transformers_logging

from hyflash_bench.errors import UsageError
from hyflash_bench.footprint import kv_row_bytes
from hyflash_bench.kv import kv_dtype_of
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets import architecture
from hyflash_bench.targets.decoder import Decoder
from hyflash_bench.targets.files import attempt, code_hash, local_folder, settings_hash, weights_hash
from hyflash_bench.targets.fingerprint import chat_template_hash, tokenizer_hash
from hyflash_bench.targets.info import Fingerprint, TargetInfo
from hyflash_bench.targets.linear import calibrate
from hyflash_bench.targets.native import NativeDecoder, load_native
from hyflash_bench.targets.source import Source, parse, require_pinned
from hyflash_bench.targets.target import Target

__all__ = ["build_target", "check_backend", "load_target"]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class _Loaded:
    model: Any
    tokenizer: Any
    weights: str
    revision: str | None
    licence: str | None
    settings: str | None


def load_target(spec: TargetSpec) -> Target:
    """Load a target: download or convert it if need be, check that it can be run, prepare it.

    The first load of a preset or GGUF file converts it to safetensors in the user's cache; hub
    models go through transformers and its own cache (``HF_HOME``, ``HF_HUB_OFFLINE``,
    ``HF_TOKEN``). Only safetensors files are read.

    Raises:
        UsageError: The target string or an option makes no sense.
        DownloadError: A preset could not be fetched.
        UnsupportedTarget: The architecture cannot be run.
        TargetError: The model could not be loaded, with transformers' reason.
    """
    source = parse(spec.target)
    if spec.trust_remote_code:
        require_pinned(source)
    check_backend(spec.backend)
    if spec.num_threads is not None:
        torch.set_num_threads(spec.num_threads)
    loaded = _load_hub(source, spec) if source.kind == "hub" else _load_local(source, spec)
    return build_target(loaded.model, loaded.tokenizer, spec, source, loaded=loaded)


def load_tokenizer(spec: TargetSpec) -> Any:
    """The tokenizer of a target, without its weights.

    Raises:
        UsageError: The target string makes no sense.
        DownloadError: A preset could not be fetched.
        TargetError: It could not be loaded.
    """
    source = parse(spec.target)
    location = source.location if source.kind == "hub" else str(local_folder(source)[0])
    options = {"revision": source.revision} if source.kind == "hub" else {}
    return attempt(source, lambda: AutoTokenizer.from_pretrained(location, **options))


def build_target(
    model: Any,
    tokenizer: Any,
    spec: TargetSpec,
    source: Source | None = None,
    *,
    loaded: _Loaded | None = None,
) -> Target:
    """Make a target of a transformers model that is already in memory.

    Args:
        model: A causal language model; its projections become views of fused weights.
        tokenizer: Its tokenizer; None is allowed where no text is needed.
        spec: Device, attention and limits; ``model`` names the target.
        source: Where it came from; a folder of that name by default.
        loaded: Hashes and revision, where known.
    """
    source = source or Source("folder", spec.target, None, spec.target)
    model = model.to(spec.backend).eval().requires_grad_(False)
    architecture.check_supported(model.config, extrapolate=spec.extrapolate)
    arch = architecture.read(model)
    library = load_native() if NativeDecoder.fits(arch) else None
    forms = calibrate(arch.linears, library)
    native = NativeDecoder(arch, library) if library is not None else None
    decoder = Decoder(arch, model.model.rotary_emb, forms, native, spec.attention)
    info = _describe(spec, source, decoder, model, tokenizer=tokenizer, loaded=loaded)
    return Target(info, tokenizer, model, decoder)


def _load_hub(source: Source, spec: TargetSpec) -> _Loaded:
    options = {"revision": source.revision, "trust_remote_code": spec.trust_remote_code}
    config = attempt(source, lambda: AutoConfig.from_pretrained(source.location, **options))
    architecture.check_supported(config, extrapolate=spec.extrapolate)
    model, tokenizer = _read(source, source.location, config, spec, **options)
    commit = getattr(config, "_commit_hash", None) or source.revision
    return _Loaded(model, tokenizer, commit or "unknown", commit, licence=None, settings=None)


def _load_local(source: Source, spec: TargetSpec) -> _Loaded:
    folder, revision, licence = local_folder(source)
    config = attempt(source, lambda: _local_config(folder, spec.trust_remote_code))
    architecture.check_supported(config, extrapolate=spec.extrapolate)
    model, tokenizer = _read(source, str(folder), config, spec, trust_remote_code=spec.trust_remote_code)
    weights = weights_hash(source, folder, spec.trust_remote_code)
    if spec.trust_remote_code and source.kind == "folder":
        revision = code_hash(folder)
    return _Loaded(model, tokenizer, weights, revision, licence, settings_hash(folder))


def _local_config(folder: Path, trust_remote_code: bool) -> Any:
    return AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)


def _read(source: Source, location: str, config: Any, spec: TargetSpec, **options: Any) -> tuple[Any, Any]:
    dtype = _DTYPES.get(spec.dtype, "auto")
    is_wrapped = architecture.text_config(config) is not config
    kind = AutoModelForImageTextToText if is_wrapped else AutoModelForCausalLM

    def read() -> tuple[Any, Any]:
        transformers_logging.disable_progress_bar()  # the console alone shows progress
        model = kind.from_pretrained(location, dtype=dtype, use_safetensors=True, **options)
        tokenizer = AutoTokenizer.from_pretrained(location, **options)
        return _text_part(model) if is_wrapped else model, tokenizer

    loaded: tuple[Any, Any] = attempt(source, read)
    return loaded


def _text_part(model: Any) -> Any:
    """What reads text in a multimodal model, as a causal language model; the rest is let go."""
    with torch.device("meta"):
        alone: Any = AutoModelForCausalLM.from_config(model.config.text_config)
    alone.model, alone.lm_head = model.model.language_model, model.lm_head
    alone.generation_config = model.generation_config
    return alone


def check_backend(backend: str) -> None:
    """Check that torch can compute there.

    Raises:
        UsageError: It cannot; the message names what can be used.
    """
    kind = torch.device(backend).type
    present: dict[str, Callable[[], bool]] = {
        "cpu": lambda: True,
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
    }
    if not present[kind]():
        usable = ", ".join(name for name, is_there in present.items() if is_there())
        raise UsageError(f"Backend {backend!r} is not available here. Usable: {usable}.")


def _describe(
    spec: TargetSpec, source: Source, decoder: Decoder, model: Any, *, tokenizer: Any, loaded: _Loaded | None
) -> TargetInfo:
    config, arch = model.config, decoder.arch
    weight = arch.head.weight
    kv_dtype = kv_dtype_of(spec.kv_dtype, weight.dtype)
    weights = {id(parameter): parameter for parameter in model.parameters()}.values()
    return TargetInfo(
        model=spec.target,
        name=source.name,
        source=source.kind,
        revision=loaded.revision if loaded else None,
        dtype=str(weight.dtype).removeprefix("torch."),
        kv_dtype=kv_dtype,
        backend=str(weight.device),
        attention=decoder.attention,
        num_layers=len(arch.layers),
        hidden_size=weight.shape[1],
        vocab_size=weight.shape[0],
        num_attention_heads=arch.num_heads,
        num_kv_heads=arch.num_kv_heads,
        head_dim=arch.head_dim,
        max_positions=config.max_position_embeddings,
        num_parameters=sum(parameter.numel() for parameter in weights),
        weight_bytes=sum(parameter.nbytes for parameter in weights),
        kv_bytes_per_token=len(arch.layers) * kv_row_bytes(arch.num_kv_heads, arch.head_dim, kv_dtype),
        eos_token_ids=_eos(model, tokenizer),
        fingerprint=Fingerprint(
            weights=loaded.weights if loaded else "unsaved",
            tokenizer=tokenizer_hash(tokenizer) if tokenizer is not None else "none",
            chat_template=chat_template_hash(tokenizer),
        ),
        trust_remote_code=spec.trust_remote_code,
        extrapolate=spec.extrapolate,
        licence=loaded.licence if loaded else None,
        settings=loaded.settings if loaded else None,
        intermediate_size=arch.layers[0].down.weight.shape[1],
    )


def _eos(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every token that ends a reply, by the generation settings, else the tokenizer."""
    for holder in (getattr(model, "generation_config", None), model.config, tokenizer):
        found = getattr(holder, "eos_token_id", None)
        if isinstance(found, int):
            return (found,)
        if found:
            return tuple(int(token) for token in found)
    return ()
