"""Pods that wait: `reference/hami-kubernetes.md §4, §8`; the figures are those of HAMi's laboratories."""

from __future__ import annotations

import pytest

from exporter.cluster.pending import PendingKey
from exporter.cluster.snapshot import PendingSum
from tests.exporter.cluster.handmade import Cluster, event, filtered, gpu_node, gpu_pod, make_cluster


def key(reason: str, tenant: str = "tenant-a") -> PendingKey:
    return PendingKey("team", tenant, reason)


def refused(pod: str, reason: str, at_s: float = 1) -> tuple[dict[str, object], ...]:
    return (
        event(pod, "FilteringFailed", f"1 nodes {reason}(gpu-node)", at_s),
        event(pod, "FilteringFailed", "no available node, 1 nodes do not meet", at_s),
    )


def test_each_pending_pod_has_its_reason_and_what_it_asks_for(cluster: Cluster) -> None:
    cluster.put_pods(gpu_pod("over-memory", memory_mib=90_000, cores=0), gpu_pod("over-cores"))
    cluster.say(
        *refused("over-memory", "CardInsufficientMemory"), *refused("over-cores", "CardInsufficientCore")
    )
    findings = cluster.tick(2).findings
    assert findings.pending == {
        key("CardInsufficientMemory"): PendingSum(1, 90_000),
        key("CardInsufficientCore"): PendingSum(1, 20_000),
    }
    # 90,000 MiB fit on no card of 81,920; 20,000 MiB and 30 % would, on an empty one.
    assert findings.unschedulable == {("team", "tenant-a", "memory"): 1}


@pytest.mark.parametrize(
    ("annotations", "events", "reason"),
    [
        ({}, [], "Unfiltered"),
        (filtered(at_s=1), [], "Filtered"),
        (filtered(at_s=1), [("FilteringSucceed", "find fit node(gpu-node)", 1)], "Filtered"),
        (filtered(at_s=1), [("BindingFailed", "node gpu-node is locked", 2)], "NodeLocked"),
        (filtered(at_s=9), [("BindingFailed", "node gpu-node is locked", 2)], "Filtered"),
        (filtered(at_s=1), [("BindingFailed", "etcd is away", 2)], "BindingFailed"),
        ({}, [("FailedScheduling", "0/1 nodes are available: insufficient cpu", 2)], "FailedScheduling"),
        ({}, [("FilteringFailed", "1 nodes CardTimeSlicingExhausted(n)", 2)], "CardTimeSlicingExhausted"),
        # The reservation of an earlier attempt stays when a later one finds no node.
        (
            filtered(at_s=1),
            [("FilteringFailed", "1 nodes CardInsufficientCore(n)", 9)],
            "CardInsufficientCore",
        ),
    ],
)
def test_the_reason_is_the_newest_word_on_the_pod(
    annotations: dict[str, str], events: list[tuple[str, str, float]], reason: str
) -> None:
    cluster = make_cluster()
    cluster.put_pods(gpu_pod(annotations=annotations))
    cluster.say(*(event("p", *each) for each in events))
    assert list(cluster.tick(10).findings.pending) == [key(reason)]


def test_a_gated_pod_says_so(cluster: Cluster) -> None:
    pod = gpu_pod()
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
    cluster.put_pods(pod)
    assert list(cluster.tick(0).findings.pending) == [key("SchedulingGated")]


def test_pods_without_gpu_bound_ended_or_of_another_scheduler_do_not_wait(cluster: Cluster) -> None:
    cluster.put_pods(
        gpu_pod("cpu", limits={"cpu": "1"}),
        gpu_pod("bound", node="gpu-node", bound_s=0),
        gpu_pod("failed", phase="Failed"),
        gpu_pod("past", scheduler="default-scheduler"),
    )
    assert cluster.tick(1).findings.pending == {}


