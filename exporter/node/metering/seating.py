"""Whose counters a tick's input belongs to: who is on a device now, who is new, who has ended.

Invariant: while an owner's input is the very same object as a tick ago, nothing of it is taken in again;
an owner that ended and comes back is taken in anew.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from exporter.node.metering.counters import OwnerCounters, OwnerKey, TenantCounters
from exporter.node.metering.hours import HourUse
from exporter.node.metering.inputs import DeviceInput, OwnerInput

Owners = dict[OwnerKey, OwnerCounters]
Tenants = dict[tuple[str, str], TenantCounters]


@dataclass(slots=True)
class Seat:
    """An owner on a device: what it is given at this tick, and where that is counted.

    Attributes:
        tenant: None for what is no slice.
        book: The hour book that was written to last in this tick; None before, since books come and go
            between ticks.
    """

    given: OwnerInput
    owner: OwnerCounters
    tenant: TenantCounters | None
    book: HourUse | None = None


def seated(
    device: DeviceInput, before: dict[OwnerKey, Seat], owners: Owners, tenants: Tenants, now_ms: int
) -> dict[OwnerKey, Seat]:
    """Everybody on a device in the order of the input; allocated integrals are brought up to now.

    Args:
        device: The tick's input.
        before: A tick ago.
        owners: All counters; those of newcomers are begun here.
        tenants: The same of tenants.
        now_ms: Unix milliseconds.
    """
    seats = {}
    for given in device.owners:
        key = given.key
        seat = before.get(key)
        if seat is None or seat.given is not given or seat.owner.ended_boot_ms is not None:
            seat = _taken_in(given, owners, tenants, now_ms)
        seat.book = None
        seats[key] = seat
        if given.held_from_ms is not None:
            _grow_allocated(seat.owner, given, given.held_from_ms, now_ms)
    return seats


def tenant_of(owner: OwnerCounters, tenants: Tenants, now_ms: int) -> TenantCounters | None:
    """Where a slice counts for its tenant too; None for what is no slice."""
    if not owner.is_slice:
        return None
    at = (owner.labels.tenant, owner.labels.model)
    tenant = tenants.get(at)
    if tenant is None:
        tenant = tenants[at] = TenantCounters(tenant=at[0], model=at[1], created_ms=now_ms)
    tenant.is_measured = tenant.is_measured or owner.is_measured
    return tenant


def end_missing(owners: Owners, held: Collection[OwnerKey], boot_ms: int) -> set[OwnerKey]:
    """Mark those that are held no more as ended; who they are."""
    missing = {key for key, owner in owners.items() if key not in held and owner.ended_boot_ms is None}
    for key in missing:
        owners[key].ended_boot_ms = boot_ms
    return missing


def drop_ended(owners: Owners, since_boot_ms: int, most: int) -> None:
    """Drop counters that ended at `since_boot_ms` or before; of the rest the biggest `most` stay."""
    ended = [owner for owner in owners.values() if owner.ended_boot_ms is not None]
    if not ended:
        return
    kept = [owner for owner in ended if (owner.ended_boot_ms or 0) > since_boot_ms]
    kept.sort(key=lambda owner: (owner.sm_ppm_ms, owner.memory_used.byte_ms, owner.key), reverse=True)
    keep = {owner.key for owner in kept[:most]}
    for owner in ended:
        if owner.key not in keep:
            del owners[owner.key]


def _taken_in(given: OwnerInput, owners: Owners, tenants: Tenants, now_ms: int) -> Seat:
    owner = owners.get(given.key)
    if owner is None:
        owner = owners[given.key] = OwnerCounters(
            pod_uid=given.key.pod_uid,
            container=given.key.container,
            device_uuid=given.key.device_uuid,
            is_slice=given.key.is_slice,
            labels=given.labels,
            created_ms=now_ms,
        )
    owner.labels, owner.ended_boot_ms = given.labels, None
    owner.is_measured = owner.is_measured or given.has_source
    owner.is_sm_measured = owner.is_sm_measured or (given.has_source and given.has_sm_source)
    if given.used_bytes is not None:
        owner.memory_peak_bytes = max(owner.memory_peak_bytes, given.used_bytes)
    return Seat(given, owner, tenant_of(owner, tenants, now_ms))


def _grow_allocated(owner: OwnerCounters, given: OwnerInput, held_from_ms: int, now_ms: int) -> None:
    """Bring the allocated integral up to now; it follows from the binding, not from sampling."""
    since_ms = owner.allocated_until_ms
    if since_ms is None:
        owner.held_from_ms = owner.allocated_until_ms = since_ms = held_from_ms
    until_ms = now_ms if given.held_until_ms is None else min(now_ms, given.held_until_ms)
    if until_ms > since_ms:
        owner.memory_allocated.mib_ms += given.allocated_mib * (until_ms - since_ms)
        owner.allocated_until_ms = until_ms
