"""What a pod holds: the one function that both roles call, and so the one answer.

A slice is held from the pod's binding to its terminal phase or deletion, whatever its containers do; a
plain init container's only while it runs. An annotation alone is a reservation: HAMi's filter writes it
before the pod is bound, and it survives when no node is found later. Pure: times come in as arguments.

Source: DESIGN section 5 ("When a slice is held"), `reference/hami-kubernetes.md §3.1, §3.4, §3.8`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from contract.facts import ContainerKind
from exporter.hami.annotations.containers import ContainerDevices, PodLayout, map_entries
from exporter.hami.annotations.flaw import Flaw, flaw
from exporter.hami.annotations.mig_allocations import KEY as MIG_KEY
from exporter.hami.annotations.mig_allocations import MigAllocation, parse_mig_allocations
from exporter.hami.annotations.pod_devices import GrantedDevice, parse_pod_devices
from exporter.hami.annotations.pod_keys import KIND as POD_KEYS_KIND
from exporter.hami.annotations.pod_keys import PodKeys, allocation_keys, parse_pod_keys
from exporter.hami.resources import ResourceNames, layout_of
from exporter.kube.objects import ContainerStatus, Pod, parse_time_ms

UNKNOWN_CONTAINER = "?"
"""Name of the container when the entry's cannot be told; no real container can have it."""

NVIDIA = "NVIDIA"
TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})
DELETED = "Deleted"

_CORES_ARE_NO_PERCENT = frozenset({"AWSNeuron", "AMD"})  # a bit mask; physical compute units


@dataclass(frozen=True, slots=True)
class Grant:
    """What one container was promised of one device.

    Attributes:
        container: Its name, or `UNKNOWN_CONTAINER`.
        kind: `app`, `sidecar` or `init`.
        device_uuid: The physical device.
        vendor: Family word.
        memory_mib: Sum of the grants of this device to this container.
        core_percent: The same; 0 = none requested.
        slots: Number of grants.
        mig: `[template-slot]` (HAMi ≤ 2.9) or `profile@start+size` (2.10); None for no MIG.
        instances: The MIG instances of 2.10's annotation.
    """

    container: str
    kind: ContainerKind
    device_uuid: str
    vendor: str
    memory_mib: int
    core_percent: int
    slots: int
    mig: str | None
    instances: tuple[MigAllocation, ...] = ()

    @property
    def is_nvidia(self) -> bool:
        """Only NVIDIA's slices become facts and have usage."""
        return self.vendor == NVIDIA


@dataclass(frozen=True, slots=True)
class HeldSlice:
    """A grant in time: held over [bound_at_ms, ended_at_ms).

    Attributes:
        grant: What is held.
        bound_at_ms: Unix milliseconds: the binding; for a plain init container the start of its run.
        started_at_ms: When the container first ran; None before.
        ended_at_ms: None while it is held. An end is always an observed one.
        end_reason: `Succeeded`, `Failed`, `Completed`, `Deleted`, or the pod's own reason (`Evicted`).
    """

    grant: Grant
    bound_at_ms: int
    started_at_ms: int | None
    ended_at_ms: int | None
    end_reason: str | None


@dataclass(frozen=True, slots=True)
class Holding:
    """All that a pod's annotations and status say.

    Attributes:
        node: Where it is bound, or for a reservation the node that Filter chose; None for neither.
        slices: Held now, or held until an observed end. A plain init container that did not run is not
            among them.
        reserved: Promised to a pod that is not bound; never billed.
        errors: What could not be read.
    """

    node: str | None
    slices: tuple[HeldSlice, ...]
    reserved: tuple[Grant, ...]
    errors: tuple[Flaw, ...]

    @property
    def current(self) -> tuple[HeldSlice, ...]:
        """The slices that have no end."""
        return tuple(held for held in self.slices if held.ended_at_ms is None)


@dataclass(frozen=True, slots=True)
class PodEnd:
    """When and why a pod let go of everything."""

    at_ms: int
    reason: str


