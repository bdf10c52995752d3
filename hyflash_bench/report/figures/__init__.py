"""One function per figure: a DataFrame in, a plotly figure out.

Every function takes the frame that its docstring names and, optionally, ``looks``: how a page draws each
drafter (:func:`~hyflash_bench.report.theme.styles`), so that a drafter looks the same on all figures.
"""

from hyflash_bench.report.figures.bars import (
    decode_time,
    first_token_time,
    metric_by_group,
    speed_by_drafter,
)
from hyflash_bench.report.figures.lines import (
    acceptance_by_context,
    break_even_by_context,
    bytes_by_context,
    position_acceptance,
    speed_by_context,
)
from hyflash_bench.report.figures.scatter import pareto, simulated_by_device
from hyflash_bench.report.theme import styles

__all__ = [
    "acceptance_by_context",
    "break_even_by_context",
    "bytes_by_context",
    "decode_time",
    "first_token_time",
    "metric_by_group",
    "pareto",
    "position_acceptance",
    "simulated_by_device",
    "speed_by_context",
    "speed_by_drafter",
    "styles",
]
