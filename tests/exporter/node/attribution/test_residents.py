"""Whose process is whose where the host's processes are seen: cgroup, innermost pid and start time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from contract.ids import DeviceUuid, PodUid
from exporter.hami.layouts import V1_2_2008952 as LAYOUT
from exporter.kube.objects import Pod
from exporter.node.attribution.owners import Attribution
from exporter.node.metering.counters import OwnerKey
from exporter.node.metering.inputs import OwnerInput
from exporter.node.snapshot import SliceGauges
from lab.workloads.region_writer import RegionFile
from tests.exporter.node.proc import FakeProc, systemd_path
from tests.exporter.node.tree import MIB, A, B, Node, card_of, pod_of

X = "11111111-aaaa-4000-8000-000000000001"
Y = "22222222-bbbb-4000-8000-000000000002"
MAIN, SIDE, NEXT = "5f0a" * 16, "9c3e" * 16, "77aa" * 16
ONE_CARD = f"{A},NVIDIA,4000,0:;"


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


@pytest.fixture
def node(tmp_path: Path, proc: FakeProc) -> Node:
    root = tmp_path / "containers"
    root.mkdir()
    return Node(root, proc.root)


def _pod(
    name: str, uid: str, devices: str = ONE_CARD, ids: Mapping[str, str] | None = None, **more: object
) -> Pod:
    told = {"main": f"containerd://{MAIN}"} if ids is None else ids
    return pod_of(name, devices, uid=uid, ids=told, **more)  # type: ignore[arg-type]


def _region(node: Node, uid: str, container: str = "main", **fields: object) -> RegionFile:
    folder = node.root / f"{uid}_{container}"
    folder.mkdir(exist_ok=True)
    name = f"{len(list(folder.iterdir()))}.cache"
    return RegionFile(folder / name, uuids=[A], limits_bytes=[4_000 * MIB], **fields)  # type: ignore[arg-type]


def _slice(found: Attribution, uid: str, container: str = "main", device: str = A) -> SliceGauges:
    key = OwnerKey(PodUid(uid), container, DeviceUuid(device), is_slice=True)
    return next(gauges for gauges in found.slices if gauges.key == key)


def _owner(found: Attribution, uid: str, container: str = "main", *, is_slice: bool = True) -> OwnerInput:
    key = OwnerKey(PodUid(uid), container, DeviceUuid(A), is_slice)
    return next(owner for device in found.devices for owner in device.owners if owner.key == key)


def test_a_slice_without_a_region_is_metered_from_nvml_alone(node: Node, proc: FakeProc) -> None:
    # Control is disabled in x, y has the whole card and no library: neither has a cache file.
    pods = [_pod("x", X, env={"CUDA_DISABLE_CONTROL": "true"}), _pod("y", Y, ids={"main": f"cri-o://{SIDE}"})]
    proc.add(100, 7, cgroup=systemd_path(X, MAIN))
    proc.add(101, 7, cgroup=systemd_path(Y, SIDE))
    found = node.look(pods, card_of(A, {100: 64 * MIB, 101: 32 * MIB}))
    for uid, pid, used_mib in ((X, 100, 64), (Y, 101, 32)):
        gauges, owner = _slice(found, uid), _owner(found, uid)
        assert (gauges.used_bytes, gauges.memory_source, gauges.processes) == (used_mib * MIB, "nvml", 1)
        assert (owner.pids, owner.has_unknown_pids) == (frozenset({pid}), False)
    assert found.unattributed == frozenset()
    assert found.alive == {(PodUid(X), "main"), (PodUid(Y), "main")}


def test_a_slice_without_a_process_uses_0_although_others_use_the_card(node: Node, proc: FakeProc) -> None:
    proc.add(500, cgroup="/system.slice/monitor.service")
    found = node.look([_pod("x", X)], card_of(A, {500: 9 * MIB}))
    assert (_slice(found, X).used_bytes, _slice(found, X).memory_source) == (0, "nvml")
    assert found.unattributed == frozenset({500})
    assert not _owner(found, X).has_unknown_pids


def test_a_process_that_cannot_be_looked_up_leaves_a_slice_without_a_region_unknown(
    node: Node, proc: FakeProc
) -> None:
    proc.add(100, 7, cgroup=systemd_path(X, MAIN))
    found = node.look([_pod("x", X)], card_of(A, {100: 64 * MIB, 999: MIB}))
    assert _slice(found, X).used_bytes is None
    assert _owner(found, X).has_unknown_pids


def test_the_three_kinds_of_process_are_told_apart_by_their_cgroups(node: Node, proc: FakeProc) -> None:
    bypassing = pod_of("free", "", ["worker"], uid=Y, ids={"worker": f"docker://{SIDE}"})
    proc.add(100, 7, cgroup=systemd_path(X, MAIN))
    proc.add(101, 1, cgroup=f"/kubepods/besteffort/pod{Y}/{SIDE}")
    proc.add(102, cgroup=systemd_path("33333333-cccc-4000-8000-000000000003", NEXT))
    proc.add(103, cgroup="/user.slice/user-1000.slice/session-2.scope")
    with _region(node, X) as region:
        region.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        found = node.look(
            [_pod("x", X), bypassing], card_of(A, {100: 70 * MIB, 101: 32 * MIB, 102: MIB, 103: MIB})
        )
    assert _slice(found, X).used_bytes == 64 * MIB
    free = _owner(found, Y, "worker", is_slice=False)
    assert (free.used_bytes, free.pids, free.labels.pod) == (32 * MIB, frozenset({101}), "free")
    assert found.unattributed == frozenset({102, 103})


def test_a_host_pid_of_a_neighbour_is_not_believed(node: Node, proc: FakeProc) -> None:
    # Two containers started at once and HAMi-core gave each the other's host pid.
    pods = [_pod("x", X), _pod("y", Y, ids={"main": f"containerd://{SIDE}"})]
    proc.add(100, 7, cgroup=systemd_path(X, MAIN))
    proc.add(101, 7, cgroup=systemd_path(Y, SIDE))
    with _region(node, X) as x, _region(node, Y) as y:
        x.attach(7, 101).set_memory(0, data_bytes=64 * MIB)
        y.attach(7, 100).set_memory(0, data_bytes=32 * MIB)
        found = node.look(pods, card_of(A, {100: 64 * MIB, 101: 32 * MIB}))
    assert (_owner(found, X).pids, _owner(found, Y).pids) == (frozenset({100}), frozenset({101}))
    assert (_slice(found, X).used_bytes, _slice(found, Y).used_bytes) == (64 * MIB, 32 * MIB)


def test_a_slot_without_a_host_pid_finds_its_process_by_the_pid_in_the_container(
    node: Node, proc: FakeProc
) -> None:
    proc.add(100, 7, cgroup=systemd_path(X, MAIN))
    proc.add(101, 7, cgroup=systemd_path(Y, SIDE))
    with _region(node, X) as region:
        region.attach(7, 0).set_memory(0, data_bytes=64 * MIB)
        found = node.look([_pod("x", X)], card_of(A, {100: 70 * MIB}))
    owner = _owner(found, X)
    assert (owner.pids, owner.has_unknown_pids, owner.used_bytes) == (frozenset({100}), False, 64 * MIB)


def test_a_slot_without_a_host_pid_and_without_a_process_is_stale(node: Node, proc: FakeProc) -> None:
    with _region(node, X) as region:
        region.attach(7, 0).set_memory(0, data_bytes=64 * MIB)
        found = node.look([_pod("x", X)], card_of(A, {}))
        assert (_slice(found, X).used_bytes, _slice(found, X).stale_processes) == (0, 1)
        # The host is not searched each time; until it is, a new slot is believed.
        region.attach(8, 0).set_memory(0, data_bytes=8 * MIB)
        found = node.look([_pod("x", X)], card_of(A, {}), at_ms=2_000)
        assert (_slice(found, X).used_bytes, _owner(found, X).has_unknown_pids) == (8 * MIB, True)
        found = node.look([_pod("x", X)], card_of(A, {}), at_ms=3_000)
        assert (_slice(found, X).used_bytes, _slice(found, X).stale_processes) == (0, 2)


def test_a_slot_once_found_stale_stays_so_between_two_searches(node: Node, proc: FakeProc) -> None:
    with _region(node, X) as region:
        region.attach(7, 0).set_memory(0, data_bytes=64 * MIB)
        node.look([_pod("x", X)], card_of(A, {}))
        region.attach(8, 0).set_memory(0, data_bytes=8 * MIB)
        for at_ms in range(3_500, 20_000, 500):
            found = node.look([_pod("x", X)], card_of(A, {}), at_ms=at_ms)
            assert (_slice(found, X).used_bytes, _slice(found, X).stale_processes) == (0, 2)


def test_a_process_with_another_pid_inside_is_not_the_slots(node: Node, proc: FakeProc) -> None:
    proc.add(100, 9, cgroup=systemd_path(X, MAIN))
    with _region(node, X) as region:
        region.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        found = node.look([_pod("x", X)], card_of(A, {100: 5 * MIB}))
    # The process is the slice's by its cgroup; what the dead slot says is not.
    assert (_slice(found, X).used_bytes, _slice(found, X).stale_processes) == (5 * MIB, 1)
    assert _owner(found, X).pids == {100}


def test_a_process_that_took_the_same_pids_is_told_by_its_start(node: Node, proc: FakeProc) -> None:
    with _region(node, X) as region:
        region.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        proc.add(100, 7, cgroup=systemd_path(X, MAIN), start=1_000)
        assert _slice(node.look([_pod("x", X)], card_of(A, None)), X).used_bytes == 64 * MIB
        proc.remove(100)
        proc.add(100, 7, cgroup=systemd_path(X, MAIN), start=2_000)
        found = node.look([_pod("x", X)], card_of(A, None), at_ms=2_000)
    assert (_slice(found, X).used_bytes, _slice(found, X).stale_processes) == (0, 1)


def test_after_a_restart_an_unrelated_process_with_a_slots_pid_does_not_revive_it(
    node: Node, proc: FakeProc
) -> None:
    with _region(node, X) as region:
        region.attach(1, 100).set_memory(0, data_bytes=64 * MIB)
        proc.add(100, 1, cgroup=systemd_path(X, MAIN))
        assert _slice(node.look([_pod("x", X)], card_of(A, {100: 64 * MIB})), X).used_bytes == 64 * MIB
        # The kubelet restarts the container; its status still shows the old one.
        proc.remove(100)
        proc.add(200, 1, cgroup=systemd_path(X, NEXT))
        for at_ms in (2_000, 3_000, 9_000):
            found = node.look([_pod("x", X)], card_of(A, {}), at_ms=at_ms)
            assert (_slice(found, X).used_bytes, _slice(found, X).stale_processes) == (0, 1)
        # A GPU process of the new life takes the slot over.
        region.attach(1, 200).set_memory(0, data_bytes=16 * MIB)
        found = node.look([_pod("x", X)], card_of(A, {200: 16 * MIB}), at_ms=10_000)
    assert _slice(found, X).used_bytes == 16 * MIB


def test_a_pod_with_one_gpu_container_owns_a_process_whose_container_is_not_told_yet(
    node: Node, proc: FakeProc
) -> None:
    proc.add(100, 7, cgroup=systemd_path(X, MAIN))
    found = node.look([_pod("x", X, ids={})], card_of(A, {100: 64 * MIB}))
    assert (_slice(found, X).used_bytes, _owner(found, X).pids) == (64 * MIB, frozenset({100}))


def test_of_two_gpu_containers_none_is_charged_while_the_kubelet_has_not_told(
    node: Node, proc: FakeProc
) -> None:
    pod = _pod("x", X, f"{A},NVIDIA,4000,0:;{A},NVIDIA,4000,0:;", ids={}, containers=["main*", "side*"])
    proc.add(100, 7, cgroup=systemd_path(X, MAIN))
    found = node.look([pod], card_of(A, {100: 64 * MIB}))
    assert [_slice(found, X, name).used_bytes for name in ("main", "side")] == [None, None]
    assert all(_owner(found, X, name).has_unknown_pids for name in ("main", "side"))
    assert found.unattributed == frozenset()


def test_two_containers_files_in_one_directory_are_told_apart_by_their_processes(
    node: Node, proc: FakeProc
) -> None:
    # HAMi up to 2.8 names both containers' directory after the first.
    told = {"main": f"containerd://{MAIN}", "side": f"containerd://{SIDE}"}
    pod = _pod("x", X, f"{A},NVIDIA,4000,0:;{A},NVIDIA,4000,0:;", told, containers=["main*", "side*"])
    proc.add(100, 7, cgroup=systemd_path(X, MAIN))
    proc.add(101, 7, cgroup=systemd_path(X, SIDE))
    with _region(node, X) as first, _region(node, X) as second:
        first.attach(7, 101).set_memory(0, data_bytes=64 * MIB)
        slot = second.attach(7, 100)
        slot.set_memory(0, data_bytes=32 * MIB)
        found = node.look([pod], card_of(A, {100: 32 * MIB, 101: 64 * MIB}))
        assert [_slice(found, X, name).used_bytes for name in ("main", "side")] == [32 * MIB, 64 * MIB]
        # The file stays its container's after its last process has gone.
        proc.remove(100)
        found = node.look([pod], card_of(A, {101: 64 * MIB}), at_ms=2_000)
    assert [_slice(found, X, name).used_bytes for name in ("main", "side")] == [0, 64 * MIB]


def test_a_static_pods_processes_are_found_by_its_config_hash(node: Node, proc: FakeProc) -> None:
    config_hash = "c7d2f0a9b8e14d3f9a6b5c4d3e2f1a0b"
    pod = _pod("x", X, more={"kubernetes.io/config.hash": config_hash})
    proc.add(100, 7, cgroup=f"/kubepods/burstable/pod{config_hash}/{MAIN}")
    found = node.look([pod], card_of(A, {100: 70 * MIB}))
    assert (_slice(found, X).used_bytes, _slice(found, X).memory_source) == (70 * MIB, "nvml")
    with _region(node, config_hash) as region:
        region.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        found = node.look([pod], card_of(A, {100: 70 * MIB}))
    assert (_slice(found, X).used_bytes, _slice(found, X).memory_source) == (64 * MIB, "region")


def test_a_process_beside_the_library_adds_to_what_the_region_says(node: Node, proc: FakeProc) -> None:
    proc.add(100, 7, cgroup=systemd_path(X, MAIN))
    proc.add(101, 8, cgroup=systemd_path(X, MAIN))
    with _region(node, X) as region:
        region.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        found = node.look([_pod("x", X)], card_of(A, {100: 70 * MIB, 101: 30 * MIB}))
    gauges = _slice(found, X)
    assert (gauges.used_bytes, gauges.processes, gauges.memory_source) == (94 * MIB, 2, "region")
    assert _owner(found, X).pids == {100, 101}


def test_the_last_records_of_a_process_that_has_just_gone_are_its_containers(
    node: Node, proc: FakeProc
) -> None:
    proc.add(100, 7, cgroup=systemd_path(X, MAIN))
    node.look([_pod("x", X)], card_of(A, {100: 64 * MIB}))
    proc.remove(100)
    found = node.look([_pod("x", X)], card_of(A, {100: 64 * MIB}), at_ms=2_000)
    assert _owner(found, X).pids == {100}
    assert found.alive == frozenset()
    # A pid that NVML goes on listing is nobody's: no process of the host has it.
    found = node.look([_pod("x", X)], card_of(A, {100: 64 * MIB}), at_ms=3_000)
    assert found.unattributed == frozenset({100})


def test_the_owner_of_a_held_lock_is_looked_up_inside_its_container(node: Node, proc: FakeProc) -> None:
    def is_alive(at_ms: int) -> bool | None:
        region = _slice(node.look([_pod("x", X)], card_of(A, {}), at_ms=at_ms), X).region
        assert region is not None
        assert region.lock_held_since_ms == 1_000
        return region.lock_owner_is_alive

    proc.add(100, 7, cgroup=systemd_path(X, MAIN))
    proc.add(101, 7, cgroup=systemd_path(Y, SIDE))
    with _region(node, X) as region:
        region._write_int(LAYOUT.owner_pid, 7)
        region._write_int(LAYOUT.sem, 0)
        assert is_alive(1_000) is True
        proc.remove(100)
        # A process of the same pid lives in another container.
        assert is_alive(2_000) is False
        assert is_alive(60_000) is False


def test_memory_on_another_card_than_the_held_one_is_unallocated(node: Node, proc: FakeProc) -> None:
    proc.add(100, 7, cgroup=systemd_path(X, MAIN))
    found = node.look([_pod("x", X)], card_of(A, {100: 64 * MIB}), card_of(B, {100: 8 * MIB}))
    assert _slice(found, X).used_bytes == 64 * MIB
    (other,) = next(device for device in found.devices if device.device_uuid == B).owners
    assert (other.key.is_slice, other.used_bytes) == (False, 8 * MIB)


def test_a_process_that_goes_together_with_its_pod_is_nobodys_while_nvml_still_lists_it(
    node: Node, proc: FakeProc
) -> None:
    proc.add(100, 7, cgroup=systemd_path(X, MAIN))
    card = card_of(A, {100: 64 * MIB})
    assert _owner(node.look([_pod("x", X)], card), X).pids == frozenset({100})
    proc.remove(100)
    found = node.look([], card, at_ms=2_000)
    assert found.unattributed == frozenset({100})
    assert [owner for device in found.devices for owner in device.owners] == []
