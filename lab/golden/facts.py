"""What exporters would have told of a world up to an instant.

Invariant: `facts_until(world, later)` says everything that `facts_until(world, earlier)` said, or more: a
later confirmation, an end, a higher revision. So any mixture of both ends in the later one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from contract.facts import (
    AllocationFact,
    DeviceUsageFact,
    EndKind,
    Fact,
    NodeStateFact,
    PresenceFact,
    SliceUsageFact,
    UnallocatedUseFact,
)
from contract.ids import DeviceUuid, EpochId, Witness
from contract.units import MS_PER_HOUR, PPM, hour_start_ms
from lab.golden.world import Card, Node, Outage, Pod, World

VENDOR = "NVIDIA"

NODE_MONITOR_GRACE_MS = 40_000
"""How long after its last heartbeat Kubernetes calls a Node not Ready."""

_MS_PER_REVISION = 1_000


def facts_until(world: World, at_ms: int) -> list[Fact]:
    """Every fact as its exporter would have sent it last, up to an instant."""
    told: list[Fact] = []
    for node in world.nodes:
        told += _presence(node, world.watched_from_ms, at_ms)
        told += _node_states(node, world.watched_from_ms, at_ms)
    for pod in world.pods:
        if pod.bound_ms < at_ms and not pod.bypasses:
            told += _allocations(pod, world.watched_from_ms, at_ms)
        told += _uses(pod, world.watched_from_ms, at_ms)
    for node in world.nodes:
        for card in node.cards:
            told += _device_uses(world, node, card, at_ms)
    return told


def node_times(node: Node, from_ms: int, at_ms: int) -> list[tuple[EpochId, int, int]]:
    """When the node's own exporter saw what was there, as far as it is told at an instant: by epoch."""
    first, second = EpochId(f"{node.uid}-run-1"), EpochId(f"{node.uid}-run-2")
    if node.is_mock:
        return []
    if node.outage is None or at_ms <= node.outage.last_heartbeat_ms:
        return [(first, from_ms, at_ms)]
    if at_ms <= node.outage.ready_ms:
        return [(first, from_ms, node.outage.last_heartbeat_ms)]
    return [(first, from_ms, node.outage.alive_until_ms), (second, node.outage.ready_ms, at_ms)]


def _presence(node: Node, from_ms: int, at_ms: int) -> Iterator[PresenceFact]:
    times: list[tuple[Witness, int, int]] = [("cluster", from_ms, at_ms)]
    times += [("node", begins, ends) for _, begins, ends in node_times(node, from_ms, at_ms)]
    for card in node.cards:
        for witness, begins, ends in times:
            yield PresenceFact(
                cluster=node.cluster,
                node_uid=node.uid,
                node=node.name,
                device_uuid=card.uuid,
                witness=witness,
                from_ms=begins,
                to_ms=ends,
                state="healthy",
                model=card.model,
                vendor=VENDOR,
                registered_mib=card.registered_mib,
                slots=card.slots,
                physical_mib=card.registered_mib if witness == "node" else None,
            )


def _node_states(node: Node, from_ms: int, at_ms: int) -> Iterator[NodeStateFact]:
    for begins, ends, is_ready, heartbeat_ms in _readiness(node.outage, from_ms, at_ms):
        yield NodeStateFact(
            cluster=node.cluster,
            node_uid=node.uid,
            node=node.name,
            from_ms=begins,
            to_ms=ends,
            ready=is_ready,
            heartbeat_at_ms=heartbeat_ms,
        )


def _readiness(outage: Outage | None, from_ms: int, at_ms: int) -> Iterator[tuple[int, int, bool, int]]:
    gone_ms = at_ms if outage is None else min(at_ms, outage.last_heartbeat_ms)
    yield from_ms, gone_ms, True, gone_ms
    if outage is None:
        return
    seen_gone_ms = outage.last_heartbeat_ms + NODE_MONITOR_GRACE_MS
    if at_ms > seen_gone_ms:
        yield seen_gone_ms, min(at_ms, outage.ready_ms), False, outage.last_heartbeat_ms
    if at_ms > outage.ready_ms:
        yield outage.ready_ms, at_ms, True, at_ms


def _allocations(pod: Pod, from_ms: int, at_ms: int) -> Iterator[AllocationFact]:
    for device_uuid in pod.cards:
        yield _allocation(pod, device_uuid, "cluster", from_ms, at_ms)
        if not pod.node.is_mock:
            yield _allocation(pod, device_uuid, "node", from_ms, at_ms)


