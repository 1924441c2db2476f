"""Stranded memory and quotas: what is free and cannot be had, and what a namespace may still have."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.cluster.quotas import QuotaSight
from exporter.cluster.snapshot import Findings
from tests.exporter.cluster.handmade import A100, Cluster, filtered, gpu_node, gpu_pod, make_cluster, quota

MIB = "nvidia.com/gpumem"
CORES = "nvidia.com/gpucores"
COUNT = "nvidia.com/gpu"


def _held(name: str, memory_mib: int, cores: int = 0, **fields: Any) -> dict[str, Any]:
    annotations = filtered(memory_mib=memory_mib, cores=cores)
    return gpu_pod(
        name, memory_mib=memory_mib, cores=cores, annotations=annotations, node="gpu-node", bound_s=1,
        phase="Running", **fields,
    )  # fmt: skip


def _stranded(cluster: Cluster) -> dict[str, int]:
    findings: Findings = cluster.tick(5).findings
    return {why: mib for (node, why), mib in findings.stranded_mib.items() if node == "gpu-node"}


def test_a_card_with_room_strands_nothing_and_says_so() -> None:
    cluster = make_cluster()
    cluster.put_pods(_held("a", 20_000, 60))
    assert _stranded(cluster) == {"slots": 0, "cores": 0}


def test_memory_without_a_core_left_is_stranded_by_cores() -> None:
    cluster = make_cluster()
    cluster.put_pods(_held("a", 20_000, 60), _held("b", 10_000, 40))
    # 81,920 registered, 30,000 held, and the cores are all given away.
    assert _stranded(cluster) == {"slots": 0, "cores": 51_920}


def test_memory_without_a_slot_left_is_stranded_by_slots_whatever_the_cores() -> None:
    cluster = make_cluster(nodes=[gpu_node(register=A100.replace("GPU-a,10,", "GPU-a,2,"))])
    cluster.put_pods(_held("a", 20_000, 60), _held("b", 10_000, 40))
    assert _stranded(cluster) == {"slots": 51_920, "cores": 0}


def test_a_promise_that_is_not_bound_strands_nothing() -> None:
    cluster = make_cluster()
    cluster.put_pods(gpu_pod("a", cores=100, annotations=filtered(cores=100)))
    assert _stranded(cluster) == {"slots": 0, "cores": 0}


@pytest.mark.parametrize(
    "register",
    [A100.replace(",true,", ",false,"), A100.replace("hami-core", "mig")],
    ids=["a card that is down", "a card cut by MIG"],
)
def test_of_some_cards_nothing_is_free_in_that_sense(register: str) -> None:
    cluster = make_cluster(nodes=[gpu_node(register=register)])
    cluster.put_pods(_held("a", 20_000, 100))
    assert _stranded(cluster) == {"slots": 0, "cores": 0}


def _quotas(cluster: Cluster, at_s: float = 5) -> dict[tuple[str, str], QuotaSight]:
    return dict(cluster.tick(at_s).findings.quotas)


def test_limits_are_counted_over_what_is_held_and_promised_in_the_namespace() -> None:
    cluster = make_cluster()
    cluster.put_quotas(quota(limits_gpumem="60k", limits_gpucores="150", limits_gpu="4"))
    cluster.put_pods(
        _held("a", 20_000, 30),
        gpu_pod("b", annotations=filtered(memory_mib=8_000, cores=20)),
        _held("elsewhere", 5_000, 10, namespace="other"),
    )
    assert _quotas(cluster) == {
        ("team", MIB): QuotaSight(28_000, 60_000),
        ("team", CORES): QuotaSight(50, 150),
        ("team", COUNT): QuotaSight(2, 4),
    }


def test_requests_are_taken_as_kubernetes_counted_them_and_unknown_where_it_did_not() -> None:
    cluster = make_cluster()
    cluster.put_quotas(
        quota(requests_gpu="8", used={"requests.nvidia.com/gpu": "3"}),
        quota("new", namespace="other", requests_gpu="8"),
    )
    assert _quotas(cluster) == {("team", COUNT): QuotaSight(3, 8), ("other", COUNT): QuotaSight(None, 8)}


def test_of_several_quotas_the_tightest_is_shown_and_other_resources_are_none_of_ours() -> None:
    cluster = make_cluster()
    cpu = {
        "metadata": {"name": "cpu", "namespace": "team", "uid": "u"},
        "spec": {"hard": {"limits.cpu": "10"}},
    }
    cluster.put_quotas(quota(limits_gpumem="40000"), quota("tight", limits_gpumem="30000"), cpu)
    assert _quotas(cluster) == {("team", MIB): QuotaSight(0, 30_000)}


def test_a_quota_that_changes_while_nothing_else_does_is_seen() -> None:
    cluster = make_cluster()
    cluster.put_quotas(quota(limits_gpumem="40000"))
    assert _quotas(cluster)["team", MIB].limit == 40_000
    cluster.put_quotas(quota(limits_gpumem="50000"))
    assert _quotas(cluster, 6)["team", MIB].limit == 50_000


def test_a_quantity_that_is_no_whole_number_is_left_out() -> None:
    cluster = make_cluster()
    cluster.put_quotas(quota(limits_gpumem="lots"))
    assert _quotas(cluster) == {}
