"""The manifest of a run folder that scores are kept in."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hyflash_bench
from hyflash_bench.integrations.asked import QualitySpec
from hyflash_bench.memory.lookup import networks_of
from hyflash_bench.results.records import Manifest
from hyflash_bench.runner.environment import busy_share, environment, git_state
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.targets.info import TargetInfo

__all__ = ["manifest_of"]


def manifest_of(
    spec: QualitySpec,
    info: TargetInfo,
    drafters: Collection[DrafterSpec],
    tasks: Mapping[str, Any],
    *,
    run_id: str,
    command: Sequence[str],
) -> Manifest:
    """What is asked for and where it runs, without cells: they are known once lm-eval asks.

    Args:
        spec: The request.
        info: Of the target.
        drafters: All of them.
        tasks: Of lm-eval, by name; those that have text written are suites.
        run_id: Name of the folder.
        command: As typed.
    """
    return Manifest(
        run_id=run_id,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        package_version=hyflash_bench.__version__,
        command=list(command),
        request=spec.run.model_dump(mode="json", exclude_unset=True),
        resolved=spec.run.to_mapping(),
        target=info.to_json(),
        suites=[
            {
                "suite_hash": spec.task_hash(name),
                "name": name,
                "version": str(task.VERSION),
                "title": f"lm-eval {name}",
                "licence": "as the task says",
                "description": f"Task {name} of lm-eval {version('lm_eval')}, generated text only.",
            }
            for name, task in tasks.items()
            if task.OUTPUT_TYPE == "generate_until"
        ],
        environment={
            **environment(),
            "busy_share": round(busy_share(), 2),
            "lm_eval": version("lm_eval"),
        },
        git=git_state(Path(hyflash_bench.__file__).parent),
        networks=networks_of(drafters, info.name),
    )
