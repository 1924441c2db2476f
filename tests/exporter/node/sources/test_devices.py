"""The device source: kept open, tried again with growing pauses, let go for HAMi's MIG lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.ids import DeviceUuid
from exporter.node.clock import Instant
from exporter.node.sources.devices import DeviceReader
from exporter.node.tallies import Tallies
from exporter.nvidia.source import (
    DeviceReading,
    ProcessMemory,
    SourceDownError,
    UtilizationSample,
    XidEvent,
)

START_MS = 1_800_000_000_000


class Source:
    """A source that fails on demand."""

    name = "nvml"

    def __init__(self) -> None:
        self.fails_to_open = False
        self.fails_to_read = False
        self.readings: tuple[DeviceReading, ...] = ()
        self.calls: list[str] = []

    def open(self) -> None:
        self.calls.append("open")
        if self.fails_to_open:
            raise SourceDownError("library_not_found", "no library")

    def read(self) -> tuple[DeviceReading, ...]:
        self.calls.append("read")
        if self.fails_to_read:
            raise SourceDownError("driver_not_loaded", "no driver")
        return self.readings

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def tallies() -> Tallies:
    return Tallies()


@pytest.fixture
def reader(source: Source, tmp_path: Path, tallies: Tallies) -> DeviceReader:
    return DeviceReader(source, tmp_path / "mig.lock", tallies)


def _at(after_ms: int) -> Instant:
    return Instant(START_MS + after_ms, after_ms, after_ms)


def _card(**fields: object) -> DeviceReading:
    return DeviceReading(uuid=DeviceUuid("GPU-a"), index=0, model="T4", **fields)  # type: ignore[arg-type]


def test_a_source_that_is_missing_is_tried_again_with_growing_pauses(
    reader: DeviceReader, source: Source
) -> None:
    source.fails_to_open = True
    opened_at = []
    for after_ms in range(0, 20_000, 1_000):
        before = source.calls.count("open")
        assert reader.look(_at(after_ms), {}).failure == "library_not_found"
        if source.calls.count("open") > before:
            opened_at.append(after_ms)
    # Pauses of 1, 2, 4 and 8 seconds.
    assert opened_at == [0, 1_000, 3_000, 7_000, 15_000]


def test_a_node_that_never_had_a_source_loses_no_samples(
    reader: DeviceReader, source: Source, tallies: Tallies
) -> None:
    source.fails_to_open = True
    reader.look(_at(0), {})
    assert tallies.by_family() == {}
    assert not reader.had_readings


def test_a_lost_driver_is_closed_counted_and_opened_again(
    reader: DeviceReader, source: Source, tallies: Tallies
) -> None:
    reader.look(_at(0), {})
    source.fails_to_read = True
    assert reader.look(_at(1_000), {}).failure == "driver_not_loaded"
    source.fails_to_read = False
    assert reader.look(_at(1_500), {}).failure == "driver_not_loaded"
    assert reader.look(_at(2_000), {}).failure is None
    assert source.calls == ["open", "read", "read", "close", "open", "read"]
    assert tallies.by_family() == {"samples_lost_total": {("nvml",): 2}}


def test_while_the_mig_lock_exists_no_handle_is_open(
    reader: DeviceReader, source: Source, tmp_path: Path
) -> None:
    reader.look(_at(0), {})
    (tmp_path / "mig.lock").touch()
    assert reader.look(_at(1_000), {}).failure == "mig_lock"
    assert source.calls[-1] == "close"
    (tmp_path / "mig.lock").unlink()
    # No pause: the lock, not the source, was the reason.
    assert reader.look(_at(2_000), {}).failure is None


def test_the_last_record_of_a_process_that_has_just_gone_is_still_believed(
    reader: DeviceReader, source: Source, tallies: Tallies
) -> None:
    record = UtilizationSample(7, START_MS * 1_000, 50)
    source.readings = (_card(processes=(ProcessMemory(7, 1),), utilization=()),)
    reader.look(_at(0), {})
    source.readings = (_card(processes=(), utilization=(record,)),)
    assert reader.look(_at(1_000), {}).readings["GPU-a"].utilization == (record,)
    # A tick later nothing vouches for it any more, but for an owner.
    assert reader.look(_at(2_000), {"GPU-a": frozenset({7})}).readings["GPU-a"].utilization == (record,)
    assert reader.look(_at(3_000), {}).readings["GPU-a"].utilization == ()
    assert tallies.by_family() == {"values_refused_total": {("process_utilization", "not_running"): 1}}


def test_of_two_devices_with_one_uuid_the_first_is_shown(reader: DeviceReader, source: Source) -> None:
    source.readings = (_card(temperature_celsius=40), _card(temperature_celsius=50))
    assert reader.look(_at(0), {}).readings["GPU-a"].temperature_celsius == 40


def test_a_node_without_a_source_says_so(tmp_path: Path, tallies: Tallies) -> None:
    assert DeviceReader(None, tmp_path / "mig.lock", tallies).look(_at(0), {}).failure == "no_source"


def test_a_card_that_fails_makes_the_source_incomplete_and_hides_no_other(
    reader: DeviceReader, source: Source
) -> None:
    other = DeviceReading(uuid=DeviceUuid("GPU-b"), index=1, model="T4", power_mw=30_000)
    source.readings = (_card(failure="gpu_is_lost"), other)
    look = reader.look(_at(0), {})
    assert (look.failure, look.is_whole) == (None, False)
    assert look.readings["GPU-b"].power_mw == 30_000
    source.readings = (_card(failed_calls=("energy",)), other)
    assert not reader.look(_at(1_000), {}).is_whole
    source.readings = (_card(), other)
    assert reader.look(_at(2_000), {}).is_whole


def test_a_repeated_uuid_is_flagged_once(reader: DeviceReader, source: Source, tallies: Tallies) -> None:
    twin = DeviceReading(DeviceUuid("GPU-a@00000000:1B:00.0"), 1, "T4", has_repeated_uuid=True)
    source.readings = (_card(), twin)
    for after_ms in (0, 1_000):
        assert list(reader.look(_at(after_ms), {}).readings) == ["GPU-a", "GPU-a@00000000:1B:00.0"]
    assert tallies.by_family() == {"values_refused_total": {("device_uuid", "repeated"): 1}}


def test_what_happened_to_a_card_is_known_while_the_source_is_down(
    reader: DeviceReader, source: Source
) -> None:
    source.readings = (_card(xids=(XidEvent(79, START_MS),)),)
    reader.look(_at(0), {})
    source.fails_to_read = True
    look = reader.look(_at(1_000), {})
    assert look.readings == {}
    assert look.hardware["GPU-a"].fatal_xid == 79