def test_percentages_and_whole_cards_are_taken_of_the_smallest_card() -> None:
    two = "GPU-a,10,24576,100,L4,0,true,0,hami-core:GPU-b,10,81920,100,A100,0,true,1,hami-core:"
    cluster = make_cluster(nodes=[gpu_node(register=two)])
    cluster.put_pods(
        gpu_pod("half", limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"}),
        gpu_pod("two-whole", limits={"nvidia.com/gpu": "2"}),
    )
    # 24,576 / 2 + 2 × 24,576
    assert cluster.tick(0).findings.pending == {key("Unfiltered"): PendingSum(2, 61_440)}


def test_what_depends_on_a_card_nobody_registered_is_absent() -> None:
    cluster = make_cluster(nodes=[gpu_node(register="")])
    cluster.put_pods(gpu_pod("whole", limits={"nvidia.com/gpu": "1"}))
    findings = cluster.tick(0).findings
    assert findings.pending == {key("Unfiltered"): PendingSum(1, None)}
    assert findings.unschedulable == {}


@pytest.mark.parametrize(
    ("limits", "annotations", "why"),
    [
        ({"nvidia.com/gpu": "3"}, {}, "count"),
        ({"nvidia.com/gpu": "2", "nvidia.com/gpumem": "30000"}, {}, "memory"),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "30000"}, {}, None),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "81921"}, {}, "memory"),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "101"}, {}, "memory"),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "80"}, {}, None),
        ({"nvidia.com/gpu": "2", "nvidia.com/gpucores": "80"}, {}, "cores"),
        ({"nvidia.com/gpu": "1"}, {"nvidia.com/use-gputype": "H100,h200"}, "type"),
        ({"nvidia.com/gpu": "1"}, {"nvidia.com/use-gputype": "a100"}, None),
        ({"nvidia.com/gpu": "2"}, {"nvidia.com/nouse-gputype": "l4"}, "type"),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "30000"}, {"nvidia.com/use-gputype": "L4"}, "memory"),
    ],
)
def test_a_pod_that_no_empty_node_could_take_can_never_fit(
    limits: dict[str, str], annotations: dict[str, str], why: str | None
) -> None:
    # One node: an L4 whose cores are scaled to half, and an A100.
    register = (
        "GPU-a,10,24576,50,NVIDIA L4,0,true,0,hami-core:GPU-b,10,81920,100,NVIDIA A100,0,true,1,hami-core:"
    )
    cluster = make_cluster(nodes=[gpu_node(register=register), gpu_node("cpu-node", register=None)])
    cluster.put_pods(gpu_pod(limits=limits, annotations=annotations))
    expected = {} if why is None else {("team", "tenant-a", why): 1}
    assert cluster.tick(0).findings.unschedulable == expected


def test_waiting_time_runs_until_the_binding_under_the_reason_of_the_time(cluster: Cluster) -> None:
    cluster.put_pods(gpu_pod(created_s=0))
    cluster.tick(0)
    cluster.tick(4)
    cluster.put_pods(gpu_pod(created_s=0, annotations=filtered(at_s=4)))
    cluster.say(event("p", "BindingFailed", "node gpu-node is locked", 5))
    cluster.tick(6)
    cluster.put_pods(gpu_pod(created_s=0, annotations=filtered(at_s=4), node="gpu-node", bound_s=9))
    outcome = cluster.tick(10)
    # 4 s without a word, then the lock: 2 s up to the tick at 6, and 3 more up to the binding at 9.
    assert outcome.findings.waiting_ms == {key("Unfiltered"): 4_000, key("NodeLocked"): 5_000}
    assert outcome.granted_s == (9.0,)


def test_a_restart_neither_loses_nor_doubles_waiting_time(cluster: Cluster) -> None:
    cluster.put_pods(gpu_pod())
    cluster.tick(0)
    cluster.tick(10)
    again = cluster.restarted()
    assert again.tick(25).findings.waiting_ms == {key("Unfiltered"): 25_000}
    again.put_pods(gpu_pod(annotations=filtered(at_s=26), node="gpu-node", bound_s=27))
    outcome = again.restarted().tick(40)
    assert outcome.findings.waiting_ms == {key("Unfiltered"): 27_000}
    assert outcome.granted_s == (27.0,)


def test_a_deleted_pod_waited_until_it_was_deleted(cluster: Cluster) -> None:
    cluster.put_pods(gpu_pod())
    cluster.tick(0)
    cluster.drop_pod("uid-team-p", at_s=3)
    assert cluster.tick(5).findings.waiting_ms == {key("Unfiltered"): 3_000}


def test_while_the_api_server_is_away_no_waiting_time_is_added(cluster: Cluster) -> None:
    cluster.put_pods(gpu_pod())
    cluster.tick(0)
    cluster.tick(10)
    assert cluster.tick(100, view_s=12).findings.waiting_ms == {key("Unfiltered"): 12_000}
    assert cluster.tick(110).findings.waiting_ms == {key("Unfiltered"): 110_000}


def test_pods_bound_before_the_start_were_granted_before(cluster: Cluster) -> None:
    cluster.put_pods(gpu_pod("old", annotations=filtered(), node="gpu-node", bound_s=1))
    assert cluster.tick(10).granted_s == ()
    cluster.put_pods(gpu_pod("new", created_s=10, annotations=filtered(), node="gpu-node", bound_s=13))
    assert cluster.tick(14).granted_s == (3.0,)
    assert cluster.tick(15).granted_s == ()
