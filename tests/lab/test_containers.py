"""The containers of a real node: the exporter's own reader sees in the region what the plan says."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.hami.opening import read_cache
from exporter.hami.region import Region
from lab.devices.proc_tree import ProcTree
from lab.devices.processes import processes_of
from lab.scenarios.demo import demo
from lab.scenarios.plan import ClusterPlan
from lab.workloads.gpu_workload import Containers

MIB = 1024 * 1024


class Node:
    """Cluster C's node, whose time a test moves."""

    def __init__(self, folder: Path) -> None:
        self.cluster: ClusterPlan = demo(ends=True).cluster("lab-c")
        self.root = folder / "containers"
        self.proc = ProcTree(folder / "proc")
        self.containers = Containers(self.cluster, processes_of(self.cluster), self.root, self.proc)
        self._cues = heapq.merge(*self.containers.streams(), key=lambda cue: cue.at_s)
        self._next = next(self._cues, None)

    def play_until(self, at_s: float) -> None:
        while self._next is not None and self._next.at_s <= at_s:
            self._next.do()
            self._next = next(self._cues, None)

    def region(self, pod: str) -> Region:
        (path,) = self.folder(pod).glob("*.cache")
        region = read_cache(path)
        assert isinstance(region, Region)
        return region

    def folder(self, pod: str) -> Path:
        return self.root / f"{self.cluster.pod_uid(self.cluster.pod(pod))}_cuda"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.containers.close()


def test_the_refused_pods_region_holds_seven_chunks_below_its_limit_and_nothing_after_its_exit(
    node: Node,
) -> None:
    node.play_until(14.0)
    at_peak = node.region("refused")
    node.play_until(15.0)
    after = node.region("refused")

    (slot,) = at_peak.live_slots
    assert slot.devices[0].total_bytes == 3_862_953_984
    assert slot.devices[0].context_bytes == 100 * MIB
    assert at_peak.devices[0].memory_limit_bytes == 4_194_304_000
    assert list(after.live_slots) == []


def test_the_held_pods_region_carries_its_core_limit_and_the_samples_in_turn(node: Node) -> None:
    seen = []
    for second in (21, 22, 23, 24):
        node.play_until(second)
        (slot,) = node.region("held").live_slots
        seen.append(slot.devices[0].sm_util_percent)

    assert seen == [32, 82, 0, 84]
    assert node.region("held").devices[0].sm_limit_percent == 30


def test_a_pod_that_never_calls_the_gpu_has_a_directory_and_no_region(node: Node) -> None:
    node.play_until(60.0)

    assert sorted(path.name for path in node.folder("small-7").iterdir()) == ["libvgpu.so"]
    assert node.folder("small-7").stat().st_mode & 0o777 == 0o777


def test_every_slot_names_a_process_that_lives_in_proc(node: Node) -> None:
    node.play_until(40.0)
    pods = ["idle-1", "idle-2", "held", *(f"small-{n}" for n in range(1, 7))]

    hostpids = {slot.hostpid for pod in pods for slot in node.region(pod).live_slots}

    assert hostpids == set(node.proc.pids())
    assert len(hostpids) == 9


def test_a_mock_node_has_no_tree_of_containers(tmp_path: Path) -> None:
    cluster = demo(ends=True).cluster("lab-a")
    containers = Containers(
        cluster, processes_of(cluster), tmp_path / "containers", ProcTree(tmp_path / "proc")
    )

    assert list(containers.streams()) == []
    assert not (tmp_path / "containers").exists()
