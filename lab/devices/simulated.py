"""Simulated cards: what NVML would say of the plan's processes at this moment.

Behind the same interface as NVML, so the exporter cannot tell. Like NVML it keeps its own last-seen
stamp per card and returns only records with use since then; like NVML its memory figures hold used and
driver-reserved apart. Invariant: a reading depends on (plan, start, now) and on the stamps alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from contract.ids import DeviceUuid
from contract.units import MIB
from exporter.nvidia.source import (
    BusySample,
    DeviceReading,
    ProcessMemory,
    SourceDownError,
    UtilizationSample,
    XidEvent,
)
from lab.devices.processes import GpuProcess, processes_of
from lab.scenarios.plan import Card, ClusterPlan

DRIVER_VERSION = "550.163.01"
SM_CLOCK_HZ = 1_590_000_000
MEMORY_CLOCK_HZ = 5_001_000_000
BUFFER_MS = 10_000
"""How far back the driver's sample buffer reaches: a first read sees no more than this."""


class StartFile:
    """Says when the scenario starts, once the player has decided it: the exporters are up before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._start_s: int | None = None

    def write(self, start_s: int) -> None:
        """Decide it; readers see the whole value or none."""
        draft = self.path.with_suffix(".new")
        draft.write_text(json.dumps({"start_s": start_s}), "utf-8")
        draft.replace(self.path)

    def start_s(self) -> int | None:
        """The start as Unix seconds, or None before it was decided."""
        if self._start_s is None and self.path.exists():
            self._start_s = int(json.loads(self.path.read_text("utf-8"))["start_s"])
        return self._start_s


class SimulatedDevices:
    """The cards of one cluster's node, as a `DeviceSource`.

    Args:
        cluster: Whose cards and processes.
        start_s: Gives the scenario's start (Unix seconds), or None before it.
        powered_s: When the cards' energy counters began, Unix seconds.
        now_s: The clock, Unix seconds.
    """

    name = "nvml"

    def __init__(
        self,
        cluster: ClusterPlan,
        start_s: Callable[[], int | None],
        *,
        powered_s: int,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._cards = cluster.cards
        self._processes = processes_of(cluster)
        self._start_s = start_s
        self._powered_ms = powered_s * 1_000
        self._now_s = now_s
        self._seen_ms: dict[str, int] = {}

    def open(self) -> None:
        """Forget the stamps, as a fresh NVML handle does."""
        self._seen_ms = {}

    def close(self) -> None:
        """Nothing is held."""

    def read(self) -> tuple[DeviceReading, ...]:
        """Every card, now."""
        now_ms = int(self._now_s() * 1_000)
        return tuple(self._card(card, now_ms) for card in self._cards)

    def _card(self, card: Card, now_ms: int) -> DeviceReading:
        start_s = self._start_s()
        mine = [process for process in self._processes if process.device_uuid == card.uuid]
        # Before the start every process lies in the future.
        start_ms = now_ms + 1 if start_s is None else start_s * 1_000
        at_ms = now_ms - start_ms
        living = [process for process in mine if process.lives_at(at_ms)]
        after_ms = self._seen_ms.get(card.uuid, now_ms - BUFFER_MS)
        self._seen_ms[card.uuid] = max(now_ms, after_ms)
        utilization = _utilization(mine, after_ms, now_ms, start_ms)
        used_bytes = sum(process.memory_bytes(at_ms) for process in living)
        reserved_bytes = card.driver_reserved_mib * MIB
        total_bytes = card.memory_mib * MIB
        busy_percent = min(100, sum(_running_percent(process, at_ms) for process in living))
        return DeviceReading(
            uuid=DeviceUuid(card.uuid),
            index=card.index,
            model=card.nvml_model,
            driver_version=DRIVER_VERSION,
            memory_total_bytes=total_bytes,
            memory_free_bytes=total_bytes - reserved_bytes - used_bytes,
            memory_used_bytes=used_bytes,
            memory_reserved_bytes=reserved_bytes,
            utilization_percent=busy_percent,
            processes=tuple(
                ProcessMemory(process.host_pid, process.memory_bytes(at_ms)) for process in living
            ),
            utilization=utilization,
            busy=_busy(utilization, after_ms, now_ms, card.sample_ms),
            energy_mj=self._energy_mj(card, mine, now_ms, at_ms),
            power_mw=card.idle_mw + card.busy_mw * busy_percent // 100,
            power_limit_mw=card.idle_mw + card.busy_mw,
            temperature_celsius=38 + busy_percent // 4,
            sm_clock_hz=SM_CLOCK_HZ,
            memory_clock_hz=MEMORY_CLOCK_HZ,
            xids=tuple(
                XidEvent(code, now_ms)
                for at_s, code in card.xids
                if after_ms - start_ms < at_s * 1_000 <= now_ms - start_ms
            ),
        )

    def _energy_mj(self, card: Card, mine: list[GpuProcess], now_ms: int, at_ms: int) -> int:
        """Idle watts since power-on, and the busy part for every SM second."""
        idle_mj = card.idle_mw * (now_ms - self._powered_ms) // 1_000
        busy_percent_ms = sum(process.busy_percent_ms(at_ms) for process in mine)
        return idle_mj + card.busy_mw * busy_percent_ms // 100 // 1_000


def _utilization(
    processes: list[GpuProcess], after_ms: int, up_to_ms: int, start_ms: int
) -> tuple[UtilizationSample, ...]:
    """Records with use since the last read: NVML leaves idle ones out."""
    return tuple(
        UtilizationSample(process.host_pid, (start_ms + end_ms) * 1_000, percent)
        for process in processes
        for end_ms, percent in process.samples(after_ms - start_ms, up_to_ms - start_ms)
        if percent
    )


def _busy(
    utilization: tuple[UtilizationSample, ...], after_ms: int, up_to_ms: int, sample_ms: int
) -> tuple[BusySample, ...]:
    """The card's own samples, idle ones included while the buffer holds them."""
    busy: dict[int, int] = {}
    for record in utilization:
        busy[record.stamp_us] = min(100, busy.get(record.stamp_us, 0) + record.sm_percent)
    numbers = range(after_ms // sample_ms + 1, up_to_ms // sample_ms + 1)
    stamps_us = [number * sample_ms * 1_000 for number in numbers]
    return tuple(BusySample(stamp_us, busy.get(stamp_us, 0)) for stamp_us in stamps_us)


def _running_percent(process: GpuProcess, at_ms: int) -> int:
    """The sample that runs now."""
    newest = list(process.samples(at_ms - process.sample_ms, at_ms))
    return newest[-1][1] if newest else 0


class NoDriver:
    """A node without a driver, as the mock device plugin's are: NVML's library is missing."""

    name = "nvml"

    def open(self) -> None:
        """Fails as NVML does.

        Raises:
            SourceDownError: Always.
        """
        raise SourceDownError("library_not_found", "NVML shared library is missing on this node")

    def read(self) -> tuple[DeviceReading, ...]:
        """Fails as `open` does."""
        raise SourceDownError("library_not_found", "NVML shared library is missing on this node")

    def close(self) -> None:
        """Nothing is held."""
