"""The page of `--compat hami`: HAMi 2.10's names, labels and scale, to the letter."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from contract.catalogue import BY_NAME
from contract.ids import DeviceUuid, PodUid
from exporter.exposition.encoder import PageEncoder
from exporter.hami.annotations.mig_allocations import MigAllocation
from exporter.hami.annotations.node_register import Placement
from exporter.node.metering.counters import Labels, OwnerKey
from exporter.node.metering.meter import Rate
from exporter.node.showing.hami_page import FAMILIES, make_hami_page
from exporter.node.showing.page import make_page
from exporter.node.snapshot import DeviceView, RegionGauges, SliceGauges, SliceView, Snapshot
from exporter.nvidia.source import DeviceReading

MIB = 1_048_576
CARD = DeviceUuid("GPU-859b872c-0ba2-97b0-10b4-8b7185c55039")
NOW_S = 1_790_000_000

HOST = {"node", "device_index", "device_uuid", "device_type", "zone"}
CONTAINER = {"namespace", "pod", "container", "vdevice_index", "device_uuid", "zone"}
OF_HAMI = {
    "hami_host_gpu_memory_used_bytes": HOST,
    "hami_host_gpu_utilization_ratio": HOST,
    "hami_host_gpu_memory_controller_utilization_ratio": HOST - {"node"},
    "hami_vgpu_memory_used_bytes": CONTAINER,
    "hami_vgpu_memory_limit_bytes": CONTAINER,
    "hami_container_device_memory_bytes": CONTAINER,
    "hami_vgpu_memory_context_bytes": CONTAINER,
    "hami_vgpu_memory_module_bytes": CONTAINER,
    "hami_vgpu_memory_buffer_bytes": CONTAINER,
    "hami_container_device_utilization_ratio": CONTAINER,
    "hami_container_last_kernel_elapsed_seconds": CONTAINER,
    "hami_mig_device_info": CONTAINER | {"mig_uuid", "profile", "gpu_instance_id", "compute_instance_id"},
}
"""Names and labels as `reference/hami-kubernetes.md` 9.4 lists them for 2.10."""

READING = DeviceReading(
    uuid=CARD,
    index=3,
    model="Tesla T4",
    memory_used_bytes=1_000 * MIB,
    memory_reserved_bytes=400 * MIB,
    utilization_percent=84,
    memory_utilization_percent=12,
)
DEVICE = DeviceView(
    CARD,
    "NVIDIA-Tesla T4",
    "NVIDIA",
    3,
    "hami-core",
    15_360,
    10,
    100,
    None,
    None,
    None,
    READING,
    None,
    None,
    None,
)
REGION = RegionGauges(
    layout="v1.2",
    priority=1,
    limit_bytes=4_000 * MIB,
    sm_limit_percent=30,
    switch=0,
    context_bytes=100 * MIB,
    module_bytes=20 * MIB,
    data_bytes=500 * MIB,
    last_kernel_s=NOW_S - 5,
    device_index=1,
)
LABELS = Labels("team", "job", "main", "tenant-a", "NVIDIA-Tesla T4", "NVIDIA")
KEY = OwnerKey(PodUid("uid-job"), "main", CARD, is_slice=True)
GAUGES = SliceGauges(
    KEY, LABELS, 4_000, 30, 1, 0, "default", "hami-core", "region", used_bytes=640 * MIB, region=REGION
)
INSTANCE = MigAllocation(0, 2, CARD, "1g.10gb", Placement(6, 1), "MIG-5c1f", 9, 0)
VIEW = SliceView(KEY, LABELS, GAUGES, None, Rate(300_000, "nvml"))


def samples(*views: SliceView, device: DeviceView = DEVICE) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The page as Prometheus would parse it."""
    page = make_hami_page(Snapshot(NOW_S * 1_000, "worker-1", (device,), views))
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(PageEncoder().render(page, openmetrics=False).decode()):
        assert family.type == "gauge"
        assert family.documentation
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def with_gauges(gauges: SliceGauges, rate: Rate | None = None) -> SliceView:
    return structs.replace(VIEW, gauges=gauges, rate=rate)


def test_it_has_exactly_the_families_and_labels_of_hamis_monitor() -> None:
    view = with_gauges(structs.replace(GAUGES, mig_instances=(INSTANCE,)), Rate(300_000, "nvml"))
    found = samples(view)
    assert {name: set(rows[0][0]) for name, rows in found.items()} == OF_HAMI
    assert {family.full_name: set(family.labels) for family in FAMILIES.values()} == OF_HAMI


def test_every_sample_has_the_zone_that_hami_gives_it() -> None:
    found = samples(VIEW)
    assert {labels["zone"] for rows in found.values() for labels, _ in rows} == {"vGPU"}


def test_a_card_shows_what_nvml_says_of_it_on_a_scale_to_100() -> None:
    found = samples()
    labels = {"device_index": "3", "device_uuid": CARD, "device_type": "NVIDIA-Tesla T4", "zone": "vGPU"}
    assert found == {
        # HAMi's figure includes what the driver reserves.
        "hami_host_gpu_memory_used_bytes": [({**labels, "node": "worker-1"}, 1_400 * MIB)],
        "hami_host_gpu_utilization_ratio": [({**labels, "node": "worker-1"}, 84)],
        "hami_host_gpu_memory_controller_utilization_ratio": [(labels, 12)],
    }


