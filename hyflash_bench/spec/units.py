"""Sizes with units: what users write and what tables show."""

from __future__ import annotations

import re

from hyflash_bench.errors import SpecError

__all__ = ["format_bytes", "parse_bytes"]

_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_MAX_BYTES = 10**6 * 2**40
_SIZE = re.compile(r"^\s*(-?\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*$")


def parse_bytes(text: str) -> int:
    """Read ``512MiB``, ``1.5GiB`` or ``4GB`` as a number of bytes.

    Raises:
        SpecError: No unit, an unknown unit, zero, a negative or an absurd size.
    """
    match = _SIZE.match(text)
    unit = match.group(2).lower() if match else ""
    if match is None or unit not in _UNITS:
        raise SpecError(
            f"Memory size {text!r} is not a number with a unit. "
            "Write for example 512MiB, 1.5GiB or 4GB (units: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)."
        )
    number = float(match.group(1)) * _UNITS[unit]
    if number < 0:
        raise SpecError(f"Memory size {text[:40]!r} is negative; give at least 1B.")
    if number > _MAX_BYTES:
        raise SpecError(f"Memory size {text[:40]!r} is more than any machine has; give at most 1000000TiB.")
    size = int(number)
    if size < 1:
        raise SpecError(f"Memory size {text!r} is zero; give at least 1B.")
    return size


def format_bytes(size: int | float | None) -> str:
    """Bytes for people, in binary units: ``1.5 GiB``; an en dash when not measured."""
    if size is None:
        return "\N{EN DASH}"
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"
