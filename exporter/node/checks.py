"""Value checks: nothing that NVML reports is used before it was found possible.

NVML returns blanks (all ones, the top bit set), error codes stored as numbers and now and then an
absurd reading. Invariant: a refused value is absent for the tick, is counted by quantity and reason,
and moves no counter. Bounds: `reference/metering.md §3`.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import msgspec

from exporter.node.tallies import Tallies
from exporter.nvidia.source import (
    BusySample,
    DeviceReading,
    MigInstance,
    ProcessMemory,
    UtilizationSample,
)

US_PER_DAY = 86_400_000_000
MAX_CLOCK_HZ = 10_000_000_000
MAX_POWER_MW_UNKNOWN_BOARD = 3_000_000
MAX_DEVICE_BYTES = 1 << 44
"""16 TiB: no card holds more; the bound while a card's own total is unknown."""

MAX_COUNT = (1 << 62) - 1
MIN_TEMPERATURE_CELSIUS, MAX_TEMPERATURE_CELSIUS = -20, 150

REFUSED = "values_refused_total"

_BLANKS = frozenset({0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, -1})


def possible(quantity: str, value: int | None, low: int, high: int, tallies: Tallies) -> int | None:
    """The value if it lies within the bounds, else None and one more refusal."""
    if value is None or low <= value <= high:
        return value
    if value in _BLANKS or value >= 1 << 63:
        reason = "blank"
    else:
        reason = "below_range" if value < low else "above_range"
    tallies.count(REFUSED, quantity, reason)
    return None


def power_bound_mw(power_limit_mw: int | None) -> int:
    """Twice the board's limit: no reading above it is believed."""
    return 2 * power_limit_mw if power_limit_mw else MAX_POWER_MW_UNKNOWN_BOARD


def checked(
    reading: DeviceReading, tallies: Tallies, *, now_us: int, known_pids: frozenset[int] | None
) -> DeviceReading:
    """The reading with every impossible value removed.

    Args:
        reading: As the source gave it.
        tallies: Where removals are counted.
        now_us: Wall clock, microseconds: stamps lie within a day of it.
        known_pids: Processes that run or ran a tick ago; a record of any other is dropped. None when
            nobody knows which processes run.
    """
    total = possible("memory", reading.memory_total_bytes, 0, MAX_DEVICE_BYTES, tallies)
    most = MAX_DEVICE_BYTES if total is None else total
    limit = possible("power_limit", reading.power_limit_mw, 1, MAX_POWER_MW_UNKNOWN_BOARD, tallies)
    low_us, high_us = now_us - US_PER_DAY, now_us + US_PER_DAY
    found: dict[str, Any] = {
        "memory_total_bytes": total,
        "memory_free_bytes": possible("memory", reading.memory_free_bytes, 0, most, tallies),
        "memory_used_bytes": possible("memory", reading.memory_used_bytes, 0, most, tallies),
        "memory_reserved_bytes": possible("memory", reading.memory_reserved_bytes, 0, most, tallies),
        "utilization_percent": possible("utilization", reading.utilization_percent, 0, 100, tallies),
        "memory_utilization_percent": possible(
            "utilization", reading.memory_utilization_percent, 0, 100, tallies
        ),
        "processes": _processes(reading.processes, most, tallies),
        "utilization": _utilization(reading.utilization, tallies, low_us, high_us, known_pids),
        "busy": _busy(reading.busy, tallies, low_us, high_us),
        "energy_mj": possible("energy", reading.energy_mj, 0, MAX_COUNT, tallies),
        "power_mw": possible("power", reading.power_mw, 0, power_bound_mw(limit), tallies),
        "power_limit_mw": limit,
        "temperature_celsius": possible(
            "temperature",
            reading.temperature_celsius,
            MIN_TEMPERATURE_CELSIUS,
            MAX_TEMPERATURE_CELSIUS,
            tallies,
        ),
        "sm_clock_hz": possible("clock", reading.sm_clock_hz, 0, MAX_CLOCK_HZ, tallies),
        "memory_clock_hz": possible("clock", reading.memory_clock_hz, 0, MAX_CLOCK_HZ, tallies),
        "ecc_corrected": possible("ecc", reading.ecc_corrected, 0, MAX_COUNT, tallies),
        "ecc_uncorrected": possible("ecc", reading.ecc_uncorrected, 0, MAX_COUNT, tallies),
        "throttle_ns": _throttle(reading.throttle_ns, tallies),
        "mig": _instances(reading.mig, most, tallies),
    }
    # Nearly always all is possible, and a reading is long.
    refused = {name: value for name, value in found.items() if value is not getattr(reading, name)}
    return dataclasses.replace(reading, **refused) if refused else reading


