"""What a finished run would be on other devices: measured steps, timed by counting.

Everything comes from the run's folder: the target's sizes, the networks' configurations, and the steps
as they were accepted. Columns with simulated values are named so; what was measured is named measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hyflash_bench.analysis.paying import StepGroup, last_paying
from hyflash_bench.memory.catalog import form_of
from hyflash_bench.memory.shapes import KVDtype, ModelShape, WeightBits, known_shape
from hyflash_bench.memory.simulate import Scene
from hyflash_bench.spec.drafter import DrafterSpec

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from hyflash_bench.memory.forms import DrafterForm
    from hyflash_bench.results.reader import Run
    from hyflash_bench.results.records import Manifest
    from hyflash_bench.spec.device import DeviceProfile

    Numbers = NDArray[np.float64]

__all__ = ["AGAINST_MEASURED", "SIMULATED", "against_measured", "median_absolute_error", "simulated"]

SIMULATED = (
    *("device", "suite", "sampling", "drafter", "context_rung", "num_steps"),
    *("measured_acceptance_length", "simulated_tok_per_s", "simulated_plain_tok_per_s"),
    *("simulated_speedup", "simulated_ttft_s", "simulated_prefill_s", "simulated_energy_j_per_token"),
    *("simulated_draft_s", "simulated_verify_s", "simulated_observe_s"),
    *("break_even_acceptance_length", "stops_paying_context"),
)
"""Columns of :func:`simulated`. Draft, verification and observation are seconds of a step on average."""
AGAINST_MEASURED = (
    *("device", "suite", "sampling", "drafter", "context_rung", "num_steps"),
    *("measured_tok_per_s", "simulated_tok_per_s", "simulated_error_share"),
)
"""Columns of :func:`against_measured`."""

_GROUPS = ("suite", "sampling", "drafter", "context_rung")


def simulated(
    run: Run,
    devices: Sequence[DeviceProfile],
    *,
    bits: WeightBits | None = None,
    kv_dtype: KVDtype | None = None,
) -> pd.DataFrame:
    """Speeds that the acceptance measured in a run would give on devices.

    Args:
        run: A stored run; its uncapped conversations count.
        devices: Where to.
        bits: Of the target's weights; by default as they were loaded.
        kv_dtype: Of the KV caches; by default as in the run.

    Returns:
        A row for each device, suite, sampling, drafter and context rung (missing where the suite fixed
        none), with the columns of :data:`SIMULATED`. Simulated values are missing for drafters whose
        passes cannot be counted, energy where a device's power is unknown, and
        ``stops_paying_context`` where a drafter pays at any length; it is 0 where it never does.

    Raises:
        TargetError: The run does not say enough of its target.
    """
    import pandas as pd

    paper = _Paper.of(run.manifest, bits, kv_dtype)
    groups = _step_groups(run.steps[_counted(run.steps) & run.steps["is_scored"]])
    prompts = _prompt_groups(run.turns[_counted(run.turns) & run.turns["is_scored"]])
    rows = []
    for device in devices:
        scene = paper.on(device)
        ends = _stops_paying(scene, paper.forms, groups)
        for key, group in groups.items():
            form = paper.forms.get(key[2])
            row = {"device": device.name, **dict(zip(_GROUPS, key, strict=True)), **group.facts()}
            if form is not None:
                row |= _timed(scene, form, group) | _begun(scene, form, prompts.get(key))
                row["stops_paying_context"] = ends[key[:3]]
            rows.append(row)
    return _frame(pd.DataFrame(rows, columns=list(SIMULATED)))


def against_measured(run: Run, device: DeviceProfile) -> pd.DataFrame:
    """The simulation of a device held against what was timed on it.

    Args:
        run: A run with live conversations, measured on that device.
        device: Its profile, which must not rest on that run.

    Returns:
        A row for each suite, sampling, drafter and context rung that was timed, with the columns of
        :data:`AGAINST_MEASURED`; the error is a share of the measured speed, above 0 where the
        simulation is too fast.
    """
    import pandas as pd

    paper = _Paper.of(run.manifest, None, None)
    scene = paper.on(device)
    is_live = (run.steps["mode"] == "live") & run.steps["verify_s"].notna()
    seconds = _live_seconds(run.turns[_counted(run.turns) & (run.turns["mode"] == "live")])
    rows = []
    for key, group in _step_groups(run.steps[_counted(run.steps) & is_live]).items():
        form = paper.forms.get(key[2])
        if form is None or not seconds.get(key):
            continue
        measured = float(group.committed.sum()) / seconds[key]
        predicted = scene.steps(form, group.drafted, group.committed, group.context).simulated_tok_per_s
        rows.append(
            {
                "device": device.name,
                **dict(zip(_GROUPS, key, strict=True)),
                "num_steps": len(group.drafted),
                "measured_tok_per_s": measured,
                "simulated_tok_per_s": predicted,
                "simulated_error_share": predicted / measured - 1,
            }
        )
    return _frame(pd.DataFrame(rows, columns=list(AGAINST_MEASURED)))


def median_absolute_error(held: pd.DataFrame) -> float | None:
    """The median of the errors' sizes over the rows of :func:`against_measured`; None without any."""
    return None if held.empty else float(held["simulated_error_share"].abs().median())


