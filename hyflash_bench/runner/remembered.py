"""What an earlier command learned from its worker, so that a finished run starts none."""

from __future__ import annotations

import hyflash_bench
from hyflash_bench.results.layout import Layout
from hyflash_bench.results.load import read_manifest
from hyflash_bench.runner.worker import DrafterFacts, Ready
from hyflash_bench.spec.run import RunSpec
from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.files import are_unchanged

__all__ = ["remembered"]


def remembered(layout: Layout, spec: RunSpec) -> Ready | None:
    """Facts of target and drafters as the manifest has them, enough to plan and not to measure.

    Args:
        layout: Of the run folder.
        spec: The request.

    Returns:
        None where a worker has to be asked: another target, other files, an unpinned revision, a
        drafter that the run does not know, or another version of this package.

    Raises:
        DataError: The manifest is damaged.
    """
    if not layout.is_run:
        return None
    manifest = read_manifest(layout)
    if manifest.target is None or manifest.package_version != hyflash_bench.__version__:
        return None
    asked = spec.target_spec.model_dump(mode="json")
    if any(manifest.resolved.get(name) != asked[name] for name in TargetSpec.model_fields):
        return None
    known = {
        cell.drafter: DrafterFacts(cell.drafter, cell.drafter_options, cell.is_reference, None)
        for cell in manifest.cells
    }
    labels = [drafter.label for drafter in spec.drafters]
    if not set(labels) <= set(known) or not are_unchanged(spec.target_spec, manifest.target):
        return None
    return Ready(manifest.target, tuple(known[label] for label in labels))
