"""A slice at this moment, from its grant, its region, its pod and NVML. Pure.

Invariant: `used_bytes` is 0 only when a healthy source says so: a region without living processes, or
an NVML that lists no process which could be the slice's.
"""

from __future__ import annotations

from contract.ids import DeviceUuid
from exporter.hami.holding import HeldSlice
from exporter.node.attribution.joining import Joint
from exporter.node.attribution.mig import mig_used_bytes
from exporter.node.attribution.regions import ContainerUse, DeviceShare
from exporter.node.metering.counters import Labels, OwnerKey
from exporter.node.snapshot import RegionGauges, SliceGauges
from exporter.node.sources.pods import Place, PodRecord

POLICY_ENV = "GPU_CORE_UTILIZATION_POLICY"
DISABLE_ENV = "CUDA_DISABLE_CONTROL"
_TRUTHY = frozenset({"1", "t", "true", "y", "yes", "on"})


def slice_gauges(joint: Joint, place: Place, held: HeldSlice) -> SliceGauges:
    """Everything known of one slice now, but for its lock and its counters."""
    record, grant = joint.record(place), held.grant
    use = joint.uses.get(place, ContainerUse())
    share = use.shares.get(grant.device_uuid)
    has_region = share is not None and share.region is not None
    reading = joint.sources.readings.get(grant.device_uuid)
    used_bytes, source = mig_used_bytes(grant, reading, use.pids), "nvml"
    if used_bytes is None:
        used_bytes, source = _memory(joint, place, grant.device_uuid)
    is_mig = grant.mig is not None or (reading is not None and reading.mode == "mig")
    processes: int | None = share.processes if share is not None and has_region else None
    if processes is None and used_bytes is not None:
        processes = len(use.pids & joint.listed.get(grant.device_uuid, frozenset()))
    return SliceGauges(
        key=OwnerKey(*place, DeviceUuid(grant.device_uuid), is_slice=True),
        labels=labels_of(joint, record, held),
        allocated_mib=grant.memory_mib,
        core_percent=grant.core_percent,
        slots=grant.slots,
        held_from_ms=held.bound_at_ms,
        policy=record.environment.get((grant.container, POLICY_ENV)) or "default",
        enforcement="mig" if is_mig else _enforcement(joint, place, held, has_region=has_region),
        memory_source=source,
        used_bytes=used_bytes,
        processes=processes,
        stale_processes=use.stale if has_region else None,
        region=_region(share) if share is not None else None,
        mig_instances=grant.instances,
    )


def labels_of(joint: Joint, record: PodRecord, held: HeldSlice) -> Labels:
    """The labels of a slice."""
    grant = held.grant
    return Labels(
        namespace=record.pod.metadata.namespace,
        pod=record.pod.metadata.name,
        container=grant.container,
        tenant=record.tenant,
        model=model_of(joint, grant.device_uuid),
        vendor=grant.vendor,
    )


def model_of(joint: Joint, device_uuid: str) -> str:
    """A device's model: as HAMi registered it, else as NVML names it."""
    registered = joint.sources.registered.get(device_uuid)
    if registered is not None and registered.type:
        return registered.type
    reading = joint.sources.readings.get(device_uuid)
    return reading.model if reading is not None else ""


def _memory(joint: Joint, place: Place, device_uuid: str) -> tuple[int | None, str]:
    use = joint.uses.get(place, ContainerUse())
    share = use.shares.get(device_uuid)
    if use.has_unplaced:
        return None, ""
    if share is not None and share.region is not None and not share.is_uncertain:
        return share.used_bytes, "region"
    listed = joint.listed.get(device_uuid)
    if listed is None:
        return None, ""
    if joint.are_told:
        may_be_its = joint.doubtful_on(place, device_uuid)
    else:
        # Nobody tells the processes of one without a region.
        has_more = use.has_unknown_pids or (not use.pids and share is None)
        may_be_its = listed - joint.owned if has_more else frozenset()
    if may_be_its:
        return None, ""
    figures = [joint.nvml.get((device_uuid, pid)) for pid in use.pids & listed]
    if None in figures:
        return None, ""
    return sum(figure for figure in figures if figure is not None), "nvml"


def _enforcement(joint: Joint, place: Place, held: HeldSlice, *, has_region: bool) -> str:
    if has_region:
        return "hami-core"
    disabled = joint.record(place).environment.get((place[1], DISABLE_ENV))
    if disabled is not None and disabled.strip().lower() in _TRUTHY:
        return "none"
    has_library = place in joint.directories or (joint.sources.survey.has_tree and not held.started_at_ms)
    return "pending" if has_library else "none"


def _region(share: DeviceShare) -> RegionGauges | None:
    region, index = share.region, share.index
    if region is None:
        return None
    sm_limit = region.sm_limits_percent[index]
    return RegionGauges(
        layout=region.layout,
        priority=region.priority,
        limit_bytes=region.limits_bytes[index] or None,
        sm_limit_percent=sm_limit or None,
        switch=region.utilization_switch,
        context_bytes=share.context_bytes,
        module_bytes=share.module_bytes,
        data_bytes=share.data_bytes,
        last_kernel_s=region.last_kernel_time_s or None,
        device_index=index,
    )