@dataclass(frozen=True, slots=True)
class _Paper:
    """Target and drafters of a run on paper."""

    target: ModelShape
    forms: Mapping[str, DrafterForm | None]
    bits: WeightBits
    kv_dtype: KVDtype

    @classmethod
    def of(cls, manifest: Manifest, bits: WeightBits | None, kv_dtype: KVDtype | None) -> _Paper:
        info = manifest.target or {}
        target, dtype = known_shape(info), str(info.get("dtype"))
        bits = bits or (32 if dtype == "float32" else 16)
        own = str(manifest.resolved.get("drafter_kv_dtype") or "auto")
        drafter_kv = kv_dtype or cast("KVDtype", dtype if own == "auto" else own)
        kv_dtype = kv_dtype or cast("KVDtype", info.get("kv_dtype") or dtype)
        forms = {}
        for cell in manifest.cells:
            if cell.drafter not in forms:
                spec = DrafterSpec(name=cell.drafter_name, options=cell.drafter_options)
                network = manifest.networks.get(cell.drafter)
                forms[cell.drafter] = form_of(spec, target, bits=bits, kv_dtype=drafter_kv, network=network)
        return cls(target, forms, bits, kv_dtype)

    def on(self, device: DeviceProfile) -> Scene:
        return Scene(device, self.target, self.bits, self.kv_dtype)


Key = tuple[Any, ...]


def _counted(rows: pd.DataFrame) -> pd.Series[bool]:
    counted: pd.Series[bool] = rows["memory_cap_bytes"].isna() & (rows["status"] == "ok")
    return counted


def _step_groups(steps: pd.DataFrame) -> dict[Key, StepGroup]:
    return {
        key: StepGroup(
            drafted=group["drafted"].to_numpy(dtype=np.float64),
            committed=group["committed"].to_numpy(dtype=np.float64),
            context=group["context_length"].to_numpy(dtype=np.float64),
            is_whole=~group["limit_cut"].to_numpy(dtype=bool),
        )
        for key, group in _grouped(steps)
    }


def _prompt_groups(turns: pd.DataFrame) -> dict[Key, tuple[Numbers, Numbers]]:
    """New prompt tokens of each turn, and the tokens before them."""
    found = {}
    for key, group in _grouped(turns):
        new = group["num_prompt_tokens"].to_numpy(dtype=np.float64)
        found[key] = new, group["context_length"].to_numpy(dtype=np.float64) - new
    return found


def _live_seconds(turns: pd.DataFrame) -> dict[Key, float]:
    return {key: float(group["decode_s"].sum()) for key, group in _grouped(turns)}


def _grouped(rows: pd.DataFrame) -> list[tuple[Key, pd.DataFrame]]:
    import pandas as pd

    groups: Any = rows.groupby(list(_GROUPS), dropna=False, sort=False)
    return [((*key[:3], None if pd.isna(key[3]) else int(key[3])), group) for key, group in groups]


def _timed(scene: Scene, form: DrafterForm, group: StepGroup) -> dict[str, Any]:
    found = scene.steps(form, group.drafted, group.committed, group.context)
    power = scene.device.power_w
    return {
        "simulated_tok_per_s": found.simulated_tok_per_s,
        "simulated_plain_tok_per_s": found.simulated_plain_tok_per_s,
        "simulated_speedup": found.simulated_speedup,
        "simulated_energy_j_per_token": None if power is None else power.value / found.simulated_tok_per_s,
        "simulated_draft_s": float(found.draft_s.mean()),
        "simulated_verify_s": float(found.verify_s.mean()),
        "simulated_observe_s": float(found.observe_s.mean()),
        "break_even_acceptance_length": found.break_even_acceptance_length,
    }


def _begun(scene: Scene, form: DrafterForm, prompts: tuple[Numbers, Numbers] | None) -> dict[str, Any]:
    """Seconds until a turn's first token on average: the target's prefill, and the drafter's reading."""
    if prompts is None:
        return {}
    new, before = prompts
    prefill = float(scene.prefill_seconds(new, before).mean())
    reading = float(scene.observe_seconds(form, new, before).mean())
    return {"simulated_ttft_s": prefill + reading, "simulated_prefill_s": prefill}


def _stops_paying(
    scene: Scene, forms: Mapping[str, DrafterForm | None], groups: Mapping[Key, StepGroup]
) -> dict[Key, int | None]:
    """By suite, sampling and drafter: the context from which on plain decoding is faster."""
    found: dict[Key, int | None] = {}
    for key in dict.fromkeys(key[:3] for key in groups):
        form = forms.get(key[2])
        same = [group for other, group in groups.items() if other[:3] == key]
        found[key] = None if form is None else last_paying(scene, form, same)
    return found


def _frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Whole numbers as such, also where some are missing."""
    whole = [name for name in ("context_rung", "num_steps", "stops_paying_context") if name in frame]
    floats = [name for name in frame if str(name).startswith(("simulated_", "measured_", "break_even_"))]
    return frame.astype(dict.fromkeys(whole, "Int64") | dict.fromkeys(floats, "float64"))