def holding(pod: Pod, names: ResourceNames, *, seen_at_ms: int, deleted_at_ms: int | None = None) -> Holding:
    """What a pod holds.

    Args:
        pod: The object.
        names: Resource names of this cluster.
        seen_at_ms: When this state of the object was *first* seen: the end of a pod that is terminal
            although no app container ran, since the phase has no time of its own.
        deleted_at_ms: When the DELETED event came; None while the object exists. (Absence after a relist
            is no event: the caller knows what an inferred end is.)
    """
    grants, errors = _grants(pod, names)
    keys = parse_pod_keys(pod.metadata.annotations)
    errors += keys.errors
    node = pod.spec.node_name
    if not grants:
        return Holding(node, (), (), tuple(errors))
    end = pod_end(pod, seen_at_ms=seen_at_ms, deleted_at_ms=deleted_at_ms)
    if not node:
        return Holding(keys.node, (), () if end else tuple(grants), tuple(errors))
    if keys.node and keys.node != node:
        detail = f'HAMi chose node "{keys.node}", the pod is bound to "{node}"'
        errors.append(flaw(POD_KEYS_KIND, keys.node, "other_node", detail))
    bound_at_ms = _bound_at_ms(pod, keys, seen_at_ms)
    slices = tuple(_in_time(grants, pod, bound_at_ms, end))
    return Holding(node, slices, (), tuple(errors))


def pod_end(pod: Pod, *, seen_at_ms: int, deleted_at_ms: int | None = None) -> PodEnd | None:
    """The earlier of terminal phase and deletion; a deletionTimestamp alone ends nothing."""
    ends: list[PodEnd] = []
    if pod.status.phase in TERMINAL_PHASES:
        finished = [
            finished_at_ms
            for status in pod.status.container_statuses
            if status.state.terminated
            and (finished_at_ms := _real_time_ms(status.state.terminated.finished_at)) is not None
        ]
        at_ms = max(finished, default=seen_at_ms)
        ends.append(PodEnd(at_ms, pod.status.reason or pod.status.phase))
    if deleted_at_ms is not None:
        ends.append(PodEnd(deleted_at_ms, DELETED))
    return min(ends, key=lambda end: end.at_ms, default=None)


def _grants(pod: Pod, names: ResourceNames) -> tuple[list[Grant], list[Flaw]]:
    annotations = pod.metadata.annotations
    errors: list[Flaw] = []
    grants: dict[tuple[str, str, str], Grant] = {}
    family_of_vendor: dict[str, str] = {}
    for key, family in allocation_keys(annotations):
        devices = parse_pod_devices(annotations[key])
        layout = layout_of(pod, names, family)
        mapping = map_entries(devices, layout)
        errors += devices.errors + mapping.errors
        instances: tuple[MigAllocation, ...] = ()
        if family == "vgpu" and MIG_KEY in annotations:
            parsed = parse_mig_allocations(annotations[MIG_KEY])
            instances = parsed.allocations
            errors += parsed.errors
        for entry in mapping.containers:
            for grant in _grants_of(entry, layout, instances):
                # HAMi ≤ 2.9 repeats the first vendor's devices in the annotation of a second one.
                if family_of_vendor.setdefault(grant.vendor, family) == family:
                    place = (grant.container, grant.vendor, grant.device_uuid)
                    grants[place] = _sum(grants.get(place), grant)
    return list(grants.values()), errors


def _grants_of(
    entry: ContainerDevices, layout: PodLayout, instances: tuple[MigAllocation, ...]
) -> Iterator[Grant]:
    kind = layout.kind_of(entry.name) if entry.name is not None else None
    for index, device in enumerate(entry.devices):
        instance = _instance(device, (entry.position, index), instances)
        yield Grant(
            container=entry.name or UNKNOWN_CONTAINER,
            kind=kind or "app",
            device_uuid=device.uuid,
            vendor=device.vendor,
            memory_mib=device.memory_mib,
            core_percent=0 if device.vendor in _CORES_ARE_NO_PERCENT else device.core_percent,
            slots=1,
            mig=_mig(device, instance),
            instances=() if instance is None else (instance,),
        )