def _processes(
    processes: tuple[ProcessMemory, ...] | None, most_bytes: int, tallies: Tallies
) -> tuple[ProcessMemory, ...] | None:
    if processes is None:
        return None
    are_possible = [each.used_bytes is None or 0 <= each.used_bytes <= most_bytes for each in processes]
    if all(are_possible):
        return processes
    found = []
    for process in processes:
        used = possible("process_memory", process.used_bytes, 0, most_bytes, tallies)
        found.append(
            process if used == process.used_bytes else msgspec.structs.replace(process, used_bytes=used)
        )
    return tuple(found)


def _throttle(
    counters: tuple[tuple[str, int], ...] | None, tallies: Tallies
) -> tuple[tuple[str, int], ...] | None:
    if counters is None or all(0 <= value <= MAX_COUNT for _, value in counters):
        return counters
    return tuple(
        (reason, value)
        for reason, value in counters
        if possible("throttle", value, 0, MAX_COUNT, tallies) is not None
    )


def _instances(
    instances: tuple[MigInstance, ...] | None, most_bytes: int, tallies: Tallies
) -> tuple[MigInstance, ...] | None:
    if not instances:
        return instances
    found = []
    for each in instances:
        total = possible("memory", each.memory_total_bytes, 0, most_bytes, tallies)
        most = most_bytes if total is None else total
        used = possible("memory", each.memory_used_bytes, 0, most, tallies)
        is_whole = total is each.memory_total_bytes and used is each.memory_used_bytes
        found.append(
            each if is_whole else dataclasses.replace(each, memory_total_bytes=total, memory_used_bytes=used)
        )
    return instances if all(map(operator.is_, found, instances)) else tuple(found)


def _utilization(
    samples: tuple[UtilizationSample, ...] | None,
    tallies: Tallies,
    low_us: int,
    high_us: int,
    known_pids: frozenset[int] | None,
) -> tuple[UtilizationSample, ...] | None:
    if samples is None:
        return None
    are_possible = [
        0 <= sample.sm_percent <= 100
        and low_us <= sample.stamp_us <= high_us
        and (known_pids is None or sample.pid in known_pids)
        for sample in samples
    ]
    if all(are_possible):
        return samples
    kept = []
    for sample in samples:
        if possible("process_utilization", sample.sm_percent, 0, 100, tallies) is None:
            continue
        if possible("stamp", sample.stamp_us, low_us, high_us, tallies) is None:
            continue
        if known_pids is not None and sample.pid not in known_pids:
            tallies.count(REFUSED, "process_utilization", "not_running")
            continue
        kept.append(sample)
    return tuple(kept)


def _busy(
    samples: tuple[BusySample, ...] | None, tallies: Tallies, low_us: int, high_us: int
) -> tuple[BusySample, ...] | None:
    if samples is None or all(
        0 <= sample.busy_percent <= 100 and low_us <= sample.stamp_us <= high_us for sample in samples
    ):
        return samples
    return tuple(
        sample
        for sample in samples
        if possible("utilization", sample.busy_percent, 0, 100, tallies) is not None
        and possible("stamp", sample.stamp_us, low_us, high_us, tallies) is not None
    )
