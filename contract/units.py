"""Units: whole numbers in facts and SQL, base units on metric pages, and the factors between them.

Facts and SQL hold MiB, ms, MiB·ms, ppm·ms and mJ as integers; pages hold bytes, seconds, joules and
ratios 0-1. A conversion is written once, here.
"""

from __future__ import annotations

MIB = 1024 * 1024
"""Bytes in a mebibyte, HAMi's unit of memory."""

PPM = 1_000_000
"""One whole card (or one whole SM array) in parts per million."""

MS_PER_SECOND = 1_000
MS_PER_HOUR = 3_600_000
MS_PER_DAY = 24 * MS_PER_HOUR
MJ_PER_JOULE = 1_000
MJ_PER_KWH = 3_600_000 * MJ_PER_JOULE

CARD_HOUR_PPM_MS = PPM * MS_PER_HOUR
"""One card for one hour, in ppm·ms."""


def hour_start_ms(at_ms: int) -> int:
    """The start of the UTC hour that holds an instant (Unix milliseconds)."""
    return at_ms - at_ms % MS_PER_HOUR