def _instance(
    device: GrantedDevice, place: tuple[int, int], instances: tuple[MigAllocation, ...]
) -> MigAllocation | None:
    return next(
        (
            each
            for each in instances
            if (each.container_index, each.device_index, each.uuid) == (*place, device.uuid)
        ),
        None,
    )


def _mig(device: GrantedDevice, instance: MigAllocation | None) -> str | None:
    if device.mig:
        return f"[{device.mig.template}-{device.mig.slot}]"
    if instance is not None:
        return f"{instance.profile}@{instance.placement.start}+{instance.placement.size}"
    return None


def _sum(former: Grant | None, grant: Grant) -> Grant:
    """Two grants of one device to one container are one slice: amounts add."""
    if former is None:
        return grant
    return Grant(
        container=grant.container,
        kind=grant.kind,
        device_uuid=grant.device_uuid,
        vendor=grant.vendor,
        memory_mib=former.memory_mib + grant.memory_mib,
        core_percent=former.core_percent + grant.core_percent,
        slots=former.slots + grant.slots,
        mig=",".join(mig for mig in (former.mig, grant.mig) if mig) or None,
        instances=former.instances + grant.instances,
    )


def _bound_at_ms(pod: Pod, keys: PodKeys, seen_at_ms: int) -> int:
    scheduled = (
        _real_time_ms(condition.last_transition_time)
        for condition in pod.status.conditions
        if condition.type == "PodScheduled" and condition.status == "True"
    )
    candidates = (next(scheduled, None), keys.bound_at_ms, _real_time_ms(pod.status.start_time), seen_at_ms)
    return next(at_ms for at_ms in candidates if at_ms is not None)


def _in_time(grants: list[Grant], pod: Pod, bound_at_ms: int, end: PodEnd | None) -> Iterator[HeldSlice]:
    statuses = {
        status.name: status
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    }
    for grant in grants:
        status = statuses.get(grant.container)
        if grant.kind == "init":
            run = _init_run(grant, status, end)
            if run is not None:
                yield run
            continue
        yield HeldSlice(
            grant=grant,
            bound_at_ms=bound_at_ms,
            started_at_ms=_first_start_ms(status),
            ended_at_ms=None if end is None else max(end.at_ms, bound_at_ms),
            end_reason=None if end is None else end.reason,
        )


def _init_run(grant: Grant, status: ContainerStatus | None, end: PodEnd | None) -> HeldSlice | None:
    """A plain init container, from its first start to the finish after which it runs no more.

    One that failed is started again under the same key, so its failure is no end: an observed end is
    final in the ledger.
    """
    started_at_ms = _first_start_ms(status)
    if status is None or started_at_ms is None:
        return None
    terminated = status.state.terminated
    ends = [end] if end is not None else []
    if terminated is not None and (terminated.exit_code == 0 or end is not None):
        finished_at_ms = _real_time_ms(terminated.finished_at)
        if finished_at_ms is not None:
            ends.append(PodEnd(finished_at_ms, terminated.reason or "Completed"))
    last = min(ends, key=lambda found: found.at_ms, default=None)
    return HeldSlice(
        grant=grant,
        bound_at_ms=started_at_ms,
        started_at_ms=started_at_ms,
        ended_at_ms=None if last is None else max(last.at_ms, started_at_ms),
        end_reason=None if last is None else last.reason,
    )


def _first_start_ms(status: ContainerStatus | None) -> int | None:
    if status is None:
        return None
    starts: Iterable[str | None] = (
        found.started_at
        for found in (status.state.running, status.state.terminated, status.last_state.terminated)
        if found is not None
    )
    return min((at for text in starts if (at := _real_time_ms(text)) is not None), default=None)


def _real_time_ms(text: str | None) -> int | None:
    """A time that happened: the kubelet writes the year 1 or 1970 for a container that never ran."""
    at_ms = parse_time_ms(text)
    return at_ms if at_ms is not None and at_ms > 0 else None
