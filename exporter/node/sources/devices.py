"""Keeps the device source open, checks what it says, and lets go of it when it must.

Invariants: while HAMi's MIG lock exists no handle is open; a source that is gone is tried again with
growing pauses; a card that fails is its own trouble and hides no other.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from exporter.node.checks import REFUSED, checked
from exporter.node.clock import Instant
from exporter.node.sources.hardware import CardHistory, Hardware, HardwareView
from exporter.node.tallies import Tallies
from exporter.nvidia.source import DeviceReading, DeviceSource, SourceDownError

FIRST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 60_000
MIG_LOCK = "mig_lock"
SAMPLES_LOST = "samples_lost_total"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeviceLook:
    """What the source said at one tick.

    Attributes:
        readings: Checked, by uuid; empty when the source is down.
        hardware: What happened to each card so far, by uuid; also while the source is down.
        failure: Why there are none; None = it answered.
    """

    readings: Mapping[str, DeviceReading] = field(default_factory=dict)
    hardware: Mapping[str, HardwareView] = field(default_factory=dict)
    failure: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether every card answered every question."""
        return self.failure is None and not any(
            reading.failure or reading.failed_calls for reading in self.readings.values()
        )


class DeviceReader:
    """Reads a device source tick by tick.

    Args:
        source: Where readings come from; None = this node has none.
        mig_lock_file: While it exists the source is closed.
        tallies: Where refused values and lost ticks are counted.
        had_readings: The source has answered in an earlier run.
        histories: What happened to the cards in an earlier run.
    """

    def __init__(
        self,
        source: DeviceSource | None,
        mig_lock_file: Path,
        tallies: Tallies,
        *,
        had_readings: bool = False,
        histories: Iterable[CardHistory] = (),
    ) -> None:
        self.had_readings = had_readings
        self._source = source
        self._mig_lock_file = mig_lock_file
        self._tallies = tallies
        self._is_open = False
        self._retry_at_ms = 0
        self._pause_ms = FIRST_PAUSE_MS
        self._failure: str | None = None
        self._running: dict[str, frozenset[int]] = {}
        self._hardware = Hardware(tallies, histories)
        self._repeated: set[str] = set()

    @property
    def name(self) -> str:
        """The collector's name."""
        return self._source.name if self._source is not None else "nvml"

    def look(self, now: Instant, owned: Mapping[str, frozenset[int]]) -> DeviceLook:
        """Read every card once.

        Args:
            now: This tick.
            owned: Host pids with an owner at the last tick, by device uuid: their last records may come
                after they have gone from the process list.
        """
        failure = self._open(now)
        raw: tuple[DeviceReading, ...] = ()
        if failure is None and self._source is not None:
            try:
                raw = self._source.read()
            except SourceDownError as error:
                failure = self._lose(error, now)
        if failure is not None:
            if self.had_readings:
                self._tallies.count(SAMPLES_LOST, self.name)
            self._running = {}
            return DeviceLook(hardware=self._hardware.views(), failure=failure)
        self.had_readings = True
        readings: dict[str, DeviceReading] = {}
        for reading in raw:
            if reading.has_repeated_uuid or reading.uuid in readings:
                self._flag_repeated(reading)
            if reading.uuid not in readings:
                readings[reading.uuid] = self._checked(reading, now, owned)
        self._hardware.take(readings.values(), now)
        return DeviceLook(readings, self._hardware.views())

    def histories(self) -> list[CardHistory]:
        """What happened to the cards, to be stored."""
        return self._hardware.dump()

    def close(self) -> None:
        """Let go of the source."""
        if self._is_open and self._source is not None:
            self._source.close()
        self._is_open = False

    def _open(self, now: Instant) -> str | None:
        """Why the source cannot be read now; None when it is open."""
        if self._source is None:
            return "no_source"
        if self._mig_lock_file.exists():
            if self._is_open:
                _log.info("%s exists: the device source is let go until it is gone", self._mig_lock_file)
                self.close()
            self._failure = MIG_LOCK
            return MIG_LOCK
        if self._is_open:
            return None
        if self._failure not in {None, MIG_LOCK} and now.boot_ms < self._retry_at_ms:
            return self._failure
        try:
            self._source.open()
        except SourceDownError as error:
            return self._lose(error, now)
        self._is_open, self._failure, self._pause_ms = True, None, FIRST_PAUSE_MS
        return None

    def _lose(self, error: SourceDownError, now: Instant) -> str:
        if self._failure != error.reason:
            _log.warning("device source: %s; trying again from time to time", error)
        self.close()
        self._failure = error.reason
        self._retry_at_ms = now.boot_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)
        return error.reason

    def _flag_repeated(self, reading: DeviceReading) -> None:
        if reading.uuid not in self._repeated:
            self._repeated.add(reading.uuid)
            self._tallies.count(REFUSED, "device_uuid", "repeated")
            _log.warning("two devices have the UUID of %s (index %d)", reading.uuid, reading.index)

    def _checked(
        self, reading: DeviceReading, now: Instant, owned: Mapping[str, frozenset[int]]
    ) -> DeviceReading:
        known: frozenset[int] | None = None
        if reading.processes is not None:
            running = frozenset(process.pid for process in reading.processes)
            known = running | self._running.get(reading.uuid, frozenset())
            known |= owned.get(reading.uuid, frozenset())
            self._running[reading.uuid] = running
        return checked(reading, self._tallies, now_us=now.wall_ms * 1_000, known_pids=known)
