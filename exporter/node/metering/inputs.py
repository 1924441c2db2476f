"""What the meter takes each tick: devices, and on each the slices and other users known by name.

Attribution makes these values, the meter integrates them. Invariant: None means "not measured"; a host
pid belongs to at most one owner of a device.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from contract.ids import DeviceUuid
from exporter.node.metering.counters import Labels, OwnerKey
from exporter.nvidia.source import DeviceReading


class OwnerInput(msgspec.Struct, frozen=True, gc=False):
    """A slice, or a known pod that uses the device without an allocation there, at one tick.

    Attributes:
        allocated_mib: Memory granted, 0 without an allocation.
        held_from_ms: Since when it is held (binding), Unix ms; None without an allocation.
        held_until_ms: Until when, if that is known already.
        pids: Its processes by host pid.
        used_bytes: Memory in use now; None = no source says.
        limit_bytes: What HAMi-core enforces; None = nothing.
        is_blocked: A higher priority holds it back right now.
        cache_sm_percent: SM use by the cache, 0-100; None = the cache does not measure.
        has_unknown_pids: It has living processes whose host pid nobody knows.
        has_source: Something on this node could measure it.
        has_sm_source: Its SM time could be measured too; nothing measures that of a MIG instance.
    """

    key: OwnerKey
    labels: Labels
    allocated_mib: int = 0
    held_from_ms: int | None = None
    held_until_ms: int | None = None
    pids: frozenset[int] = frozenset()
    used_bytes: int | None = None
    limit_bytes: int | None = None
    is_blocked: bool = False
    cache_sm_percent: int | None = None
    has_unknown_pids: bool = False
    has_source: bool = False
    has_sm_source: bool = True


@dataclass(frozen=True, slots=True)
class DeviceInput:
    """One device at one tick.

    Attributes:
        reading: Checked; None = no source answered for this device.
        owners: Slices and unallocated users on it.
        unknown_reason: Why SM time cannot be known when nothing measures it (`no_source`, …).
        registered_mib: What the card may hand out; None when nobody says.
        idle_power_mw: Idle power configured for the model, 0 = unknown.
        is_down: Counts as down: what is measured now is use of a degraded card.
    """

    device_uuid: DeviceUuid
    reading: DeviceReading | None
    owners: tuple[OwnerInput, ...] = ()
    unknown_reason: str = "no_source"
    registered_mib: int | None = None
    idle_power_mw: int = 0
    is_down: bool = False
