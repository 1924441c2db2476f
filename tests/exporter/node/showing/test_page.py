"""From a snapshot to a page: units, absence, and who enforces what."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec import structs

from contract.catalogue import BY_NAME, families_of
from contract.ids import DeviceUuid, PodUid
from exporter.delivery.metrics import DeliveryMetrics
from exporter.exposition.board import Board, Draft
from exporter.exposition.collector import Exposition
from exporter.exposition.page import Page
from exporter.node.metering.counters import Labels, OwnerKey
from exporter.node.metering.meter import Rate
from exporter.node.showing.page import make_page, make_stale_page
from exporter.node.snapshot import (
    CollectorHealth,
    DeviceTotals,
    DeviceView,
    OwnerTotals,
    RegionGauges,
    SliceGauges,
    SliceView,
    Snapshot,
    TenantView,
    UnallocatedView,
)
from exporter.node.sources.hardware import HardwareView
from exporter.nvidia.source import DeviceReading, MigInstance

MIB = 1_048_576
CARD = DeviceUuid("GPU-a")
KEY = OwnerKey(PodUid("uid-1"), "main", CARD, is_slice=True)
LABELS = Labels("team", "job", "main", "tenant-a", "NVIDIA-Tesla T4")
SLICE = ("n", "team", "job", "main", "GPU-a", "tenant-a")
REGION = RegionGauges(
    layout="v1.2-2008952",
    priority=1,
    limit_bytes=4_000 * MIB,
    sm_limit_percent=30,
    switch=1,
    context_bytes=100 * MIB,
    module_bytes=0,
    data_bytes=512 * MIB,
    last_kernel_s=1_800_000_000,
    lock_held_since_ms=1_800_000_001_500,
    lock_owner_is_alive=False,
)
GAUGES = SliceGauges(
    key=KEY,
    labels=LABELS,
    allocated_mib=4_000,
    core_percent=30,
    slots=1,
    held_from_ms=0,
    policy="default",
    enforcement="hami-core",
    memory_source="region",
    used_bytes=620 * MIB,
    processes=2,
    stale_processes=1,
    region=REGION,
)
TOTALS = OwnerTotals(
    sm_ppm_ms=4_500_000_000,
    memory_used_byte_ms=1_500 * MIB,
    memory_allocated_byte_ms=2_000_000,
    memory_peak_bytes=700 * MIB,
    energy_active_mj=12_345,
    energy_idle_mj=500,
    blocked_ms=1_500,
    over_limit_ms=250,
    unknown_ms={"no_source": 0, "source_failed": 2_000, "gap": 0, "uncertain": 0},
    is_measured=True,
)
VIEW = SliceView(KEY, LABELS, GAUGES, TOTALS, Rate(840_000, "nvml"), has_energy=True)
READING = DeviceReading(
    uuid=CARD,
    index=3,
    model="Tesla T4",
    driver_version="550.163.01",
    memory_total_bytes=15_360 * MIB,
    memory_used_bytes=1_000 * MIB,
    memory_reserved_bytes=400 * MIB,
    utilization_percent=84,
    power_mw=41_500,
    temperature_celsius=41,
    sm_clock_hz=1_590_000_000,
    memory_clock_hz=5_001_000_000,
    has_remapped_rows_pending=True,
    mig=(MigInstance("MIG-9", "1g.10gb", 9, 0),),
)
DEVICE = DeviceView(
    uuid=CARD,
    model="NVIDIA-Tesla T4",
    vendor="NVIDIA",
    index=3,
    mode="hami-core",
    registered_mib=15_360,
    slots=10,
    core_percent=100,
    allocated_mib=12_000,
    slots_allocated=3,
    core_allocated_percent=90,
    reading=READING,
    memory_unattributed_bytes=100 * MIB,
    down_reason=None,
    totals=DeviceTotals(7_000_000_000, 1_000_000_000, 250_000, 34_000, is_measured=True, has_energy=True),
    hardware=HardwareView(
        {"corrected": 4, "uncorrected": 0}, {"sw_power_cap": 1_500_000_000}, {79: (2, 1_700_000_000_500)}
    ),
)
TENANT = TenantView("tenant-a", "T4", 8_000, 60, 2, 620 * MIB, 4_500_000_000, 12_845, is_measured=True)
PAST_HAMI = UnallocatedView(KEY._replace(is_slice=False), LABELS, 128 * MIB, TOTALS, has_energy=True)


def _values(page: Page) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (family.family.name, sample.labels): sample.value
        for family in page.families
        for sample in family.samples
    }


def _slice_page(view: SliceView = VIEW) -> dict[tuple[str, tuple[str, ...]], float]:
    return _values(make_page(Snapshot(at_ms=1_800_000_002_500, node="n", slices=(view,))))


def test_every_counter_says_since_when_it_counts() -> None:
    device = dataclasses.replace(
        DEVICE,
        totals=dataclasses.replace(DEVICE.totals, created_ms=1_500) if DEVICE.totals else None,
        hardware=dataclasses.replace(DEVICE.hardware, created_ms=2_500) if DEVICE.hardware else None,
    )
    totals = structs.replace(TOTALS, created_ms=3_500, held_from_ms=500)
    page = make_page(
        Snapshot(
            at_ms=9_000,
            node="n",
            devices=(device,),
            slices=(structs.replace(VIEW, totals=totals),),
            unallocated=(dataclasses.replace(PAST_HAMI, totals=totals),),
            tenants=(dataclasses.replace(TENANT, created_ms=4_500),),
            tallies={"samples_lost_total": {("nvml",): 3}},
            annotation_errors={("node_register", "empty"): 0},
            since_ms=5_500,
        )
    )
    created = {family.family.name: set(family.created_s) for family in page.families}
    assert all(
        bool(created[family.family.name]) == (family.family.type == "counter") for family in page.families
    )
    whole = {name: since for name, times in created.items() if times for since in times}
    assert whole.pop("slice_memory_allocated_byte_seconds_total") == 0.5
    groups = {"device": 1.5, "slice": 3.5, "tenant": 4.5, "self": 5.5}
    of_hardware = ("device_ecc_errors_total", "device_throttle_seconds_total", "device_xid_errors_total")
    assert {whole.pop(name) for name in of_hardware} == {2.5}
    assert whole == {name: groups[BY_NAME[name].group] for name in whole}
    assert {BY_NAME[name].group for name in whole} == set(groups)


def test_a_slices_figures_are_in_base_units() -> None:
    values = _slice_page()
    expected = {
        "slice_memory_allocated_bytes": 4_194_304_000,
        "slice_memory_limit_bytes": 4_194_304_000,
        "slice_memory_used_bytes": 650_117_120,
        "slice_memory_peak_bytes": 734_003_200,
        "slice_core_allocated_ratio": 0.3,
        "slice_core_limit_ratio": 0.3,
        "slice_core_limit_enforced": 1,
        "slice_sm_seconds_total": 4.5,
        "slice_memory_used_byte_seconds_total": 1_572_864,
        "slice_memory_allocated_byte_seconds_total": 2_000,
        "slice_processes": 2,
        "slice_stale_processes": 1,
        "slice_last_kernel_timestamp_seconds": 1_800_000_000,
        "slice_blocked_seconds_total": 1.5,
        "slice_over_memory_limit_seconds_total": 0.25,
        "slice_region_lock_held_since_timestamp_seconds": 1_800_000_001.5,
        "slice_region_lock_owner_alive": 0,
    }
    assert {name: values[name, SLICE] for name in expected} == expected
    assert values["slice_sm_utilization_ratio", (*SLICE, "nvml")] == 0.84
    assert values["slice_energy_joules_total", (*SLICE, "active")] == 12.345
    assert values["slice_energy_joules_total", (*SLICE, "idle")] == 0.5
    assert values["slice_unknown_seconds_total", (*SLICE, "source_failed")] == 2
    assert values["slice_unknown_seconds_total", (*SLICE, "gap")] == 0


def test_memory_by_kind_adds_up_to_what_is_used() -> None:
    values = _slice_page()
    kinds = {
        kind: values["slice_memory_bytes", (*SLICE, kind)] for kind in ("context", "module", "data", "other")
    }
    assert kinds == {"context": 100 * MIB, "module": 0, "data": 512 * MIB, "other": 8 * MIB}


@pytest.mark.parametrize(
    ("policy", "switch", "enforced"),
    [("force", 0, 1), ("disable", 1, 0), ("default", 1, 1), ("default", 0, 0)],
)
def test_the_policy_decides_about_the_core_limit_and_by_default_the_regions_switch(
    policy: str, switch: int, enforced: int
) -> None:
    region = structs.replace(REGION, switch=switch)
    gauges = structs.replace(GAUGES, policy=policy, region=region)
    values = _slice_page(structs.replace(VIEW, gauges=gauges))
    assert values["slice_core_limit_enforced", SLICE] == enforced


def test_no_limit_is_no_series() -> None:
    gauges = structs.replace(GAUGES, region=structs.replace(REGION, limit_bytes=None))
    assert ("slice_memory_limit_bytes", SLICE) not in _slice_page(structs.replace(VIEW, gauges=gauges))


def test_an_ended_slice_shows_its_counters_and_nothing_else() -> None:
    values = _slice_page(structs.replace(VIEW, gauges=None, rate=None))
    names = {name for name, labels in values if labels[: len(SLICE)] == SLICE}
    assert names == {
        "slice_sm_seconds_total",
        "slice_memory_used_byte_seconds_total",
        "slice_memory_allocated_byte_seconds_total",
        "slice_memory_peak_bytes",
        "slice_energy_joules_total",
        "slice_blocked_seconds_total",
        "slice_over_memory_limit_seconds_total",
        "slice_unknown_seconds_total",
    }


def test_a_slice_that_nothing_can_measure_shows_what_is_granted_and_how_long_nothing_was_known() -> None:
    gauges = structs.replace(
        GAUGES, region=None, used_bytes=None, processes=None, stale_processes=None, memory_source=""
    )
    totals = structs.replace(TOTALS, is_measured=False)
    values = _slice_page(SliceView(KEY, LABELS, gauges, totals))
    names = {name for name, labels in values if labels[: len(SLICE)] == SLICE}
    assert names == {
        "slice_info",
        "slice_memory_allocated_bytes",
        "slice_core_allocated_ratio",
        "slice_memory_allocated_byte_seconds_total",
        "slice_unknown_seconds_total",
    }


def test_a_devices_figures_are_in_base_units() -> None:
    values = _values(make_page(Snapshot(at_ms=0, node="n", devices=(DEVICE,))))
    at = ("n", "GPU-a")
    assert values["device_ecc_errors_total", (*at, "corrected")] == 4
    assert values["device_ecc_errors_total", (*at, "uncorrected")] == 0
    assert values["device_throttle_seconds_total", (*at, "sw_power_cap")] == 1.5
    assert values["device_xid_errors_total", (*at, "79")] == 2
    assert values["device_xid_last_timestamp_seconds", (*at, "79")] == 1_700_000_000.5
    assert values["device_remapped_rows_pending", at] == 1
    assert values["mig_info", (*at, "MIG-9", "1g.10gb", "9", "0")] == 1
    expected = {
        "device_memory_total_bytes": 15_360 * MIB,
        "device_memory_registered_bytes": 15_360 * MIB,
        "device_memory_used_bytes": 1_000 * MIB,
        "device_memory_allocated_bytes": 12_582_912_000,
        "device_memory_driver_reserved_bytes": 400 * MIB,
        "device_memory_unattributed_bytes": 100 * MIB,
        "device_slots": 10,
        "device_slots_allocated": 3,
        "device_core_registered_ratio": 1,
        "device_core_allocated_ratio": 0.9,
        "device_utilization_ratio": 0.84,
        "device_busy_seconds_total": 7,
        "device_sm_unattributed_seconds_total": 1,
        "device_energy_joules_total": 250,
        "device_energy_unattributed_joules_total": 34,
        "device_power_watts": 41.5,
        "device_temperature_celsius": 41,
        "device_health": 1,
    }
    assert {name: values[name, at] for name in expected} == expected
    assert values["device_clock_hertz", (*at, "memory")] == 5_001_000_000
    info = (*at, "NVIDIA-Tesla T4", "NVIDIA", "3", "hami-core", "550.163.01")
    assert values["device_info", info] == 1


def test_tenants_and_users_past_hami_have_their_own_families() -> None:
    values = _values(make_page(Snapshot(at_ms=0, node="n", tenants=(TENANT,), unallocated=(PAST_HAMI,))))
    at = ("n", "tenant-a", "T4")
    assert values["tenant_memory_allocated_bytes", at] == 8_388_608_000
    assert values["tenant_memory_used_bytes", at] == 620 * MIB
    assert values["tenant_core_allocated_ratio", at] == 0.6
    assert values["tenant_sm_seconds_total", at] == 4.5
    assert values["tenant_energy_joules_total", at] == 12.845
    assert values["tenant_slices", at] == 2
    assert values["unallocated_memory_used_bytes", SLICE] == 128 * MIB
    assert values["unallocated_sm_seconds_total", SLICE] == 4.5
    assert values["unallocated_energy_joules_total", SLICE] == 12.345


def test_what_is_counted_about_ourselves_is_there_from_zero_where_its_words_are_known() -> None:
    values = _values(make_page(Snapshot(at_ms=0, node="n", tallies={"samples_lost_total": {("nvml",): 3}})))
    assert values["cache_errors_total", ("truncated",)] == 0
    assert values["disagreements_total", ("sm_scaled",)] == 0
    assert values["samples_lost_total", ("nvml",)] == 3
    assert values["samples_lost_total", ("cache",)] == 0


def test_a_page_beyond_its_age_says_how_old_it_is_and_nothing_of_slices_and_devices() -> None:
    health = CollectorHealth("nvml", is_ok=True, duration_s=0.1, last_success_ms=5_000)
    snapshot = Snapshot(at_ms=5_500, node="n", slices=(VIEW,), collectors=(health,), kube_view_ms=4_000)
    values = _values(make_stale_page(snapshot))
    assert values["snapshot_timestamp_seconds", ()] == 5.5
    assert values["kube_view_timestamp_seconds", ()] == 4
    assert values["collector_success", ("nvml",)] == 0
    assert values["collector_last_success_timestamp_seconds", ("nvml",)] == 5
    assert {name.partition("_")[0] for name, _ in values} == {"snapshot", "kube", "collector", "build"}


def test_the_node_role_exports_every_family_of_its_own_but_the_planned() -> None:
    snapshot = Snapshot(
        at_ms=5_500,
        node="n",
        devices=(DEVICE,),
        slices=(VIEW,),
        tenants=(TENANT,),
        unallocated=(PAST_HAMI,),
        collectors=(CollectorHealth("nvml", is_ok=True, duration_s=0.1, last_success_ms=5_000),),
        tallies={"values_refused_total": {("energy", "too_large"): 1}},
        annotation_errors={("pod-devices", "field_count"): 1},
        cache_files={("v1.2", "ok"): 1},
        cache_directories_ignored=0,
        unattributed_processes=0,
        kube_view_ms=4_000,
        outbox_facts=0,
        outbox_oldest_ms=5_000,
    )
    board = Board()
    board.publish(Draft(lambda: make_page(snapshot)))
    exposition = Exposition(board, "node")
    DeliveryMetrics(exposition.registry)
    shown = {
        metric.name + ("_total" if metric.type == "counter" else "")
        for metric in exposition.everything.collect()
        if metric.name.startswith("slicemeter_")
    }
    assert shown == {family.full_name for family in families_of("node") if not family.is_planned}
