"""One moment on three clocks, and how a tick is placed on the wall clock.

Durations come from the boot clock, which goes on through a suspend; the wall clock only says where an
interval lies. Invariant: placed intervals never overlap and are exactly as long as the time measured,
so `covered + unknown ≤ to - from` holds for every fact made of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

STEP_BACK_MS = 1_000
"""A wall clock set back by more than this starts a new placing: the old one would lie in the future."""

ROUNDING_MS = 1
"""The wall clock may seem this much ahead of the boot clock only because both are read in whole ms."""

SUSPENDED_MS = 100
"""Boot clock and monotonic clock differ by more than this: the machine slept in between."""


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment: Unix time, the clock that stops in a suspend, and the one that does not."""

    wall_ms: int
    monotonic_ms: int
    boot_ms: int


Clock: TypeAlias = Callable[[], Instant]


@dataclass(frozen=True, slots=True)
class Interval:
    """The time of one tick, placed: `[from_ms, to_ms)` is exactly `elapsed_ms` long.

    Attributes:
        is_gap: Nothing may be interpolated over it: too long, a suspend, or a restart lies within.
        stepped_back: The wall clock was set back; what was accumulated must be closed first.
    """

    elapsed_ms: int
    from_ms: int
    to_ms: int
    is_gap: bool = False
    stepped_back: bool = False


def system_clock() -> Instant:
    """Now, on the three clocks of this machine."""
    return Instant(
        wall_ms=time.time_ns() // 1_000_000,
        monotonic_ms=time.monotonic_ns() // 1_000_000,
        boot_ms=time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000,
    )


def place(previous: Instant, placed_ms: int, now: Instant, *, gap_limit_ms: int) -> Interval:
    """The interval from the previous tick to this one.

    Args:
        previous: The tick before.
        placed_ms: Where the previous interval ended.
        now: This tick.
        gap_limit_ms: A longer interval is a gap.

    Returns:
        Of length 0 when the boot clock did not move (two ticks within a millisecond).
    """
    elapsed_ms = max(0, now.boot_ms - previous.boot_ms)
    slept_ms = elapsed_ms - (now.monotonic_ms - previous.monotonic_ms)
    is_gap = elapsed_ms > gap_limit_ms or slept_ms > SUSPENDED_MS
    if now.wall_ms < placed_ms + elapsed_ms - STEP_BACK_MS:
        return Interval(elapsed_ms, now.wall_ms - elapsed_ms, now.wall_ms, is_gap, stepped_back=True)
    to_ms = placed_ms + elapsed_ms
    if now.wall_ms > to_ms + ROUNDING_MS:
        to_ms = now.wall_ms
    return Interval(elapsed_ms, to_ms - elapsed_ms, to_ms, is_gap)
