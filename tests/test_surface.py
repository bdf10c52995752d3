"""What is public, and what stays light."""

from __future__ import annotations

import subprocess
import sys

import hyflash_bench


def test_every_public_name_is_there_and_nothing_else_is_told():
    assert hyflash_bench.__all__ == sorted(hyflash_bench.__all__)
    assert dir(hyflash_bench) == hyflash_bench.__all__
    for name in hyflash_bench.__all__:
        assert getattr(hyflash_bench, name) is not None


def test_importing_the_package_and_the_runner_leaves_torch_alone():
    code = (
        "import sys, hyflash_bench, hyflash_bench.runner.run\n"
        "heavy = {'torch', 'transformers', 'plotly'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
