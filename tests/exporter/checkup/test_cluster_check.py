"""The check-up of the cluster role."""

from __future__ import annotations

from pathlib import Path

from contract.ids import ClusterCode
from exporter.checkup.cluster import check_cluster
from exporter.checkup.finding import Line
from exporter.settings import ClusterSettings
from lab.kube.faults import Answer
from tests.exporter.checkup.conftest import by_name
from tests.exporter.node.stand import NODE, Stand, pod


def check(stand: Stand, folder: Path) -> dict[str, Line]:
    settings = ClusterSettings(
        cluster=ClusterCode("c1"), kube=stand.double.access, state_file=folder / "cluster.db"
    )
    return by_name(check_cluster(settings))


def test_a_cluster_in_order_has_no_finding(stand: Stand, tmp_path: Path) -> None:
    stand.double.create("Pod", pod("job"))
    lines = check(stand, tmp_path)
    assert [line for line in lines.values() if line.verdict == "finding"] == []
    assert lines["hami register"].detail == "1 devices registered on 1 nodes"
    assert lines["hami allocations"].detail == "1 slices held by 1 of 1 pods"
    assert lines["kubernetes events"].verdict == "ok"


def test_the_right_to_events_is_looked_at(stand: Stand, tmp_path: Path) -> None:
    stand.double.fail_next(Answer(403), times=None, resource="events")
    assert check(stand, tmp_path)["kubernetes events"].verdict == "finding"


def test_a_cluster_whose_nodes_registered_nothing_is_a_finding(stand: Stand, tmp_path: Path) -> None:
    annotations: dict[str, object] = {"hami.io/node-nvidia-register": None}
    stand.double.patch("Node", "", NODE, {"metadata": {"annotations": annotations}})
    line = check(stand, tmp_path)["hami register"]
    assert (line.verdict, "device plugin" in line.way_out) == ("finding", True)


def test_a_register_that_cannot_be_read_is_told_with_its_node(stand: Stand, tmp_path: Path) -> None:
    annotations: dict[str, object] = {"hami.io/node-nvidia-register": "GPU-1,ten,15360,100,T4,0,true:"}
    stand.double.patch("Node", "", NODE, {"metadata": {"annotations": annotations}})
    line = check(stand, tmp_path)["hami register"]
    assert (line.verdict, f"on {NODE}" in line.detail) == ("finding", True)
