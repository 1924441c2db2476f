"""From a snapshot to the node's page: every family of the catalogue that its sources can feed.

Units change here and nowhere else: bytes, seconds, joules, watts, ratios. Invariants: what a snapshot
does not know is absent; a counter of something that was never measurable (a mock node's SM time) is
absent too, and every other counter is there from 0 on. Over budget, figures of ourselves, devices and
tenants come first, then slices, the one held longest first and each with all its series or none, then
unallocated use, then slices that have ended.
"""

from __future__ import annotations

from contract.catalogue import DISAGREEMENTS as DISAGREEMENT_KINDS
from contract.units import MIB, MJ_PER_JOULE, MS_PER_SECOND, PPM
from contract.version import VERSION
from exporter.exposition.page import DEFAULT_SERIES_BUDGET, Page, PageBuilder
from exporter.hami.errors import CACHE_REASONS
from exporter.node.checks import REFUSED
from exporter.node.metering.counters import OwnerKey
from exporter.node.metering.meter import DISAGREEMENTS
from exporter.node.snapshot import (
    DeviceView,
    OwnerTotals,
    RegionGauges,
    SliceView,
    Snapshot,
    TenantView,
    UnallocatedView,
)
from exporter.node.sources.caches import CACHE_ERRORS
from exporter.node.sources.devices import SAMPLES_LOST
from exporter.node.sources.hardware import HardwareView

_NS_PER_SECOND = 1_000_000_000
_PPM_MS_PER_SECOND = PPM * MS_PER_SECOND


def make_page(snapshot: Snapshot, series_budget: int = DEFAULT_SERIES_BUDGET) -> Page:
    """The whole page of one snapshot."""
    page = PageBuilder(series_budget)
    _self(page, snapshot)
    for device in snapshot.devices:
        with page.group():
            _device(page, snapshot.node, device)
    for tenant in snapshot.tenants:
        with page.group():
            _tenant(page, snapshot.node, tenant)
    for view in sorted(snapshot.slices, key=_held_longest_first):
        if view.gauges is not None:
            with page.group():
                _slice(page, snapshot.node, view)
    for user in sorted(snapshot.unallocated, key=lambda user: user.key):
        with page.group():
            _unallocated(page, snapshot.node, user)
    for view in sorted(snapshot.slices, key=lambda view: view.key):
        if view.gauges is None:
            with page.group():
                _slice(page, snapshot.node, view)
    return page.build(snapshot.at_ms / MS_PER_SECOND)


def _held_longest_first(view: SliceView) -> tuple[int, OwnerKey]:
    return view.gauges.held_from_ms if view.gauges is not None else 0, view.key


def make_stale_page(snapshot: Snapshot) -> Page:
    """A page that says only how old it is: its figures are beyond the stated age."""
    page = PageBuilder()
    _identity(page, snapshot)
    for collector in snapshot.collectors:
        page.add("collector_success", (collector.name,), 0)
        page.add("collector_last_success_timestamp_seconds", (collector.name,), _s(collector.last_success_ms))
    return page.build(snapshot.at_ms / MS_PER_SECOND)


