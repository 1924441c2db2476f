"""Capacity, reservations, bypass, errors and facts of a whole cluster, with hand-made values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contract.facts import AllocationFact, Fact, NodeStateFact, PresenceFact
from exporter.cluster.capacity import NodeCapacity
from exporter.cluster.core import Outcome
from exporter.cluster.pods import slim_pod
from exporter.hami.resources import ResourceNames
from exporter.kube.objects import Meta, Pod
from tests.exporter.cluster.handmade import (
    A100,
    EIGHT_MS,
    Cluster,
    clock,
    filtered,
    gpu_node,
    gpu_pod,
    make_cluster,
)


def running(name: str, *, bound_s: float = 1) -> dict[str, Any]:
    annotations = filtered(bind_phase="allocating")
    return gpu_pod(name, annotations=annotations, node="gpu-node", bound_s=bound_s, phase="Running")


def test_three_pods_share_a_card_of_a_mock_node_without_an_error(cluster: Cluster) -> None:
    cluster.put_pods(*(running(name) for name in ("a", "b", "c")))
    capacity = cluster.tick(2).findings.capacities["gpu-node"]
    # 3 × 20,000 MiB of 81,920; 3 × 30 %; 3 of 10 slots.
    assert capacity == NodeCapacity(81_920, 100, 10, 60_000, 90, 3, 0, ("NVIDIA A100-SXM4-80GB",))
    assert sum(cluster.core.flaws.counts().values()) == 0


def test_a_reservation_is_not_allocated_and_the_other_way_round(cluster: Cluster) -> None:
    cluster.put_pods(gpu_pod(annotations=filtered(memory_mib=8_000)))
    reserved = cluster.tick(2).findings.capacities["gpu-node"]
    assert (reserved.allocated_mib, reserved.reserved_mib) == (0, 8_000)
    cluster.put_pods(gpu_pod(annotations=filtered(memory_mib=8_000), node="gpu-node", bound_s=3))
    bound = cluster.tick(4).findings.capacities["gpu-node"]
    assert (bound.allocated_mib, bound.reserved_mib) == (8_000, 0)


def test_a_pod_that_ended_holds_nothing(cluster: Cluster) -> None:
    done = running("done")
    done["status"] = {"phase": "Succeeded", "conditions": []}
    cluster.put_pods(done)
    assert cluster.tick(2).findings.capacities["gpu-node"].allocated_mib == 0


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (gpu_pod("x", scheduler="default-scheduler"), "scheduler"),
        (
            gpu_pod("x", scheduler="default-scheduler", node="gpu-node", bound_s=1, phase="Running"),
            "scheduler",
        ),
        (gpu_pod("x", scheduler="default-scheduler", phase="Succeeded"), None),
        # Another plugin's card: HAMi registered nothing on that node.
        (gpu_pod("x", scheduler="default-scheduler", node="plain-node", bound_s=1), None),
        (gpu_pod("x", scheduler="default-scheduler", limits={"cpu": "1"}), None),
        (gpu_pod("x", node="gpu-node", bound_s=1), "no_allocation"),
        (
            gpu_pod(
                "x",
                node="gpu-node",
                bound_s=1,
                annotations={"hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA:;"},
            ),
            "no_allocation",
        ),
        (gpu_pod("x", node="gpu-node", bound_s=1, annotations=filtered()), None),
        (gpu_pod("x"), None),
    ],
)
def test_a_pod_bypasses_hami_by_its_scheduler_or_without_an_allocation(
    pod: dict[str, Any], why: str | None
) -> None:
    cluster = make_cluster(nodes=[gpu_node(), gpu_node("plain-node", register=None)])
    cluster.put_pods(pod)
    assert cluster.tick(2).findings.bypassing == ({} if why is None else {("team", "tenant-a", why): 1})


def test_an_unreadable_annotation_is_one_error_however_often_its_pod_changes(cluster: Cluster) -> None:
    bad = gpu_pod(annotations={"hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,x,0:;"})
    cluster.put_pods(bad)
    cluster.tick(0)
    cluster.put_pods(bad | {"status": {"phase": "Running"}})
    cluster.tick(1)
    assert cluster.core.flaws.counts()["pod-devices", "bad_number"] == 1
    again = cluster.restarted()
    again.tick(2)
    assert again.core.flaws.counts()["pod-devices", "bad_number"] == 1
    again.put_pods(bad | {"metadata": bad["metadata"] | {"uid": "uid-other", "name": "other"}})
    again.tick(3)
    assert again.core.flaws.counts()["pod-devices", "bad_number"] == 2


def allocations(facts: tuple[Fact, ...]) -> list[AllocationFact]:
    return [fact for fact in facts if isinstance(fact, AllocationFact)]


def test_a_slice_becomes_a_fact_of_the_cluster_witness(cluster: Cluster) -> None:
    cluster.put_pods(running("a", bound_s=1), gpu_pod("unbound", annotations=filtered()))
    (fact,) = allocations(cluster.tick(2).facts)
    assert fact == AllocationFact(
        cluster=cluster.options.cluster,
        pod_uid=fact.pod_uid,
        container="main",
        device_uuid=fact.device_uuid,
        witness="cluster",
        node_uid=fact.node_uid,
        node="gpu-node",
        namespace="team",
        pod="a",
        vendor="NVIDIA",
        model="NVIDIA A100-SXM4-80GB",
        mem_mib=20_000,
        core_percent=30,
        container_kind="app",
        tenant_key=fact.tenant_key,
        bound_at_ms=EIGHT_MS + 1_000,
        first_confirmed_at_ms=EIGHT_MS + 2_000,
        confirmed_at_ms=EIGHT_MS + 2_000,
    )
    assert (fact.pod_uid, fact.device_uuid, fact.node_uid, fact.tenant_key) == (
        "uid-team-a",
        "GPU-a",
        "uid-gpu-node",
        "tenant-a",
    )


def ends(outcome: Outcome) -> list[tuple[int, str | None, str | None]]:
    return [
        (fact.ended_at_ms - EIGHT_MS, fact.end_kind, fact.end_reason)
        for fact in allocations(outcome.facts)
        if fact.ended_at_ms is not None
    ]


def test_a_deleted_pod_ends_at_its_event_and_a_vanished_one_by_inference(cluster: Cluster) -> None:
    cluster.put_pods(running("deleted"), running("vanished"))
    cluster.tick(2)
    cluster.drop_pod("uid-team-deleted", at_s=7)
    assert ends(cluster.tick(7.5)) == [(7_000, "observed", "Deleted")]
    cluster.drop_pod("uid-team-vanished", at_s=9, kind="vanished")
    (end,) = ends(cluster.tick(9.5))
    assert end == (7_500, "inferred", "Vanished"), "the latest confirmation, not the relist"


def test_a_deletion_that_comes_before_its_view_is_still_observed(cluster: Cluster) -> None:
    # The view is taken first: the change may be newer, and the pod still in the view.
    cluster.put_pods(running("a"))
    cluster.tick(2)
    pods = cluster.pods
    cluster.drop_pod("uid-team-a", at_s=7)
    left, cluster.pods = cluster.pods, pods
    assert ends(cluster.tick(7)) == [(7_000, "observed", "Deleted")]
    cluster.pods = left
    assert ends(cluster.tick(8)) == []


def test_registered_devices_are_present_and_unhealthy_ones_down() -> None:
    register = A100 + "GPU-b,10,81920,100,NVIDIA A100-SXM4-80GB,0,false,1,hami-core:"
    cluster = make_cluster(nodes=[gpu_node(register=register)])
    cluster.tick(0)
    cluster.tick(3)
    facts = [fact for fact in cluster.tick(6).facts if isinstance(fact, PresenceFact)]
    assert [(f.device_uuid, f.state, f.reason, f.registered_mib, f.slots) for f in facts] == [
        ("GPU-a", "healthy", None, 81_920, 10),
        ("GPU-b", "down", "registered_unhealthy", 81_920, 10),
    ]
    assert {(f.witness, f.from_ms - EIGHT_MS, f.to_ms - EIGHT_MS) for f in facts} == {("cluster", 0, 6_000)}


def test_a_gpu_node_says_whether_it_is_ready(cluster: Cluster) -> None:
    outcome = cluster.tick(5)
    (fact,) = [fact for fact in outcome.facts if isinstance(fact, NodeStateFact)]
    assert (fact.node, fact.ready, fact.heartbeat_at_ms) == ("gpu-node", True, EIGHT_MS)
    assert (fact.from_ms, fact.to_ms) == (EIGHT_MS - 3_600_000, EIGHT_MS + 5_000)


def test_no_fact_claims_a_time_later_than_its_view(cluster: Cluster) -> None:
    cluster.put_pods(running("a"))
    facts = cluster.tick(100, view_s=12).facts
    assert {fact.confirmed_at_ms for fact in allocations(facts)} == {EIGHT_MS + 12_000}
    assert all(fact.to_ms == EIGHT_MS + 12_000 for fact in facts if isinstance(fact, NodeStateFact))


def test_confirmations_go_on_after_a_restart(cluster: Cluster) -> None:
    cluster.put_pods(running("a"))
    (first,) = allocations(cluster.tick(2).facts)
    (again,) = allocations(cluster.restarted().tick(20).facts)
    assert again.first_confirmed_at_ms == first.first_confirmed_at_ms == EIGHT_MS + 2_000
    assert again.confirmed_at_ms == EIGHT_MS + 20_000


def test_a_pod_that_vanished_while_the_exporter_was_away_still_ends(cluster: Cluster) -> None:
    cluster.put_pods(running("a"))
    cluster.tick(2)
    cluster.pods = {}
    assert ends(cluster.restarted().tick(20)) == [(2_000, "inferred", "Vanished")]


def test_equal_uuids_on_two_nodes_are_two_cards() -> None:
    cluster = make_cluster(nodes=[gpu_node("node-1"), gpu_node("node-2")])
    cluster.put_pods(
        gpu_pod("a", annotations=filtered("node-1"), node="node-1", bound_s=1),
        gpu_pod("b", annotations=filtered("node-2"), node="node-2", bound_s=1),
    )
    outcome = cluster.tick(2)
    assert [capacity.allocated_mib for capacity in outcome.findings.capacities.values()] == [20_000, 20_000]
    assert {fact.node_uid for fact in allocations(outcome.facts)} == {"uid-node-1", "uid-node-2"}


def test_pods_of_a_node_that_dies_hold_on_until_their_object_is_gone_and_the_node_says_since_when(
    cluster: Cluster,
) -> None:
    """On a dead node a pod can stay Terminating for days: that time is down, not ended."""
    cluster.put_pods(running("a"))
    cluster.tick(2)
    dead = gpu_node()
    dead["status"]["conditions"][0] |= {
        "status": "Unknown",
        "lastHeartbeatTime": clock(10),
        "lastTransitionTime": clock(50),
    }
    cluster.put_nodes(dead, at_s=50)
    states = [fact for fact in cluster.tick(51).facts if isinstance(fact, NodeStateFact)]
    assert [
        (fact.ready, fact.from_ms - EIGHT_MS, fact.to_ms - EIGHT_MS, fact.heartbeat_at_ms - EIGHT_MS)
        for fact in states
    ] == [(False, 50_000, 51_000, 10_000)]

    evicted = running("a")
    evicted["metadata"]["deletionTimestamp"] = clock(380)
    cluster.put_pods(evicted, at_s=350)
    assert ends(cluster.tick(400)) == [], "a request to delete is no end"
    cluster.drop_node("uid-gpu-node", at_s=900)
    assert ends(cluster.tick(900)) == []
    # The garbage collector of pods takes those whose node is no more.
    cluster.drop_pod("uid-team-a", at_s=960)
    assert ends(cluster.tick(960)) == [(960_000, "observed", "Deleted")]


@pytest.mark.parametrize(
    "raw",
    [
        gpu_pod("asks"),
        gpu_pod("carries", limits={"cpu": "1"}, annotations=filtered()),
        gpu_pod("carries", limits={"cpu": "1"}, annotations={"hami.io/dcu-devices-allocated": ";"}),
    ],
)
def test_a_pod_that_asks_for_a_gpu_or_carries_an_allocation_is_kept_whole(raw: dict[str, Any]) -> None:
    pod = msgspec.convert(raw, Pod)
    assert slim_pod(pod, ResourceNames()) is pod


def test_of_any_other_pod_only_who_it_is_is_kept() -> None:
    pod = msgspec.convert(gpu_pod("plain", limits={"cpu": "1"}, annotations={"a": "b"}, node="n"), Pod)
    slim = slim_pod(pod, ResourceNames())
    assert slim == Pod(
        Meta(name="plain", uid="uid-team-plain", namespace="team", creation_timestamp=clock(0))
    )
