"""The page of `--compat hami`: the families of HAMi 2.10's monitor, from our own snapshot.

For nodes where that monitor does not run, so that its dashboards go on. Invariants: names, labels and
scale (`_ratio` runs 0-100) are HAMi's to the letter, each sample has `zone="vGPU"`; none of these names is
on `/metrics`. The values are ours: of living processes only, and absent where nothing was measured.

Source: `reference/hami-kubernetes.md §9.4`.
"""

from __future__ import annotations

from typing import Final

from contract.catalogue import Family, Group
from contract.units import MS_PER_SECOND
from exporter.exposition.page import DEFAULT_SERIES_BUDGET, Page, PageBuilder
from exporter.node.snapshot import DeviceView, RegionGauges, SliceView, Snapshot
from exporter.nvidia.source import DeviceReading

ZONE: Final = "vGPU"
_PPM_PER_PERCENT: Final = 10_000

_HOST = ("node", "device_index", "device_uuid", "device_type", "zone")
_SLICE = ("namespace", "pod", "container", "vdevice_index", "device_uuid", "zone")
_MIG = (*_SLICE[:-1], "mig_uuid", "profile", "gpu_instance_id", "compute_instance_id", "zone")


def _gauge(group: Group, name: str, labels: tuple[str, ...], text: str) -> Family:
    return Family(name, "gauge", group, labels, text, ("node",), prefix="hami_")


FAMILIES: Final = {
    family.name: family
    for family in (
        _gauge("device", "host_gpu_memory_used_bytes", _HOST, "Memory in use on the device."),
        _gauge("device", "host_gpu_utilization_ratio", _HOST, "Utilization of the device, 0-100."),
        _gauge(
            "device",
            "host_gpu_memory_controller_utilization_ratio",
            _HOST[1:],  # HAMi's has no node
            "Utilization of the device's memory controller, 0-100.",
        ),
        _gauge("slice", "vgpu_memory_used_bytes", _SLICE, "Memory in use by the container on the device."),
        _gauge("slice", "vgpu_memory_limit_bytes", _SLICE, "Memory limit in the region; 0 = none."),
        _gauge("slice", "container_device_memory_bytes", _SLICE, "The same as hami_vgpu_memory_used_bytes."),
        _gauge(
            "slice",
            "container_device_utilization_ratio",
            _SLICE,
            "SM utilization by the container, 100 = one whole card.",
        ),
        _gauge(
            "slice",
            "container_last_kernel_elapsed_seconds",
            _SLICE,
            "Seconds since the last kernel in the container; absent if there never was one.",
        ),
        _gauge("slice", "mig_device_info", _MIG, "Identity of a container's MIG instance; 1."),
        _gauge("slice", "vgpu_memory_context_bytes", _SLICE, "Memory of contexts."),
        _gauge("slice", "vgpu_memory_module_bytes", _SLICE, "Memory of modules."),
        _gauge("slice", "vgpu_memory_buffer_bytes", _SLICE, "Memory of buffers."),
    )
}


def make_hami_page(snapshot: Snapshot, series_budget: int = DEFAULT_SERIES_BUDGET) -> Page:
    """The whole page of one snapshot; over budget the youngest slices are left out, as on our own."""
    page = PageBuilder(series_budget, FAMILIES)
    for device in snapshot.devices:
        if device.reading is not None:
            with page.group():
                _device(page, snapshot.node, device, device.reading)
    held = [(view.gauges.held_from_ms, view.key, view) for view in snapshot.slices if view.gauges is not None]
    for _, _, view in sorted(held, key=lambda each: each[:2]):
        with page.group():
            _slice(page, view, snapshot.at_ms)
    return page.build(snapshot.at_ms / MS_PER_SECOND)


def _device(page: PageBuilder, node: str, device: DeviceView, reading: DeviceReading) -> None:
    labels = (str(reading.index), device.uuid, f"NVIDIA-{reading.model}", ZONE)
    page.add("host_gpu_memory_used_bytes", (node, *labels), _used_bytes(reading))
    page.add("host_gpu_utilization_ratio", (node, *labels), reading.utilization_percent)
    page.add("host_gpu_memory_controller_utilization_ratio", labels, reading.memory_utilization_percent)


def _used_bytes(reading: DeviceReading) -> int | None:
    """HAMi asks with NVML's first memory struct, whose "used" includes what the driver reserves."""
    if reading.memory_used_bytes is None:
        return None
    return reading.memory_used_bytes + (reading.memory_reserved_bytes or 0)


def _slice(page: PageBuilder, view: SliceView, at_ms: int) -> None:
    assert view.gauges is not None
    own, gauges = view.labels, view.gauges
    place = (own.namespace, own.pod, own.container)
    for instance in gauges.mig_instances:
        if instance.mig_uuid is not None:
            ids = (str(instance.gpu_instance_id), str(instance.compute_instance_id))
            at = (*place, str(instance.device_index), instance.uuid)
            page.add("mig_device_info", (*at, instance.mig_uuid, instance.profile, *ids, ZONE), 1)
    if gauges.region is None:
        return  # HAMi's monitor knows containers by their region alone
    labels = (*place, str(gauges.region.device_index), view.key.device_uuid, ZONE)
    page.add("vgpu_memory_used_bytes", labels, gauges.used_bytes)
    page.add("container_device_memory_bytes", labels, gauges.used_bytes)
    page.add("vgpu_memory_limit_bytes", labels, gauges.region.limit_bytes or 0)
    if view.rate is not None:
        page.add("container_device_utilization_ratio", labels, view.rate.ppm / _PPM_PER_PERCENT)
    _region(page, labels, gauges.region, at_ms)


def _region(page: PageBuilder, labels: tuple[str, ...], region: RegionGauges, at_ms: int) -> None:
    if region.last_kernel_s is not None:
        elapsed_s = max(0, at_ms // MS_PER_SECOND - region.last_kernel_s)
        page.add("container_last_kernel_elapsed_seconds", labels, elapsed_s)
    page.add("vgpu_memory_context_bytes", labels, region.context_bytes)
    page.add("vgpu_memory_module_bytes", labels, region.module_bytes)
    page.add("vgpu_memory_buffer_bytes", labels, region.data_bytes)