def _s(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / MS_PER_SECOND


def _scaled(value: int | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _ratio(percent: int | None) -> float | None:
    return None if percent is None else percent / 100


def _device(page: PageBuilder, node: str, device: DeviceView) -> None:
    labels = (node, device.uuid)
    reading = device.reading
    index = "" if device.index is None else str(device.index)
    driver = "" if reading is None else reading.driver_version
    page.add("device_info", (*labels, device.model, device.vendor, index, device.mode, driver), 1)
    page.add("device_memory_registered_bytes", labels, _scaled(device.registered_mib, MIB))
    page.add("device_memory_allocated_bytes", labels, _scaled(device.allocated_mib, MIB))
    page.add("device_memory_unattributed_bytes", labels, device.memory_unattributed_bytes)
    page.add("device_slots", labels, device.slots)
    page.add("device_slots_allocated", labels, device.slots_allocated)
    page.add("device_core_registered_ratio", labels, _ratio(device.core_percent))
    page.add("device_core_allocated_ratio", labels, _ratio(device.core_allocated_percent))
    page.add("device_health", labels, 0 if device.down_reason else 1)
    if reading is not None:
        page.add("device_memory_total_bytes", labels, reading.memory_total_bytes)
        page.add("device_memory_used_bytes", labels, reading.memory_used_bytes)
        page.add("device_memory_driver_reserved_bytes", labels, reading.memory_reserved_bytes)
        page.add("device_utilization_ratio", labels, _ratio(reading.utilization_percent))
        page.add("device_power_watts", labels, _s(reading.power_mw))
        page.add("device_temperature_celsius", labels, reading.temperature_celsius)
        page.add("device_clock_hertz", (*labels, "sm"), reading.sm_clock_hz)
        page.add("device_clock_hertz", (*labels, "memory"), reading.memory_clock_hz)
        page.add("device_remapped_rows_pending", labels, reading.has_remapped_rows_pending)
        for each in reading.mig or ():
            identity = (each.uuid, each.profile, str(each.gpu_instance_id), str(each.compute_instance_id))
            page.add("mig_info", (*labels, *identity), 1)
    if device.hardware is not None:
        _hardware(page, labels, device.hardware)
    totals = device.totals
    if totals is None or not totals.is_measured:
        return
    since_s = _s(totals.created_ms)
    if totals.is_sm_measured:
        page.add("device_busy_seconds_total", labels, totals.busy_ppm_ms / _PPM_MS_PER_SECOND, since_s)
        unattributed_s = totals.sm_unattributed_ppm_ms / _PPM_MS_PER_SECOND
        page.add("device_sm_unattributed_seconds_total", labels, unattributed_s, since_s)
    if totals.has_energy:
        page.add("device_energy_joules_total", labels, totals.energy_mj / MJ_PER_JOULE, since_s)
        unattributed_j = totals.energy_unattributed_mj / MJ_PER_JOULE
        page.add("device_energy_unattributed_joules_total", labels, unattributed_j, since_s)


def _hardware(page: PageBuilder, labels: tuple[str, ...], hardware: HardwareView) -> None:
    since_s = _s(hardware.created_ms or None)
    for kind, count in hardware.ecc_errors.items():
        page.add("device_ecc_errors_total", (*labels, kind), count, since_s)
    for reason, time_ns in hardware.throttle_ns.items():
        page.add("device_throttle_seconds_total", (*labels, reason), time_ns / _NS_PER_SECOND, since_s)
    for code, (count, last_ms) in sorted(hardware.xids.items()):
        page.add("device_xid_errors_total", (*labels, str(code)), count, since_s)
        page.add("device_xid_last_timestamp_seconds", (*labels, str(code)), _s(last_ms))


def _slice(page: PageBuilder, node: str, view: SliceView) -> None:
    own = view.labels
    labels = (node, own.namespace, own.pod, own.container, view.key.device_uuid, own.tenant)
    if view.totals is not None:
        _slice_totals(page, labels, view.totals, has_energy=view.has_energy)
    gauges = view.gauges
    if gauges is None:
        return
    region = gauges.region
    identity = (
        view.key.pod_uid,
        own.model,
        own.vendor,
        region.layout if region is not None else "",
        gauges.policy,
        str(region.priority) if region is not None else "",
        gauges.enforcement,
        gauges.memory_source,
    )
    page.add("slice_info", (*labels, *identity), 1)
    page.add("slice_memory_allocated_bytes", labels, gauges.allocated_mib * MIB)
    page.add("slice_core_allocated_ratio", labels, gauges.core_percent / 100)
    page.add("slice_memory_used_bytes", labels, gauges.used_bytes)
    page.add("slice_processes", labels, gauges.processes)
    page.add("slice_stale_processes", labels, gauges.stale_processes)
    if view.rate is not None:
        page.add("slice_sm_utilization_ratio", (*labels, view.rate.source), view.rate.ppm / PPM)
    if region is not None:
        _region(page, labels, region, policy=gauges.policy, used_bytes=gauges.used_bytes)


def _region(
    page: PageBuilder, labels: tuple[str, ...], region: RegionGauges, *, policy: str, used_bytes: int | None
) -> None:
    page.add("slice_memory_limit_bytes", labels, region.limit_bytes)
    page.add("slice_core_limit_ratio", labels, _ratio(region.sm_limit_percent))
    enforced = {"force": 1, "disable": 0}.get(policy, 1 if region.switch else 0)
    page.add("slice_core_limit_enforced", labels, enforced)
    page.add("slice_last_kernel_timestamp_seconds", labels, region.last_kernel_s)
    page.add("slice_region_lock_held_since_timestamp_seconds", labels, _s(region.lock_held_since_ms))
    page.add("slice_region_lock_owner_alive", labels, region.lock_owner_is_alive)
    kinds = (region.context_bytes, region.module_bytes, region.data_bytes)
    known = [kind for kind in kinds if kind is not None]
    if used_bytes is None or len(known) < len(kinds):
        return
    for kind, value in zip(("context", "module", "data"), known, strict=True):
        page.add("slice_memory_bytes", (*labels, kind), value)
    page.add("slice_memory_bytes", (*labels, "other"), max(0, used_bytes - sum(known)))


def _slice_totals(
    page: PageBuilder, labels: tuple[str, ...], totals: OwnerTotals, *, has_energy: bool
) -> None:
    allocated = totals.memory_allocated_byte_ms / MS_PER_SECOND
    since_s = _s(totals.created_ms)
    page.add("slice_memory_allocated_byte_seconds_total", labels, allocated, _s(totals.held_from_ms))
    for reason, unknown_ms in totals.unknown_ms.items():
        page.add("slice_unknown_seconds_total", (*labels, reason), _s(unknown_ms), since_s)
    if not totals.is_measured:
        return
    if totals.is_sm_measured:
        page.add("slice_sm_seconds_total", labels, totals.sm_ppm_ms / _PPM_MS_PER_SECOND, since_s)
    used = totals.memory_used_byte_ms / MS_PER_SECOND
    page.add("slice_memory_used_byte_seconds_total", labels, used, since_s)
    page.add("slice_memory_peak_bytes", labels, totals.memory_peak_bytes)
    page.add("slice_blocked_seconds_total", labels, _s(totals.blocked_ms), since_s)
    page.add("slice_over_memory_limit_seconds_total", labels, _s(totals.over_limit_ms), since_s)
    if has_energy:
        active_j, idle_j = totals.energy_active_mj / MJ_PER_JOULE, totals.energy_idle_mj / MJ_PER_JOULE
        page.add("slice_energy_joules_total", (*labels, "active"), active_j, since_s)
        page.add("slice_energy_joules_total", (*labels, "idle"), idle_j, since_s)


def _unallocated(page: PageBuilder, node: str, view: UnallocatedView) -> None:
    own, totals = view.labels, view.totals
    labels = (node, own.namespace, own.pod, own.container, view.key.device_uuid, own.tenant)
    page.add("unallocated_memory_used_bytes", labels, view.used_bytes)
    if totals is None:
        return
    since_s = _s(totals.created_ms)
    if totals.is_sm_measured:
        page.add("unallocated_sm_seconds_total", labels, totals.sm_ppm_ms / _PPM_MS_PER_SECOND, since_s)
    if view.has_energy:
        energy_j = totals.energy_active_mj / MJ_PER_JOULE
        page.add("unallocated_energy_joules_total", labels, energy_j, since_s)


def _tenant(page: PageBuilder, node: str, view: TenantView) -> None:
    labels = (node, view.tenant, view.model)
    page.add("tenant_memory_allocated_bytes", labels, view.allocated_mib * MIB)
    page.add("tenant_memory_used_bytes", labels, view.used_bytes)
    page.add("tenant_core_allocated_ratio", labels, view.core_percent / 100)
    page.add("tenant_slices", labels, view.slices)
    if view.is_measured:
        since_s = _s(view.created_ms)
        page.add("tenant_sm_seconds_total", labels, view.sm_ppm_ms / _PPM_MS_PER_SECOND, since_s)
        page.add("tenant_energy_joules_total", labels, view.energy_mj / MJ_PER_JOULE, since_s)


def _identity(page: PageBuilder, snapshot: Snapshot) -> None:
    page.add("build_info", ("node", VERSION, snapshot.node), 1)
    page.add("snapshot_timestamp_seconds", (), _s(snapshot.at_ms))
    page.add("kube_view_timestamp_seconds", (), _s(snapshot.kube_view_ms))


def _self(page: PageBuilder, snapshot: Snapshot) -> None:
    _identity(page, snapshot)
    for collector in snapshot.collectors:
        name = (collector.name,)
        page.add("collector_success", name, collector.is_ok)
        page.add("collector_duration_seconds", name, collector.duration_s)
        page.add("collector_last_success_timestamp_seconds", name, _s(collector.last_success_ms))
    for (kind, reason), count in snapshot.annotation_errors.items():
        page.add("annotation_errors_total", (kind, reason), count, _s(snapshot.since_ms))
    for (layout, result), count in snapshot.cache_files.items():
        page.add("cache_files", (layout, result), count)
    page.add("cache_directories_ignored", (), snapshot.cache_directories_ignored)
    page.add("unattributed_processes", (), snapshot.unattributed_processes)
    page.add("outbox_facts", (), snapshot.outbox_facts)
    page.add("outbox_oldest_timestamp_seconds", (), _s(snapshot.outbox_oldest_ms))
    from_zero: dict[str, list[tuple[str, ...]]] = {
        CACHE_ERRORS: [(reason,) for reason in CACHE_REASONS],
        DISAGREEMENTS: [(kind,) for kind in DISAGREEMENT_KINDS],
        SAMPLES_LOST: [("nvml",), ("cache",)],
        REFUSED: [],
    }
    for family, closed in from_zero.items():
        counts = snapshot.tallies.get(family, {})
        for labels in sorted({*closed, *counts}):
            page.add(family, labels, counts.get(labels, 0), _s(snapshot.since_ms))