def _allocation(
    pod: Pod, device_uuid: DeviceUuid, witness: Witness, from_ms: int, at_ms: int
) -> AllocationFact:
    confirmed_ms, ended_ms, kind = pod.known_until(at_ms), pod.ended_ms, "observed"
    if witness == "cluster" and pod.missed_ms is not None and at_ms >= pod.missed_ms:
        confirmed_ms, ended_ms, kind = pod.missed_ms, pod.missed_ms, "inferred"
    if witness == "node":
        confirmed_ms = max(
            min(confirmed_ms, ends)
            for _, begins, ends in node_times(pod.node, from_ms, at_ms)
            if begins <= confirmed_ms
        )
    has_ended = ended_ms is not None and ended_ms <= at_ms
    end_kind: EndKind = "observed" if kind == "observed" else "inferred"
    return AllocationFact(
        cluster=pod.node.cluster,
        pod_uid=pod.uid,
        container="main",
        device_uuid=device_uuid,
        witness=witness,
        node_uid=pod.node.uid,
        node=pod.node.name,
        namespace=pod.namespace,
        pod=pod.name,
        vendor=VENDOR,
        model=pod.node.card(device_uuid).model,
        mem_mib=pod.mem_mib,
        core_percent=pod.core_percent,
        container_kind="app",
        tenant_key=pod.tenant_key,
        bound_at_ms=pod.bound_ms,
        started_at_ms=pod.started_ms if pod.started_ms <= at_ms else None,
        first_confirmed_at_ms=max(pod.bound_ms, from_ms),
        confirmed_at_ms=max(confirmed_ms, pod.bound_ms, from_ms),
        ended_at_ms=ended_ms if has_ended else None,
        end_kind=end_kind if has_ended else None,
        end_reason="Succeeded" if has_ended and end_kind == "observed" else None,
    )


def _hours(begins: int, ends: int) -> Iterator[tuple[int, int, int]]:
    """An interval in UTC hours: (hour, from, to)."""
    at = begins
    while at < ends:
        hour_ms = hour_start_ms(at)
        to = min(ends, hour_ms + MS_PER_HOUR)
        yield hour_ms, at, to
        at = to


def _measured(pod: Pod, from_ms: int, at_ms: int) -> Iterator[tuple[EpochId, int, int, int]]:
    """When the pod's use was measured: (epoch, hour, from, to)."""
    lived_until = pod.known_until(at_ms)
    for epoch, begins, ends in node_times(pod.node, from_ms, at_ms):
        for hour_ms, start, stop in _hours(max(pod.started_ms, begins), min(lived_until, ends)):
            yield epoch, hour_ms, start, stop


def _uses(pod: Pod, from_ms: int, at_ms: int) -> Iterator[SliceUsageFact | UnallocatedUseFact]:
    for device_uuid in pod.cards:
        for epoch, hour_ms, begins, ends in _measured(pod, from_ms, at_ms):
            covered_ms = ends - begins
            fields: dict[str, Any] = {
                "cluster": pod.node.cluster,
                "device_uuid": device_uuid,
                "node_uid": pod.node.uid,
                "hour_ms": hour_ms,
                "epoch": epoch,
                "revision": (ends - hour_ms) // _MS_PER_REVISION,
                "from_ms": begins,
                "to_ms": ends,
                "covered_ms": covered_ms,
                "pod_uid": pod.uid,
                "container": "main",
                "unknown_ms": 0,
                "sm_ppm_ms": covered_ms * pod.sm_percent * PPM // 100,
                "sm_down_ppm_ms": 0,
                "mem_used_mib_ms": covered_ms * pod.mem_mib // 2,
                "mem_peak_mib": pod.mem_mib // 2,
                "energy_active_mj": covered_ms * pod.active_watts,
                "blocked_ms": 0,
                "over_limit_ms": 0,
                "source": "nvml",
            }
            if pod.bypasses:
                yield UnallocatedUseFact(
                    **fields, namespace=pod.namespace, pod=pod.name, tenant_key=pod.tenant_key
                )
            else:
                yield SliceUsageFact(**fields)


def _device_uses(world: World, node: Node, card: Card, at_ms: int) -> Iterator[DeviceUsageFact]:
    """The card's own hours: what its pods did, and what its board drew beside them."""
    busy: dict[tuple[EpochId, int], int] = {}
    active: dict[tuple[EpochId, int], int] = {}
    for pod in world.pods:
        if pod.node is node and card.uuid in pod.cards:
            for epoch, hour_ms, begins, ends in _measured(pod, world.watched_from_ms, at_ms):
                key = (epoch, hour_ms)
                busy[key] = busy.get(key, 0) + (ends - begins) * pod.sm_percent * PPM // 100
                active[key] = active.get(key, 0) + (ends - begins) * pod.active_watts
    for epoch, begins, ends in node_times(node, world.watched_from_ms, at_ms):
        for hour_ms, start, stop in _hours(begins, ends):
            idle_mj = (stop - start) * card.idle_watts
            yield DeviceUsageFact(
                cluster=node.cluster,
                device_uuid=card.uuid,
                node_uid=node.uid,
                hour_ms=hour_ms,
                epoch=epoch,
                revision=(stop - hour_ms) // _MS_PER_REVISION,
                from_ms=start,
                to_ms=stop,
                covered_ms=stop - start,
                busy_ppm_ms=busy.get((epoch, hour_ms), 0),
                energy_mj=idle_mj + active.get((epoch, hour_ms), 0),
                energy_idle_mj=idle_mj,
                energy_unattributed_mj=0,
                sm_unattributed_ppm_ms=0,
            )