def test_a_container_shows_its_regions_figures_and_its_utilization_on_a_scale_to_100() -> None:
    found = samples(VIEW)
    labels = {
        "namespace": "team",
        "pod": "job",
        "container": "main",
        "vdevice_index": "1",
        "device_uuid": CARD,
        "zone": "vGPU",
    }
    values = {name: rows[0][1] for name, rows in found.items() if "host" not in name}
    assert values == {
        "hami_vgpu_memory_used_bytes": 640 * MIB,
        "hami_vgpu_memory_limit_bytes": 4_000 * MIB,
        "hami_container_device_memory_bytes": 640 * MIB,
        "hami_vgpu_memory_context_bytes": 100 * MIB,
        "hami_vgpu_memory_module_bytes": 20 * MIB,
        "hami_vgpu_memory_buffer_bytes": 500 * MIB,
        "hami_container_device_utilization_ratio": 30,
        "hami_container_last_kernel_elapsed_seconds": 5,
    }
    assert all(rows[0][0] == labels for name, rows in found.items() if "host" not in name)


def test_no_limit_is_0_as_hami_writes_it() -> None:
    view = with_gauges(structs.replace(GAUGES, region=structs.replace(REGION, limit_bytes=None)))
    assert samples(view)["hami_vgpu_memory_limit_bytes"][0][1] == 0


def test_what_was_not_measured_is_absent_and_never_0() -> None:
    region = structs.replace(
        REGION, context_bytes=None, module_bytes=None, data_bytes=None, last_kernel_s=None
    )
    found = samples(with_gauges(structs.replace(GAUGES, region=region, used_bytes=None)))
    assert {name for name in found if "host" not in name} == {"hami_vgpu_memory_limit_bytes"}
    unread = dataclasses.replace(DEVICE, reading=dataclasses.replace(READING, memory_used_bytes=None))
    assert "hami_host_gpu_memory_used_bytes" not in samples(device=unread)
    assert samples(device=dataclasses.replace(DEVICE, reading=None)) == {}


def test_a_container_without_a_region_and_an_ended_one_are_not_listed_as_in_hami() -> None:
    without = with_gauges(structs.replace(GAUGES, region=None), Rate(1, "nvml"))
    ended = structs.replace(VIEW, gauges=None)
    assert set(samples(without, ended)) == set(samples())


def test_a_kernel_in_the_future_is_0_seconds_ago() -> None:
    region = structs.replace(REGION, last_kernel_s=NOW_S + 9)
    found = samples(with_gauges(structs.replace(GAUGES, region=region)))
    assert found["hami_container_last_kernel_elapsed_seconds"][0][1] == 0


def test_a_mig_instance_is_listed_once_its_ids_are_known() -> None:
    mig = structs.replace(GAUGES, region=None, enforcement="mig", mig_instances=(INSTANCE,))
    [(labels, value)] = samples(with_gauges(mig))["hami_mig_device_info"]
    assert value == 1
    assert labels == {
        "namespace": "team",
        "pod": "job",
        "container": "main",
        "vdevice_index": "2",
        "device_uuid": CARD,
        "mig_uuid": "MIG-5c1f",
        "profile": "1g.10gb",
        "gpu_instance_id": "9",
        "compute_instance_id": "0",
        "zone": "vGPU",
    }
    pending = dataclasses.replace(INSTANCE, mig_uuid=None, gpu_instance_id=None, compute_instance_id=None)
    waiting = structs.replace(mig, mig_instances=(pending,))
    assert "hami_mig_device_info" not in samples(with_gauges(waiting))


def test_none_of_hamis_names_is_on_our_own_page_or_in_our_catalogue() -> None:
    page = make_page(Snapshot(NOW_S * 1_000, "worker-1", (DEVICE,), (VIEW,)))
    text = PageEncoder().render(page, openmetrics=False)
    assert b"hami_" not in text.replace(b"slicemeter_", b"")
    assert not {family.full_name for family in BY_NAME.values()} & OF_HAMI.keys()


def test_over_budget_the_youngest_slices_are_left_out() -> None:
    young = structs.replace(
        VIEW,
        key=KEY._replace(pod_uid=PodUid("uid-young")),
        labels=Labels("team", "young", "main", "tenant-a", "NVIDIA-Tesla T4"),
        gauges=structs.replace(GAUGES, held_from_ms=9),
    )
    page = make_hami_page(Snapshot(NOW_S * 1_000, "worker-1", (DEVICE,), (young, VIEW)), series_budget=12)
    assert page.dropped_series == 8
    assert sum(len(family.values) for family in page.families) == 3 + 8


def test_every_family_is_in_the_documents() -> None:
    page = (Path(__file__).parents[4] / "docs" / "serving.md").read_text(encoding="utf-8")
    assert [name for name in OF_HAMI if f"`{name}`" not in page] == []
