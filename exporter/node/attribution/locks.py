"""Since when a region's lock has been held by the same process.

A process killed at the wrong moment leaves the lock held for ever, and every other process of the
container hangs in GPU calls. The lock can be read without taking it. Source: `reference/metering.md §4`.
"""

from __future__ import annotations

from exporter.hami.region import Region


class RegionLocks:
    """Remembers who held each file's lock at the last tick."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, int], int] = {}
        self._now: dict[tuple[str, int], int] = {}

    def begin(self) -> None:
        """Begin a tick: what is not seen in it is forgotten after it."""
        self._since, self._now = self._now, {}

    def held_since_ms(self, path: str, region: Region, now_ms: int) -> int | None:
        """When the present holder was first seen holding the lock, Unix ms; None while it is free."""
        if not region.owner_pid or not region.sem_held:
            return None
        key = (path, region.owner_pid)
        since_ms = self._now[key] = self._since.get(key, now_ms)
        return since_ms
