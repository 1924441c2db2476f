"""Which slots stand for a living process where the host's processes cannot be seen: NVML's list decides.

A killed process leaves its slot as it was, for ever. Invariant: a slot is called stale only on evidence:
NVML has not listed its process at several ticks in a row although the slot holds memory.
Source: `hami-core-cache-format.md §6`.
"""

from __future__ import annotations

from collections.abc import Iterable

from exporter.hami.region import Slot

ABSENT_TICKS = 3
"""NVML lists a process once it has a context; one tick without it proves nothing."""


class Liveness:
    """Judges slots; remembers for how many ticks NVML has missed a process."""

    def __init__(self) -> None:
        self._listed: frozenset[int] | None = None
        self._absent: dict[tuple[str, int, int], int] = {}
        self._absent_now: dict[tuple[str, int, int], int] = {}

    def begin(self, listed: Iterable[int] | None) -> None:
        """Begin a tick.

        Args:
            listed: Host pids of all processes NVML lists on any card; None = it did not say.
        """
        self._listed = None if listed is None else frozenset(listed)
        self._absent, self._absent_now = self._absent_now, {}

    def is_listed(self, path: str, slot: Slot, host_pid: int) -> bool:
        """Whether NVML lists a slot's process, or need not, or has missed it for a moment only.

        Args:
            path: The region's file.
            slot: One of its live slots.
            host_pid: Its process; 0 = not known.
        """
        if host_pid <= 0 or self._listed is None or host_pid in self._listed or not slot.devices:
            return True
        key = (path, slot.pid, host_pid)
        ticks = self._absent_now[key] = self._absent.get(key, 0) + 1
        return ticks < ABSENT_TICKS
