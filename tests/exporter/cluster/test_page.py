"""From a snapshot to a page: base units, catalogue names, and nothing before everything was listed."""

from __future__ import annotations

from contract.catalogue import BY_NAME, families_of
from contract.version import VERSION
from exporter.cluster.page import make_page
from exporter.cluster.snapshot import CollectorHealth, Snapshot
from exporter.exposition.page import NATIVE_FAMILIES, Page
from tests.exporter.cluster.handmade import (
    EIGHT_MS,
    Cluster,
    event,
    filtered,
    gpu_node,
    gpu_pod,
    lock,
    make_cluster,
    quota,
)

COLLECTORS = (CollectorHealth("pods", True, EIGHT_MS), CollectorHealth("events", False, None))


def page_of(cluster: Cluster, at_s: float) -> dict[str, dict[tuple[str, ...], float]]:
    findings = cluster.tick(at_s).findings
    snapshot = Snapshot(
        EIGHT_MS + 5_000,
        EIGHT_MS,
        0.5,
        COLLECTORS,
        findings,
        cluster.core.flaws.counts(),
        outbox_facts=3,
        outbox_oldest_ms=EIGHT_MS + 1_500,
    )
    return series(make_page(snapshot))


def series(page: Page) -> dict[str, dict[tuple[str, ...], float]]:
    return {
        family.family.name: {sample.labels: sample.value for sample in family.samples}
        for family in page.families
    }


def busy_cluster() -> Cluster:
    """A pod of each kind: held and holding the lock, waiting for it, too large, past HAMi."""
    cluster = make_cluster(nodes=[gpu_node(lock=lock(-10, "a"))])
    held = gpu_pod("a", annotations=filtered(), node="gpu-node", bound_s=-10, phase="Running")
    waiting = gpu_pod("b", annotations=filtered(memory_mib=8_000, at_s=1))
    never = gpu_pod("c", memory_mib=90_000, cores=0)
    past = gpu_pod("d", scheduler="default-scheduler")
    cluster.put_pods(held, waiting, never, past)
    cluster.put_quotas(quota(limits_gpumem="40000"))
    cluster.say(
        event("b", "BindingFailed", "node gpu-node has been locked within 5m0s", 2),
        event("c", "FilteringFailed", "1 nodes CardInsufficientMemory(gpu-node)", 2),
    )
    cluster.tick(3)
    return cluster


def test_the_page_speaks_bytes_ratios_and_seconds() -> None:
    page = page_of(busy_cluster(), 5)
    node, team = "gpu-node", ("team", "tenant-a")
    # 20,000 MiB × 1,048,576; 81,920 MiB; 8,000 MiB; 90,000 MiB
    assert page["node_gpu_memory_bytes"] == {
        (node, "registered"): 85_899_345_920,
        (node, "allocated"): 20_971_520_000,
    }
    assert page["node_gpu_cores_ratio"] == {(node, "registered"): 1.0, (node, "allocated"): 0.3}
    assert page["node_gpu_slots"] == {(node, "registered"): 10, (node, "allocated"): 1}
    assert page["node_gpu_info"] == {(node, "NVIDIA A100-SXM4-80GB"): 1}
    assert page["reservation_memory_bytes"] == {(node,): 8_388_608_000}
    assert page["pending_pods"] == {(*team, "NodeLocked"): 1, (*team, "CardInsufficientMemory"): 1}
    assert page["pending_memory_bytes"][*team, "CardInsufficientMemory"] == 94_371_840_000
    assert page["pending_seconds_total"][*team, "NodeLocked"] == 2.0
    assert page["unschedulable_pods"] == {(*team, "memory"): 1}
    assert page["stranded_memory_bytes"] == {(node, "slots"): 0, (node, "cores"): 0}
    # 20,000 MiB held and 8,000 MiB promised of 40,000 MiB.
    assert page["quota_used"] == {("team", "nvidia.com/gpumem"): 28_000}
    assert page["quota_limit"] == {("team", "nvidia.com/gpumem"): 40_000}
    assert page["bypassing_pods"] == {(*team, "scheduler"): 1}
    assert page["node_lock_held"] == {(node,): 1}
    assert page["node_lock_acquired_timestamp_seconds"] == {(node, "team", "a"): EIGHT_MS / 1000 - 10}
    assert page["node_lock_waiting_pods"] == {(node,): 1}
    assert page["node_lock_owner_stuck"] == page["node_lock_unreadable"] == {(node,): 0}
    assert set(page["node_lock_transitions_total"]) == {
        (node, outcome) for outcome in ("acquired", "released", "expired", "dangling", "manual")
    }
    assert page["outbox_facts"] == {(): 3}
    assert page["outbox_oldest_timestamp_seconds"] == {(): EIGHT_MS / 1000 + 1.5}
    assert page["collector_duration_seconds"] == {("views",): 0.0005}


def test_errors_are_there_from_zero(cluster: Cluster) -> None:
    errors = page_of(cluster, 0)["annotation_errors_total"]
    assert errors["pod-devices", "field_count"] == 0
    assert set(errors.values()) == {0}


def test_before_everything_was_listed_the_page_says_only_how_it_stands() -> None:
    page = series(make_page(Snapshot(EIGHT_MS, None, 0.0, COLLECTORS)))
    assert page["collector_success"] == {("pods",): 1, ("events",): 0}
    assert page["collector_last_success_timestamp_seconds"] == {("pods",): EIGHT_MS / 1000}
    assert page["build_info"] == {("cluster", VERSION, ""): 1}
    assert "kube_view_timestamp_seconds" not in page
    assert {BY_NAME[name].group for name in page} == {"self"}


def test_the_cluster_role_exports_every_family_of_its_own_but_the_planned() -> None:
    own = {family.name for family in families_of("cluster") if not family.is_planned}
    assert set(page_of(busy_cluster(), 5)) == own - NATIVE_FAMILIES
