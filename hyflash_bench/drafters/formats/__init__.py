"""Drafter checkpoints in every layout that is read: ours, DFlash, EAGLE, Medusa.

``load_drafter`` takes a folder or a hub id and gives a drafter that is ready to run::

    target = load_target(TargetSpec(target="Qwen/Qwen3-4B"))
    drafter = load_drafter("z-lab/Qwen3-4B-DFlash-b16", target.load_context())

On the command line a folder is a drafter's name, and every drafter with weights takes one, or a hub
id, as its checkpoint::

    hyflash-bench run quick --target Qwen/Qwen3-4B --drafter ./Qwen3-4B-DFlash-b16
    hyflash-bench run quick --target Qwen/Qwen3-4B --drafter dflash:checkpoint=z-lab/Qwen3-4B-DFlash-b16
"""

from hyflash_bench.drafters.formats.load import Network, load_drafter, read_network

__all__ = ["Network", "load_drafter", "read_network"]
