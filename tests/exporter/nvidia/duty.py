"""Loads held to a duty cycle, as a driver samples them: exact work over time, cut into its samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Load(Protocol):
    """Some process's use of a card."""

    def work(self, until_us: int) -> int:
        """Percent × µs from time 0 on."""
        ...


@dataclass(frozen=True)
class DutyCycle:
    """Busy with `percent` of the card at the beginning of each period, so long that the mean is 30 %."""

    period_us: int
    percent: int = 84

    def work(self, until_us: int) -> int:
        cycles, rest_us = divmod(until_us, self.period_us)
        return 30 * self.period_us * cycles + min(self.percent * rest_us, 30 * self.period_us)


@dataclass(frozen=True)
class Trace:
    """One recorded percentage a second, over and over."""

    percents: Sequence[int]

    def work(self, until_us: int) -> int:
        seconds, rest_us = divmod(until_us, 1_000_000)
        cycles, at = divmod(seconds, len(self.percents))
        whole = cycles * sum(self.percents) + sum(self.percents[:at])
        return whole * 1_000_000 + self.percents[at] * rest_us


def samples(load: Load, sample_us: int, from_us: int, until_us: int) -> list[tuple[int, int]]:
    """The driver's samples that end within (from, until]: (stamp, whole percent of the card)."""
    found = []
    for number in range(from_us // sample_us + 1, until_us // sample_us + 1):
        begin_us, end_us = (number - 1) * sample_us, number * sample_us
        found.append((end_us, round((load.work(end_us) - load.work(begin_us)) / sample_us)))
    return found


def driver_lines(load: Load, pid: int, sample_us: int, now_us: int, zero_us: int) -> tuple[str, ...]:
    """What the mock driver answers at a moment: one card with one process, and its last six seconds.

    Args:
        load: What the process does.
        pid: Its host pid.
        sample_us: How long a sample of the driver is.
        now_us: The moment, Unix µs.
        zero_us: When the load began.
    """
    kept = samples(load, sample_us, max(0, now_us - zero_us - 6_000_000), now_us - zero_us)
    # The driver leaves out processes without use, and keeps the card's own zeros.
    records = " ".join(f"{pid} {zero_us + stamp} {share}" for stamp, share in kept if share)
    busy = " ".join(f"{zero_us + stamp} {share}" for stamp, share in kept)
    return (
        f"0 nvmlDeviceGetComputeRunningProcesses_v3 0 {pid} 104857600",
        f"0 nvmlDeviceGetProcessesUtilizationInfo 0 {records}",
        f"0 nvmlDeviceGetSamples 0 {busy}",
    )
