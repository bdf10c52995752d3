"""How far the simulation of this machine is from a live run on it, and how long simulating takes.

    hyflash-bench calibrate
    hyflash-bench run quick
    python benchmarks/simulator.py results/quick-smollm2-135m
    python benchmarks/simulator.py --scale

With a run: by drafter, the median error of tokens per second over the run's context lengths, and the
measured and simulated seconds of a step's parts. The profile is made by ``calibrate``, which sees no run;
figures from a busy machine are worthless. With ``--scale``: processor seconds of planning for 6 drafters x
8 devices x 9 context lengths, and of simulating a made-up run of 100,000 steps on all devices.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from hyflash_bench.analysis.simulated import against_measured, median_absolute_error, simulated
from hyflash_bench.memory.fit import Budget, Plan
from hyflash_bench.memory.lookup import read_shape
from hyflash_bench.results.reader import load_run
from hyflash_bench.results.schema import conform
from hyflash_bench.spec.device import device_names, read_device
from hyflash_bench.spec.drafter import DrafterSpec

DRAFTERS = ("autoregressive", "prompt-lookup", "hyflash", "full-context", "eagle", "medusa")
CONTEXTS = tuple(512 * 2**power for power in range(9))
NUM_STEPS = 100_000
STEPS_OF_A_TURN = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", nargs="?", help="a run with live conversations, measured on this machine")
    parser.add_argument("--device", default="host")
    parser.add_argument("--scale", action="store_true")
    arguments = parser.parse_args()
    if arguments.run:
        print_errors(arguments.run, arguments.device)
    if arguments.scale or not arguments.run:
        print_scale()


def print_errors(run: str, device: str) -> None:
    loaded = load_run(run)
    held = against_measured(loaded, read_device(device))
    print(f"{'drafter':<30}{'rows':>6}{'median error':>14}{'largest':>9}")
    for drafter, group in held.groupby("drafter", sort=False):
        errors = group["simulated_error_share"]
        worst = max(errors, key=abs)
        print(f"{drafter:<30}{len(group):>6}{errors.median():>+14.1%}{worst:>+9.1%}")
    error = median_absolute_error(held)
    print(f"median absolute error over {len(held)} rows: {'-' if error is None else f'{error:.1%}'}\n")
    print_parts(loaded, device)


def print_parts(loaded: Any, device: str) -> None:
    """Milliseconds of the parts of a step, measured and simulated."""
    steps = loaded.steps
    live = steps[(steps["mode"] == "live") & (steps["status"] == "ok") & steps["memory_cap_bytes"].isna()]
    table = simulated(loaded, [read_device(device)])
    print(
        f"{'drafter':<30}{'context':>8}" + "".join(f"{part:>20}" for part in ("draft", "verify", "observe"))
    )
    for (drafter, rung), group in live.groupby(["drafter", "context_rung"], dropna=False, sort=False):
        same = table["context_rung"].isna() if pd.isna(rung) else table["context_rung"] == rung
        mine = table[(table["drafter"] == drafter) & same]
        cells = "".join(
            f"{group[f'{part}_s'].mean() * 1e3:>11.2f} ~{mine[f'simulated_{part}_s'].mean() * 1e3:>7.2f}"
            for part in ("draft", "verify", "observe")
        )
        print(f"{drafter:<30}{'-' if pd.isna(rung) else rung:>8}{cells}")
    print("milliseconds: measured ~ simulated")


def print_scale() -> None:
    began = time.process_time()
    profiles = [read_device(name) for name in device_names()][:8]
    plan = Plan.of(read_shape("smollm2-135m"), [DrafterSpec(name=name) for name in DRAFTERS])
    budgets = [Budget(profile.name, profile.memory_usable.value) for profile in profiles]
    cells = plan.verdicts(budgets, CONTEXTS)
    plan.limits(budgets)
    print(f"planned {len(cells)} cells in {time.process_time() - began:.2f} s")

    run = MadeUpRun.of(plan.target.num_parameters)
    began = time.process_time()
    rows = simulated(run, [read_device(name) for name in device_names()])  # type: ignore[arg-type]
    spent = time.process_time() - began
    print(
        f"simulated {len(run.steps):,} steps on {len(device_names())} devices, "
        f"{len(rows)} rows, in {spent:.2f} s"
    )


@dataclass
class MadeUpRun:
    """What a simulation asks of a run."""

    manifest: Any
    steps: pd.DataFrame
    turns: pd.DataFrame

    @classmethod
    def of(cls, num_parameters: int) -> MadeUpRun:
        """Steps of six drafters at four rungs, about as they come in a run."""
        random = np.random.default_rng(0)
        drafter = random.integers(0, len(DRAFTERS), NUM_STEPS)
        rung = 512 * 2 ** random.integers(0, 5, NUM_STEPS)
        drafted = np.where(drafter == 0, 0, random.integers(0, 6, NUM_STEPS))
        columns: dict[str, Any] = {
            "drafter": np.array(DRAFTERS)[drafter],
            "suite": ["made-up"] * NUM_STEPS,
            "sampling": ["greedy"] * NUM_STEPS,
            "status": ["ok"] * NUM_STEPS,
            "mode": ["replay"] * NUM_STEPS,
            "is_scored": [True] * NUM_STEPS,
            "context_rung": rung,
            "context_length": rung + random.integers(0, 200, NUM_STEPS),
            "drafted": drafted,
            "committed": 1 + (drafted * random.random(NUM_STEPS)).astype(int),
            "limit_cut": [False] * NUM_STEPS,
        }
        prompts = {**columns, "num_prompt_tokens": rung}
        turns = {name: list(values[::STEPS_OF_A_TURN]) for name, values in prompts.items()}
        return cls(_manifest(num_parameters), conform("steps", columns), conform("turns", turns))


def _manifest(num_parameters: int) -> Any:
    shape = read_shape("smollm2-135m")
    target = {
        "name": shape.name,
        "dtype": "float32",
        "num_layers": shape.num_layers,
        "hidden_size": shape.hidden_size,
        "vocab_size": shape.vocab_size,
        "num_attention_heads": shape.num_heads,
        "num_kv_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "num_parameters": num_parameters,
    }
    cells = [SimpleNamespace(drafter=name, drafter_name=name, drafter_options={}) for name in DRAFTERS]
    return SimpleNamespace(target=target, cells=cells, resolved={}, networks={})


if __name__ == "__main__":
    main()
