"""Puts one tick's snapshot together from attribution, counters and the sources' own health. Pure.

Invariant: a page never shows two slices under the same labels: of a pod that was made again under its
old name the new slice replaces the ended one at once (its final values have left as facts).
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterable
from types import MappingProxyType

from exporter.node.attribution.joining import Sources
from exporter.node.attribution.owners import Attribution, down_reason
from exporter.node.metering.counters import DeviceCounters, Labels, OwnerCounters, OwnerKey
from exporter.node.metering.inputs import DeviceInput
from exporter.node.metering.meter import DISAGREEMENTS, Meter
from exporter.node.snapshot import (
    DeviceTotals,
    DeviceView,
    OwnerTotals,
    SliceGauges,
    SliceView,
    TenantView,
    UnallocatedView,
)
from exporter.node.tallies import Tallies

DEFAULT_VENDOR = "NVIDIA"


def slice_views(attribution: Attribution, meter: Meter) -> tuple[SliceView, ...]:
    """All slices of the page: those held, and ended ones whose labels nobody else has."""
    views: dict[tuple[str, ...], SliceView] = {}
    ended = sorted(
        (owner for owner in meter.owners.values() if owner.is_slice and owner.ended_boot_ms is not None),
        key=lambda owner: (owner.ended_boot_ms or 0, owner.key),
    )
    for owner in ended:
        views[_series(owner.labels, owner.key)] = SliceView(
            owner.key, owner.labels, None, _totals(owner), has_energy=_has_energy(meter, owner.key)
        )
    # Of two that are held under one name (a view between deletion and creation) the newer stays.
    for gauges in sorted(attribution.slices, key=operator.attrgetter("held_from_ms")):
        key, labels = gauges.key, gauges.labels
        owner_now = meter.owners.get(key)
        views[_series(labels, key)] = SliceView(
            key,
            labels,
            gauges,
            None if owner_now is None else _totals(owner_now),
            meter.rate(key),
            _has_energy(meter, key),
        )
    return tuple(views.values())


def unallocated_views(attribution: Attribution, meter: Meter) -> tuple[UnallocatedView, ...]:
    """Users past HAMi, those that ended included for as long as their counters stay."""
    used = {
        owner.key: owner.used_bytes
        for device in attribution.devices
        for owner in device.owners
        if not owner.key.is_slice
    }
    views: dict[tuple[str, ...], UnallocatedView] = {}
    owners = [owner for owner in meter.owners.values() if not owner.is_slice]
    for owner in sorted(owners, key=lambda each: (each.ended_boot_ms is None, each.ended_boot_ms or 0)):
        views[_series(owner.labels, owner.key)] = UnallocatedView(
            owner.key,
            owner.labels,
            used.get(owner.key),
            _totals(owner),
            _has_energy(meter, owner.key),
        )
    return tuple(views.values())


def device_views(
    attribution: Attribution, sources: Sources, meter: Meter, tallies: Tallies
) -> tuple[DeviceView, ...]:
    """All devices that HAMi registered or NVML lists."""
    held: defaultdict[str, list[SliceGauges]] = defaultdict(list)
    for gauges in attribution.slices:
        held[gauges.key.device_uuid].append(gauges)
    return tuple(
        _device(device, held[device.device_uuid], sources, meter, tallies)
        for device in attribution.devices
        if device.device_uuid in sources.registered or device.reading is not None
    )


def _device(
    device: DeviceInput, held: list[SliceGauges], sources: Sources, meter: Meter, tallies: Tallies
) -> DeviceView:
    registered, reading = sources.registered.get(device.device_uuid), device.reading
    model = registered.type if registered is not None and registered.type else ""
    index = registered.index if registered is not None else None
    is_listed = sources.sight.is_listed
    totals = meter.devices.get(device.device_uuid)
    return DeviceView(
        uuid=device.device_uuid,
        model=model or (reading.model if reading is not None else ""),
        vendor=DEFAULT_VENDOR,
        index=reading.index if reading is not None else index,
        mode=registered.mode if registered is not None else reading.mode if reading is not None else "",
        registered_mib=None if registered is None else registered.memory_mib,
        slots=None if registered is None else registered.count,
        core_percent=None if registered is None else registered.core_percent,
        allocated_mib=sum(gauges.allocated_mib for gauges in held) if is_listed else None,
        slots_allocated=sum(gauges.slots for gauges in held) if is_listed else None,
        core_allocated_percent=sum(gauges.core_percent for gauges in held) if is_listed else None,
        reading=reading,
        memory_unattributed_bytes=_unattributed_bytes(device, is_listed=is_listed, tallies=tallies),
        down_reason=down_reason(sources, device.device_uuid),
        totals=None if totals is None else _device_totals(totals),
        hardware=sources.hardware.get(device.device_uuid),
    )


def _unattributed_bytes(device: DeviceInput, *, is_listed: bool, tallies: Tallies) -> int | None:
    """Used memory no known pod accounts for; the cache counts requests, so it is a difference."""
    reading = device.reading
    if reading is None or not is_listed:
        return None
    total, free, reserved = (
        reading.memory_total_bytes,
        reading.memory_free_bytes,
        reading.memory_reserved_bytes,
    )
    if total is None or free is None:
        return None
    known = sum(owner.used_bytes or 0 for owner in device.owners)
    rest = total - free - (reserved or 0) - known
    if rest < 0:
        tallies.count(DISAGREEMENTS, "memory_negative")
    return max(0, rest)


def tenant_views(slices: Iterable[SliceView], meter: Meter) -> tuple[TenantView, ...]:
    """Sums by tenant and model; counters go on after slices have ended."""
    held: defaultdict[tuple[str, str], list[SliceGauges]] = defaultdict(list)
    for view in slices:
        if view.gauges is not None:
            held[view.labels.tenant, view.labels.model].append(view.gauges)
    views = []
    for at in sorted({*held, *meter.tenants}):
        totals = meter.tenants.get(at)
        used = [gauges.used_bytes for gauges in held[at] if gauges.used_bytes is not None]
        views.append(
            TenantView(
                tenant=at[0],
                model=at[1],
                allocated_mib=sum(gauges.allocated_mib for gauges in held[at]),
                core_percent=sum(gauges.core_percent for gauges in held[at]),
                slices=len(held[at]),
                used_bytes=sum(used) if used else None,
                sm_ppm_ms=0 if totals is None else totals.sm_ppm_ms,
                energy_mj=0 if totals is None else totals.energy_mj,
                is_measured=totals is not None and totals.is_measured,
                created_ms=None if totals is None else totals.created_ms,
            )
        )
    return tuple(views)


def _series(labels: Labels, key: OwnerKey) -> tuple[str, ...]:
    return labels.namespace, labels.pod, labels.container, key.device_uuid, labels.tenant


def _has_energy(meter: Meter, key: OwnerKey) -> bool:
    device = meter.devices.get(key.device_uuid)
    return device is not None and device.has_energy


def _totals(owner: OwnerCounters) -> OwnerTotals:
    return OwnerTotals(
        sm_ppm_ms=owner.sm_ppm_ms,
        memory_used_byte_ms=owner.memory_used.byte_ms,
        memory_allocated_byte_ms=owner.memory_allocated.byte_ms,
        memory_peak_bytes=owner.memory_peak_bytes,
        energy_active_mj=owner.energy_active_mj,
        energy_idle_mj=owner.energy_idle_mj,
        blocked_ms=owner.blocked_ms,
        over_limit_ms=owner.over_limit_ms,
        unknown_ms=MappingProxyType(dict(owner.unknown_ms)),
        is_measured=owner.is_measured,
        is_sm_measured=owner.is_sm_measured,
        created_ms=owner.created_ms,
        held_from_ms=owner.held_from_ms,
    )


def _device_totals(device: DeviceCounters) -> DeviceTotals:
    return DeviceTotals(
        busy_ppm_ms=device.busy_ppm_ms,
        sm_unattributed_ppm_ms=device.sm_unattributed_ppm_ms,
        energy_mj=device.energy_mj,
        energy_unattributed_mj=device.energy_unattributed_mj,
        is_measured=device.is_measured,
        is_sm_measured=device.is_sm_measured,
        has_energy=device.has_energy,
        created_ms=device.created_ms,
    )
