"""One tick of the node as values: what a page is made of.

Invariant: a snapshot and all that hangs on it never change; None means "not measured" or "does not
apply", and becomes an absent series. What is made anew for every slice at every tick is a struct, which
costs a tenth of a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from contract.ids import DeviceUuid
from exporter.hami.annotations.mig_allocations import MigAllocation
from exporter.node.metering.counters import Labels, OwnerKey
from exporter.node.metering.meter import Rate
from exporter.node.sources.hardware import HardwareView
from exporter.nvidia.source import DeviceReading


class RegionGauges(msgspec.Struct, frozen=True, gc=False):
    """What HAMi-core's region says of one slice, by itself.

    Attributes:
        context_bytes: Memory by kind; None where the layout keeps no kinds.
        lock_held_since_ms: Since when the same process was seen holding the region's lock.
        lock_owner_is_alive: None when that cannot be seen.
        device_index: The device's index in the region.
    """

    layout: str
    priority: int
    limit_bytes: int | None
    sm_limit_percent: int | None
    switch: int
    context_bytes: int | None = None
    module_bytes: int | None = None
    data_bytes: int | None = None
    last_kernel_s: int | None = None
    lock_held_since_ms: int | None = None
    lock_owner_is_alive: bool | None = None
    device_index: int = 0


class SliceGauges(msgspec.Struct, frozen=True, gc=False):
    """A slice at this moment.

    Attributes:
        policy: `default`, `force`, `disable`, as the container's environment says.
        enforcement: `hami-core`, `mig`, `none` or `pending`.
        memory_source: `region`, `nvml`, or empty when nobody measures.
        processes: Living GPU processes; None when nobody says.
        stale_processes: Slots of processes that no longer live.
        mig_instances: As HAMi's annotation names them.
    """

    key: OwnerKey
    labels: Labels
    allocated_mib: int
    core_percent: int
    slots: int
    held_from_ms: int
    policy: str
    enforcement: str
    memory_source: str
    used_bytes: int | None = None
    processes: int | None = None
    stale_processes: int | None = None
    region: RegionGauges | None = None
    mig_instances: tuple[MigAllocation, ...] = ()


class OwnerTotals(msgspec.Struct, frozen=True, gc=False):
    """A slice's (or unallocated user's) counters as they are now.

    Attributes:
        created_ms: When they began at 0, Unix time; None = not known.
        held_from_ms: The same of granted memory, which counts from the binding on.
    """

    sm_ppm_ms: int
    memory_used_byte_ms: int
    memory_allocated_byte_ms: int
    memory_peak_bytes: int
    energy_active_mj: int
    energy_idle_mj: int
    blocked_ms: int
    over_limit_ms: int
    unknown_ms: Mapping[str, int]
    is_measured: bool
    is_sm_measured: bool = True
    created_ms: int | None = None
    held_from_ms: int | None = None


class SliceView(msgspec.Struct, frozen=True, gc=False):
    """A slice on the page; `gauges` is None for one that has ended."""

    key: OwnerKey
    labels: Labels
    gauges: SliceGauges | None
    totals: OwnerTotals | None
    rate: Rate | None = None
    has_energy: bool = False


@dataclass(frozen=True, slots=True)
class UnallocatedView:
    """A known pod that uses a device past its allocations."""

    key: OwnerKey
    labels: Labels
    used_bytes: int | None
    totals: OwnerTotals | None
    has_energy: bool = False


@dataclass(frozen=True, slots=True)
class DeviceTotals:
    """A device's counters as they are now; `has_energy` = the board has an energy counter."""

    busy_ppm_ms: int
    sm_unattributed_ppm_ms: int
    energy_mj: int
    energy_unattributed_mj: int
    is_measured: bool
    has_energy: bool
    is_sm_measured: bool = True
    created_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceView:
    """A device on the page.

    Attributes:
        registered_mib: As HAMi registered it; None when it is not in the register annotation.
        allocated_mib: Held by slices; None while pods were not listed.
        memory_unattributed_bytes: Used memory that no known pod accounts for.
        down_reason: None = healthy.
        hardware: What happened to the card so far; None without NVML.
    """

    uuid: DeviceUuid
    model: str
    vendor: str
    index: int | None
    mode: str
    registered_mib: int | None
    slots: int | None
    core_percent: int | None
    allocated_mib: int | None
    slots_allocated: int | None
    core_allocated_percent: int | None
    reading: DeviceReading | None
    memory_unattributed_bytes: int | None
    down_reason: str | None
    totals: DeviceTotals | None
    hardware: HardwareView | None = None


@dataclass(frozen=True, slots=True)
class TenantView:
    """What a tenant holds and uses on the node, by model; counters since `created_ms`, Unix time."""

    tenant: str
    model: str
    allocated_mib: int
    core_percent: int
    slices: int
    used_bytes: int | None
    sm_ppm_ms: int
    energy_mj: int
    is_measured: bool
    created_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CollectorHealth:
    """How a source answered at this tick; `duration_s` is None for one that answers by itself."""

    name: str
    is_ok: bool
    duration_s: float | None
    last_success_ms: int | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All of one tick.

    Attributes:
        since_ms: When the counters about ourselves began at 0; None = not known.
        tallies: Counters about ourselves by family, then label values.
        annotation_errors: Unreadable annotations by (kind, reason).
        cache_files: Number of files by (layout, result).
        cache_directories_ignored: None without a tree.
        unattributed_processes: GPU processes in no known pod; None without a process list.
        kube_view_ms: Time of the last good view of the pods.
    """

    at_ms: int
    node: str
    devices: tuple[DeviceView, ...] = ()
    slices: tuple[SliceView, ...] = ()
    unallocated: tuple[UnallocatedView, ...] = ()
    tenants: tuple[TenantView, ...] = ()
    collectors: tuple[CollectorHealth, ...] = ()
    tallies: Mapping[str, Mapping[tuple[str, ...], int]] = field(default_factory=dict)
    annotation_errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    cache_files: Mapping[tuple[str, str], int] = field(default_factory=dict)
    cache_directories_ignored: int | None = None
    unattributed_processes: int | None = None
    kube_view_ms: int | None = None
    outbox_facts: int | None = None
    outbox_oldest_ms: int | None = None
    since_ms: int | None = None
