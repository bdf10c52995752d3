"""What trained drafters weigh and hold, in closed form from their configurations alone. No torch.

The drafters' own ``memory_formula`` and the planning of what fits use the same functions, so a
drafter that is too large to load is measured by the same rule as one that runs.
"""

from hyflash_bench.footprint.held import (
    STATE_BYTES,
    TOKEN_BYTES,
    Held,
    block_held,
    dflash_held,
    eagle_held,
    eagle_rows,
    last_shift,
    medusa_held,
    recent_held,
    recent_rows,
    window_rows,
)
from hyflash_bench.footprint.parts import ID_BYTES, block_parts, eagle_parts, medusa_parts, weight_bytes
from hyflash_bench.footprint.rows import (
    BLOCK_ROWS,
    KV_DTYPES,
    KVChoice,
    KVDtype,
    kv_row_bytes,
    rounded_up,
    slots_for,
    widest_window,
)
from hyflash_bench.footprint.sizes import (
    BlockSizes,
    DFlashSizes,
    EagleSizes,
    MedusaSizes,
    NetworkSizes,
    TargetSizes,
)

__all__ = [
    "BLOCK_ROWS",
    "ID_BYTES",
    "KV_DTYPES",
    "STATE_BYTES",
    "TOKEN_BYTES",
    "BlockSizes",
    "DFlashSizes",
    "EagleSizes",
    "Held",
    "KVChoice",
    "KVDtype",
    "MedusaSizes",
    "NetworkSizes",
    "TargetSizes",
    "block_held",
    "block_parts",
    "dflash_held",
    "eagle_held",
    "eagle_parts",
    "eagle_rows",
    "kv_row_bytes",
    "last_shift",
    "medusa_held",
    "medusa_parts",
    "recent_held",
    "recent_rows",
    "rounded_up",
    "slots_for",
    "weight_bytes",
    "widest_window",
    "window_rows",
]
