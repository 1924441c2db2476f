"""Impossible values are left out, counted by reason, and never used."""

from __future__ import annotations

from typing import Any

import pytest

from contract.ids import DeviceUuid
from exporter.node.checks import checked
from exporter.node.tallies import Tallies
from exporter.nvidia.source import (
    BusySample,
    DeviceReading,
    MigInstance,
    ProcessMemory,
    UtilizationSample,
)

NOW_US = 1_800_000_000_000_000
MIB = 1_048_576
T4 = {"memory_total_bytes": 15_360 * MIB, "power_limit_mw": 70_000}


def _checked(known_pids: Any = None, **fields: Any) -> tuple[DeviceReading, dict[tuple[str, ...], int]]:
    tallies = Tallies()
    reading = DeviceReading(uuid=DeviceUuid("GPU-a"), index=0, model="T4", **(T4 | fields))
    found = checked(reading, tallies, now_us=NOW_US, known_pids=known_pids)
    return found, tallies.by_family().get("values_refused_total", {})


@pytest.mark.parametrize(
    ("field", "quantity", "good", "bad", "reason"),
    [
        ("utilization_percent", "utilization", 100, 101, "above_range"),
        ("utilization_percent", "utilization", 0, 0xFFFFFFFF, "blank"),
        ("temperature_celsius", "temperature", -20, -21, "below_range"),
        ("temperature_celsius", "temperature", 150, 151, "above_range"),
        ("power_mw", "power", 140_000, 140_001, "above_range"),
        ("sm_clock_hz", "clock", 10**10, 10**10 + 1, "above_range"),
        ("memory_clock_hz", "clock", 0, -1, "blank"),
        ("memory_used_bytes", "memory", 15_360 * MIB, 15_360 * MIB + 1, "above_range"),
        ("memory_free_bytes", "memory", 0, 2**64 - 1, "blank"),
        ("energy_mj", "energy", 2**62 - 1, 2**63, "blank"),
        ("ecc_corrected", "ecc", 0, 2**64 - 1, "blank"),
        ("ecc_uncorrected", "ecc", 2**62 - 1, 2**62, "above_range"),
    ],
)
def test_a_value_out_of_its_range_is_absent_and_counted(
    field: str, quantity: str, good: int, bad: int, reason: str
) -> None:
    accepted, nothing = _checked(**{field: good})
    assert getattr(accepted, field) == good
    assert nothing == {}
    refused, counts = _checked(**{field: bad})
    assert getattr(refused, field) is None
    assert counts == {(quantity, reason): 1}


def test_power_of_a_board_without_a_known_limit_may_reach_3000_watts() -> None:
    assert _checked(power_limit_mw=None, power_mw=3_000_000)[0].power_mw == 3_000_000
    assert _checked(power_limit_mw=None, power_mw=3_000_001)[0].power_mw is None


def test_a_record_above_100_percent_or_of_a_process_that_does_not_run_is_dropped_and_counted() -> None:
    records = (
        UtilizationSample(7, NOW_US, 100),
        UtilizationSample(7, NOW_US, 3_452_816),
        UtilizationSample(8, NOW_US, 10),
    )
    reading, counts = _checked(frozenset({7}), utilization=records)
    assert reading.utilization == (records[0],)
    assert counts == {
        ("process_utilization", "above_range"): 1,
        ("process_utilization", "not_running"): 1,
    }


def test_where_nobody_lists_processes_no_record_is_dropped_for_its_pid() -> None:
    records = (UtilizationSample(8, NOW_US, 10),)
    assert _checked(None, utilization=records)[0].utilization == records


def test_stamps_a_day_away_are_refused() -> None:
    day_us = 86_400_000_000
    reading, counts = _checked(
        utilization=(UtilizationSample(7, NOW_US - day_us - 1, 10), UtilizationSample(7, NOW_US + day_us, 9)),
        busy=(BusySample(NOW_US + day_us + 1, 10),),
    )
    assert reading.utilization == (UtilizationSample(7, NOW_US + day_us, 9),)
    assert reading.busy == ()
    assert counts == {("stamp", "below_range"): 1, ("stamp", "above_range"): 1}


def test_memory_of_a_process_above_the_card_is_unknown_and_the_process_stays() -> None:
    reading, counts = _checked(processes=(ProcessMemory(7, 15_361 * MIB), ProcessMemory(8, None)))
    assert reading.processes == (ProcessMemory(7, None), ProcessMemory(8, None))
    assert counts == {("process_memory", "above_range"): 1}


def test_not_measured_stays_not_measured() -> None:
    reading, counts = _checked()
    assert (reading.utilization, reading.busy, reading.processes) == (None, None, None)
    assert counts == {}


def test_a_blank_throttle_counter_is_left_out_and_the_others_stay() -> None:
    found, counts = _checked(throttle_ns=(("sync_boost", 2**64 - 1), ("sw_power_cap", 5)))
    assert found.throttle_ns == (("sw_power_cap", 5),)
    assert counts == {("throttle", "blank"): 1}


def test_a_mig_instance_uses_no_more_than_it_has() -> None:
    def instance(total_bytes: int | None, used_bytes: int | None) -> MigInstance:
        return MigInstance("MIG-1", "1g.10gb", 9, 0, total_bytes, used_bytes)

    found, counts = _checked(
        mig=(instance(512, 512), instance(512, 513), instance(None, 15_361 * MIB), instance(2**64 - 1, None))
    )
    assert found.mig == (instance(512, 512), instance(512, None), instance(None, None), instance(None, None))
    assert counts == {("memory", "above_range"): 2, ("memory", "blank"): 1}


def test_a_reading_in_which_all_is_possible_is_handed_on_as_it_is() -> None:
    """A node has up to sixteen cards and looks at them every second: nothing is copied for nothing."""
    tallies = Tallies()
    instance = MigInstance("MIG-1", "1g.10gb", 7, 0, 10 << 30, 1 << 30)
    reading = DeviceReading(
        DeviceUuid("GPU-1"),
        0,
        "A100",
        memory_total_bytes=80 << 30,
        memory_used_bytes=1 << 30,
        processes=(ProcessMemory(7, 1 << 20), ProcessMemory(8, None)),
        utilization=(UtilizationSample(7, NOW_US, 40),),
        busy=(BusySample(NOW_US, 40),),
        power_mw=250_000,
        throttle_ns=(("thermal", 5),),
        mig=(instance,),
    )
    assert checked(reading, tallies, now_us=NOW_US, known_pids=frozenset({7, 8})) is reading
    assert tallies.packed() == []
