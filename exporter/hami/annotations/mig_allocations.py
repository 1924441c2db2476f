"""Which MIG instances a pod was given: `hami.io/vgpu-mig-allocations` of HAMi 2.10.

    [{"containerIndex","deviceIndex","gpuUUID","profile","placement":{"start","size"},
      "migUUID","gpuInstanceID","computeInstanceID"}]

The device plugin adds the last three at Allocate: all or none. Invariant: (container index, device index)
is unique; the container index counts entries as `vgpu-devices-allocated` does, 2.10.0's lost padding
included.

Source: `reference/hami-kubernetes.md §3.7`.
"""

from __future__ import annotations

from dataclasses import dataclass

from exporter.hami.annotations.flaw import Flaw, Kind, Reason, flaw
from exporter.hami.annotations.json_list import JsonObject, read_objects
from exporter.hami.annotations.node_register import Placement
from exporter.hami.annotations.scalars import is_id, is_text, whole

KIND: Kind = "mig-allocations"
KEY = "hami.io/vgpu-mig-allocations"


@dataclass(frozen=True, slots=True)
class MigAllocation:
    """One MIG instance for one device of one entry; the last three are None before Allocate."""

    container_index: int
    device_index: int
    uuid: str
    profile: str
    placement: Placement
    mig_uuid: str | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None


@dataclass(frozen=True, slots=True)
class MigAllocations:
    """A whole annotation."""

    allocations: tuple[MigAllocation, ...]
    errors: tuple[Flaw, ...]


def parse_mig_allocations(text: str) -> MigAllocations:
    """Read the annotation; never raises."""
    objects, errors = read_objects(KIND, text)
    allocations: dict[tuple[int, int], MigAllocation] = {}
    for element in objects:
        allocation = _allocation(element, errors)
        if allocation is None:
            continue
        place = (allocation.container_index, allocation.device_index)
        if place in allocations:
            detail = f"container {place[0]}, device {place[1]} is listed before; the first holds"
            errors.append(flaw(KIND, element.segment, "duplicate", detail))
            continue
        allocations[place] = allocation
    return MigAllocations(tuple(allocations.values()), tuple(errors))


def _allocation(element: JsonObject, errors: list[Flaw]) -> MigAllocation | None:
    members, segment = element.members, element.segment
    uuid, profile = members.get("gpuUUID", ""), members.get("profile", "")
    if not isinstance(uuid, str) or not is_id(uuid):
        reason: Reason = "missing_uuid" if uuid == "" else "bad_uuid"
        errors.append(flaw(KIND, segment, reason, "gpuUUID is no short printable text"))
        return None
    if not isinstance(profile, str) or not is_text(profile):
        errors.append(flaw(KIND, segment, "bad_value", "profile is no short printable text"))
        return None
    placement = members.get("placement", {})
    inside = placement if isinstance(placement, dict) else {"start": None}
    numbers = [
        whole(members.get("containerIndex", 0)),
        whole(members.get("deviceIndex", 0)),
        whole(inside.get("start", 0)),
        whole(inside.get("size", 0)),
    ]
    good = [number for number in numbers if number is not None]
    if len(good) != len(numbers):
        detail = "containerIndex, deviceIndex or placement is no whole number"
        errors.append(flaw(KIND, segment, "bad_number", detail))
        return None
    mig_uuid, gpu_instance, compute_instance = _instance(members, segment, errors)
    return MigAllocation(
        container_index=good[0],
        device_index=good[1],
        uuid=uuid,
        profile=profile,
        placement=Placement(good[2], good[3]),
        mig_uuid=mig_uuid,
        gpu_instance_id=gpu_instance,
        compute_instance_id=compute_instance,
    )


def _instance(
    members: dict[str, object], segment: str, errors: list[Flaw]
) -> tuple[str | None, int | None, int | None]:
    """The instance's ids: all three, or none, since a part of them would name the wrong instance."""
    keys = ("migUUID", "gpuInstanceID", "computeInstanceID")
    present = [key for key in keys if members.get(key) is not None]
    if not present:
        return None, None, None
    mig_uuid = members.get("migUUID")
    gpu_instance, compute_instance = (whole(members.get(key)) for key in keys[1:])
    if (
        isinstance(mig_uuid, str)
        and is_id(mig_uuid)
        and gpu_instance is not None
        and compute_instance is not None
    ):
        return mig_uuid, gpu_instance, compute_instance
    detail = "migUUID, gpuInstanceID and computeInstanceID come together or not at all"
    errors.append(flaw(KIND, segment, "bad_value", f"{detail}; readable: {', '.join(present)}"))
    return None, None, None
