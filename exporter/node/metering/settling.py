"""Conservation of SM time: who used what of one closed window, made to add up to the card.

Invariant of `conserve`: Σ owners + unattributed = busy ≤ one card over the window, exactly. Processes
that add up to more than the card was busy are scaled down in proportion; what the card was busy beyond
its known processes is unattributed.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from contract.apportion import apportion
from contract.units import PPM
from exporter.node.clock import Instant
from exporter.node.metering.counters import OwnerKey
from exporter.node.metering.inputs import DeviceInput
from exporter.node.metering.timeline import Timeline, Window

PPM_PER_PERCENT = PPM // 100


class Close(msgspec.Struct, frozen=True, gc=False):
    """A device's window by owner, before it is made to add up.

    Attributes:
        span_ms: How long the window was.
        rung: What measured it: `nvml`, `cache` or `none`.
        used_ppm_ms: SM time by owner; an owner that is missing used nothing, unless it is in `unknown`.
        percent: The newest sample by owner, 0-100; together not above the device's own newest.
        unknown: Owners whose use is not known, and why.
        unowned_ppm_ms: SM time of processes in no known pod.
        busy_ppm_ms: The device's own figure, None without one.
        limit_ppm_ms: One whole card.
    """

    span_ms: int
    rung: str
    used_ppm_ms: Mapping[OwnerKey, int] = msgspec.field(default_factory=dict)
    percent: Mapping[OwnerKey, int] = msgspec.field(default_factory=dict)
    unknown: Mapping[OwnerKey, str] = msgspec.field(default_factory=dict)
    unowned_ppm_ms: int = 0
    busy_ppm_ms: int | None = None
    limit_ppm_ms: int = 0


class Conserved(msgspec.Struct, frozen=True, gc=False):
    """SM time that adds up: Σ owners + `unattributed_ppm_ms` = `busy_ppm_ms`.

    Attributes:
        unowned_ppm_ms: The part of the unattributed time that processes of no known pod used.
        was_scaled: The processes claimed more than the card was busy.
    """

    owners_ppm_ms: dict[OwnerKey, int]
    unowned_ppm_ms: int
    unattributed_ppm_ms: int
    busy_ppm_ms: int
    was_scaled: bool


def conserve(close: Close) -> Conserved:
    """Make a window add up."""
    used = close.used_ppm_ms
    keys = sorted(used)
    claimed = [used[key] for key in keys]
    claimed.append(close.unowned_ppm_ms)
    most = close.limit_ppm_ms
    if close.busy_ppm_ms is not None:
        most = min(most, close.busy_ppm_ms)
    was_scaled = sum(claimed) > most
    parts = apportion(most, claimed) if was_scaled else claimed
    busy = sum(parts) if close.busy_ppm_ms is None else most
    return Conserved(
        owners_ppm_ms=dict(zip(keys, parts, strict=False)),
        unowned_ppm_ms=parts[-1],
        unattributed_ppm_ms=busy - sum(parts[:-1]),
        busy_ppm_ms=busy,
        was_scaled=was_scaled,
    )


def by_process(device: DeviceInput, recent: Mapping[int, OwnerKey], window: Window) -> Close:
    """The NVML rung: each process's records go to the owner of its host pid.

    Args:
        device: The tick's input.
        recent: Owners by host pid at this tick or the one before; a process that has just ended still
            has its last records to come.
        window: What the device's records say.
    """
    if not window.is_known:
        return unmeasured(device, window.span_ms, "gap")
    used: dict[OwnerKey, int] = {}
    percent: dict[OwnerKey, int] = {}
    unowned = 0
    newest = _newest(window)
    for pid, ppm_ms in window.process_ppm_ms.items():
        key = recent.get(pid)
        if key is None:
            unowned += ppm_ms
        else:
            used[key] = used.get(key, 0) + ppm_ms
            percent[key] = percent.get(key, 0) + newest[pid]
    uncertain: dict[OwnerKey, str] = {}
    if unowned:
        # A process whose host pid is not known may be the one nobody owns; if there is none, it was idle.
        uncertain = {
            owner.key: "uncertain"
            for owner in device.owners
            if owner.has_unknown_pids and owner.key not in used
        }
    return Close(
        window.span_ms, "nvml", used, percent, uncertain, unowned, window.busy_ppm_ms, window.limit_ppm_ms
    )


def _newest(window: Window) -> Mapping[int, int]:
    """The newest share by host pid; a record older than the device's newest sample may be over."""
    percents = window.process_percent
    most = 100 if window.busy_percent is None else window.busy_percent
    if sum(percents.values()) <= most:
        return percents
    pids = sorted(percents)
    return dict(zip(pids, apportion(most, [percents[pid] for pid in pids]), strict=True))


def by_cache(device: DeviceInput, span_ms: int, busy_ppm_ms: int | None) -> Close:
    """The cache rung: HAMi-core's own figure for each slice that has one; the rest is unknown."""
    percent = {
        owner.key: owner.cache_sm_percent for owner in device.owners if owner.cache_sm_percent is not None
    }
    return Close(
        span_ms,
        "cache" if percent else "none",
        {key: share * PPM_PER_PERCENT * span_ms for key, share in percent.items()},
        percent,
        {owner.key: device.unknown_reason for owner in device.owners if owner.key not in percent},
        busy_ppm_ms=busy_ppm_ms,
        limit_ppm_ms=span_ms * PPM,
    )


def unmeasured(device: DeviceInput, span_ms: int, reason: str) -> Close:
    """A stretch of time of which nothing is known."""
    return Close(span_ms, "none", unknown={owner.key: reason for owner in device.owners})


def close_window(
    device: DeviceInput, timeline: Timeline, recent: Mapping[int, OwnerKey], elapsed_ms: int, now: Instant
) -> Close | None:
    """Close a window on the best rung there is; None while the driver has not sampled again."""
    reading = device.reading
    if reading is None or (reading.utilization is None and reading.busy is None):
        left_open_ms = timeline.restart(reading, now.wall_ms * 1_000)
        return by_cache(device, left_open_ms + elapsed_ms, None)
    window = timeline.advance(reading, elapsed_ms, now.wall_ms * 1_000)
    if window is None:
        return None
    if reading.utilization is None:
        return by_cache(device, window.span_ms, window.busy_ppm_ms)
    return by_process(device, recent, window)
