"""Which slots of a region belong to a process that still lives on the host.

A killed process leaves its slot as it was, for ever. Invariant: a slot is called stale only on evidence:
its host process is gone from a `/proc` that shows the host's processes, or NVML has not listed it at
several ticks in a row although the slot holds memory. Source: `hami-core-cache-format.md §6`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from exporter.hami.region import Slot

ABSENT_TICKS = 3
"""NVML lists a process once it has a context; one tick without it proves nothing."""


class Liveness:
    """Judges slots; remembers for how many ticks NVML has missed a process.

    Args:
        proc_root: The host's `/proc`; None = processes are not looked up.
    """

    def __init__(self, proc_root: Path | None) -> None:
        self._proc_root = proc_root
        self._sees_host = False
        self._listed: frozenset[int] | None = None
        self._absent: dict[tuple[str, int], int] = {}
        self._absent_now: dict[tuple[str, int], int] = {}

    def begin(self, listed: Iterable[int] | None) -> None:
        """Begin a tick.

        Args:
            listed: Host pids of all processes NVML lists on any card; None = it did not say.
        """
        self._listed = None if listed is None else frozenset(listed)
        self._absent, self._absent_now = self._absent_now, {}
        self._sees_host = self._proc_root is not None and (
            _is_kernel_thread(self._proc_root) or any(self._exists(pid) for pid in self._listed or ())
        )

    def is_live(self, path: str, slot: Slot) -> bool:
        """Whether a slot that the region counts stands for a living process.

        Args:
            path: The region's file.
            slot: One of its live slots.
        """
        if slot.hostpid <= 0:
            return True
        if self._sees_host:
            return self._exists(slot.hostpid)
        if self._listed is None or slot.hostpid in self._listed or not slot.devices:
            return True
        key = (path, slot.hostpid)
        ticks = self._absent_now[key] = self._absent.get(key, 0) + 1
        return ticks < ABSENT_TICKS

    def exists(self, hostpid: int) -> bool | None:
        """Whether a host process exists; None where that cannot be seen."""
        return self._exists(hostpid) if self._sees_host else None

    def _exists(self, pid: int) -> bool:
        return self._proc_root is not None and (self._proc_root / str(pid)).exists()


def _is_kernel_thread(proc_root: Path) -> bool:
    """Pid 2 is the kernel's thread parent in the host's pid namespace and nowhere else."""
    try:
        return (proc_root / "2" / "comm").read_text("utf-8").strip() == "kthreadd"
    except (OSError, UnicodeDecodeError):
        return False
