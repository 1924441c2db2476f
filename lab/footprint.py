"""What the run costs this computer: memory and processor time of our processes, from /proc.

Invariant: the peak only grows. Memory is the sum of resident sets, so pages shared between processes
count more than once: an upper bound.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory in bytes and processor use in cores, now or at the peak."""

    memory_bytes: int = 0
    cores: float = 0.0


class FootprintMeter:
    """Reads processes now and then and keeps the peak.

    Args:
        proc_root: Where /proc is.
    """

    def __init__(self, proc_root: Path = Path("/proc")) -> None:
        self._proc = proc_root
        self._ticks: dict[int, int] = {}
        self._at_s: float | None = None
        self.peak = Footprint()

    def read(self, pids: Iterable[int], at_s: float) -> Footprint:
        """The footprint of these processes since the last call; `at_s` is a monotonic clock.

        Processor use of a process counts from its second reading on, so the first call gives 0 cores.
        """
        memory_bytes = spent = 0
        ticks: dict[int, int] = {}
        for pid in pids:
            try:
                resident_pages = int((self._proc / str(pid) / "statm").read_text("ascii").split()[1])
                fields = (self._proc / str(pid) / "stat").read_text("utf-8").rpartition(")")[2].split()
            except (OSError, IndexError):
                continue  # it ended between the list and the look
            memory_bytes += resident_pages * _PAGE_BYTES
            ticks[pid] = int(fields[11]) + int(fields[12])  # user and system time, fields 14 and 15
            spent += ticks[pid] - self._ticks.get(pid, ticks[pid])
        elapsed_s = 0.0 if self._at_s is None else at_s - self._at_s
        cores = spent / _TICKS_PER_S / elapsed_s if elapsed_s > 0 else 0.0
        self._ticks, self._at_s = ticks, at_s
        now = Footprint(memory_bytes, cores)
        self.peak = Footprint(max(self.peak.memory_bytes, now.memory_bytes), max(self.peak.cores, now.cores))
        return now
