"""Energy: what one interval's joules were spent on, and whose they are.

Invariant: the parts of one interval add up exactly, in mJ: Σ slices (active + idle) + unallocated +
unattributed = the board's delta. Nothing is spread over those who did not use it: active energy while
nobody had SM time, and the idle part of memory that nobody holds, stay unattributed.
Source: `reference/metering.md §8`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from contract.apportion import apportion
from exporter.node.checks import possible
from exporter.node.tallies import Tallies

MIN_LEARNED_MS = 10_000
"""Idle watts count as learned after this much time without a process."""

_FORGET_MS = 3_600_000


class IdlePower(msgspec.Struct, array_like=True):
    """Idle power of one card, learned while no process is on it; old time weighs less and less."""

    energy_mj: int = 0
    idle_ms: int = 0

    def learn(self, energy_mj: int, elapsed_ms: int) -> None:
        """Take in an interval in which no process was on the card."""
        self.energy_mj += energy_mj
        self.idle_ms += elapsed_ms
        if self.idle_ms > _FORGET_MS:
            self.energy_mj //= 2
            self.idle_ms //= 2

    def idle_part_mj(self, delta_mj: int, elapsed_ms: int, configured_mw: int) -> int:
        """The idle part of an interval's energy, never above it.

        Args:
            delta_mj: What the board used.
            elapsed_ms: How long the interval was.
            configured_mw: Idle power of the model, for as long as nothing was learned; 0 = unknown.
        """
        if self.idle_ms >= MIN_LEARNED_MS:
            return min(delta_mj, self.energy_mj * elapsed_ms // self.idle_ms)
        return min(delta_mj, configured_mw * elapsed_ms // 1_000)


class Board(msgspec.Struct, array_like=True):
    """The board's own energy counter as it was read last.

    Attributes:
        anchor_mj: Its value then; None before the first.
        boot_ms: When, on the boot clock.
    """

    anchor_mj: int | None = None
    boot_ms: int = 0

    def take(self, value_mj: int, boot_ms: int, bound_mw: int, tallies: Tallies) -> int | None:
        """Energy since the last reading, mJ; None for the first, or when the step is impossible.

        A counter that goes back, or grows by more than the board can draw, only sets a new anchor.
        """
        before, since_ms = self.anchor_mj, boot_ms - self.boot_ms
        self.anchor_mj, self.boot_ms = value_mj, boot_ms
        if before is None:
            return None
        return possible("energy", value_mj - before, 0, bound_mw * since_ms // 1_000, tallies)


class Shares(msgspec.Struct, frozen=True, gc=False):
    """What weighs on one card in one interval.

    Attributes:
        sm_ppm_ms: SM time of each owner, slices first, then unallocated users.
        sm_unattributed_ppm_ms: SM time of processes in no known pod.
        allocated_mib: Memory granted to each slice, in the same order.
        registered_mib: What the card may hand out; None when nobody says.
    """

    sm_ppm_ms: Sequence[int]
    sm_unattributed_ppm_ms: int
    allocated_mib: Sequence[int]
    registered_mib: int | None


class Split(msgspec.Struct, frozen=True, gc=False):
    """An interval's energy by owner, mJ; `active` is as long as the owners, `idle` as the slices."""

    active_mj: tuple[int, ...]
    idle_mj: tuple[int, ...]
    active_unattributed_mj: int
    idle_unattributed_mj: int


def split(delta_mj: int, idle_mj: int, shares: Shares) -> Split:
    """Split one interval's energy; the parts add up to `delta_mj`."""
    active, active_rest = _split_active(delta_mj - idle_mj, shares)
    idle, idle_rest = _split_idle(idle_mj, shares)
    return Split(active, idle, active_rest, idle_rest)


def _split_active(active_mj: int, shares: Shares) -> tuple[tuple[int, ...], int]:
    weights = [*shares.sm_ppm_ms, shares.sm_unattributed_ppm_ms]
    if not any(weights):
        return (0,) * len(shares.sm_ppm_ms), active_mj
    *parts, rest = apportion(active_mj, weights)
    return tuple(parts), rest


def _split_idle(idle_mj: int, shares: Shares) -> tuple[tuple[int, ...], int]:
    held = list(shares.allocated_mib)
    if shares.registered_mib is None or not any(held):
        return (0,) * len(held), idle_mj
    # Scaled cards may hand out more than they registered: then the weights are normalised.
    free = max(0, shares.registered_mib - sum(held))
    *parts, rest = apportion(idle_mj, [*held, free])
    return tuple(parts), rest
