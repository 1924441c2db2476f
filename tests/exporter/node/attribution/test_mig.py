"""MIG slices by both forms of HAMi's annotation: their instances, processes and memory."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from contract.ids import DeviceUuid, PodUid
from exporter.kube.objects import Pod
from exporter.node.attribution.owners import Attribution
from exporter.node.metering.counters import OwnerKey
from exporter.node.snapshot import SliceGauges
from exporter.nvidia.source import DeviceReading, MigInstance, ProcessMemory
from tests.exporter.node.proc import FakeProc, systemd_path
from tests.exporter.node.stand import CARD, Page, Stand, pod
from tests.exporter.node.tree import MIB, A, Node, card_of, pod_of

ID = "5f0a" * 16


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def allocation(
    gpu_instance: int | None, *, device: int = 0, uuid: str = "", card: str = A
) -> dict[str, object]:
    """One entry of 2.10's annotation; without an instance as it is before the device plugin has chosen."""
    entry: dict[str, object] = {
        "containerIndex": 0,
        "deviceIndex": device,
        "gpuUUID": card,
        "profile": "1g.10gb",
        "placement": {"start": gpu_instance or 0, "size": 1},
    }
    if gpu_instance is not None:
        entry |= {
            "migUUID": uuid or f"MIG-{gpu_instance}",
            "gpuInstanceID": gpu_instance,
            "computeInstanceID": 0,
        }
    return entry


def newer(name: str, *allocations: dict[str, object]) -> Pod:
    """A pod of HAMi 2.10."""
    devices = ":".join([f"{A},NVIDIA,9728,14"] * len(allocations))
    return pod_of(name, f"{devices}:;", more={"hami.io/vgpu-mig-allocations": json.dumps(allocations)})


def mig_card(
    instances: Mapping[int, int | None],
    processes: Mapping[int, tuple[int, int]] | None = None,
    *,
    compute_instances: int = 1,
) -> DeviceReading:
    """A card in MIG mode: memory used by GPU instance, and (GPU instance, bytes) by process."""
    listed = {} if processes is None else processes
    return dataclasses.replace(
        card_of(A, {}),
        mode="mig",
        utilization=None,
        mig=tuple(
            MigInstance(
                f"MIG-{each}" if not part else f"MIG-{each}/{part}", "1g.10gb", each, part, None, used
            )
            for each, used in instances.items()
            for part in range(compute_instances)
        ),
        processes=tuple(ProcessMemory(pid, used, each, 0) for pid, (each, used) in listed.items()),
    )


def gauges_of(found: Attribution, name: str) -> SliceGauges:
    key = OwnerKey(PodUid(f"uid-{name}"), "main", DeviceUuid(A), is_slice=True)
    (gauges,) = [each for each in found.slices if each.key == key]
    return gauges


def used(found: Attribution, name: str) -> tuple[int | None, str, int | None]:
    gauges = gauges_of(found, name)
    assert gauges.enforcement == "mig"
    return gauges.used_bytes, gauges.memory_source, gauges.processes


def test_a_slice_uses_what_its_own_instance_does_and_has_the_processes_on_it(node: Node) -> None:
    pods = [newer("one", allocation(9)), newer("two", allocation(11))]
    card = mig_card({9: 600 * MIB, 11: 5_000 * MIB}, {100: (9, 512 * MIB), 200: (11, 4_900 * MIB)})
    found = node.look(pods, card)
    assert used(found, "one") == (600 * MIB, "nvml", 1)
    assert used(found, "two") == (5_000 * MIB, "nvml", 1)
    assert found.unattributed == frozenset()
    assert {place[0] for place in found.alive} == {"uid-one", "uid-two"}
    (device,) = [each for each in found.devices if each.device_uuid == A]
    assert [owner.pids for owner in device.owners] == [frozenset({100}), frozenset({200})]
    assert [owner.has_sm_source for owner in device.owners] == [False, False]


def test_an_instance_that_was_made_anew_under_its_ids_is_still_the_slices(node: Node) -> None:
    found = node.look([newer("one", allocation(9, uuid="MIG-old"))], mig_card({9: 600 * MIB}))
    assert used(found, "one")[0] == 600 * MIB


def test_two_instances_of_one_card_in_one_container_are_one_slice_whose_memory_adds(node: Node) -> None:
    pods = [newer("both", allocation(9), allocation(11, device=1))]
    card = mig_card({9: 600 * MIB, 11: 50 * MIB}, {100: (9, MIB), 101: (11, MIB)})
    assert used(node.look(pods, card), "both") == (650 * MIB, "nvml", 2)


def test_an_instance_whose_memory_is_not_known_leaves_the_sum_of_its_processes(node: Node) -> None:
    found = node.look([newer("one", allocation(9))], mig_card({9: None}, {100: (9, 512 * MIB)}))
    assert used(found, "one") == (512 * MIB, "nvml", 1)


def test_of_compute_instances_that_share_memory_each_has_what_its_processes_use(node: Node) -> None:
    card = mig_card({9: 600 * MIB}, {100: (9, 512 * MIB)}, compute_instances=2)
    assert used(node.look([newer("one", allocation(9))], card), "one")[0] == 512 * MIB


def test_a_process_on_an_instance_that_nobody_holds_is_unattributed(node: Node) -> None:
    found = node.look([newer("one", allocation(9))], mig_card({9: 0, 11: 700 * MIB}, {200: (11, 512 * MIB)}))
    assert used(found, "one") == (0, "nvml", 0)
    assert found.unattributed == frozenset({200})


def test_before_the_plugin_has_chosen_an_instance_nothing_is_guessed_from_sizes(node: Node) -> None:
    pods = [newer("one", allocation(None))]
    busy = node.look(pods, mig_card({9: 600 * MIB}, {100: (9, 512 * MIB)}))
    assert used(busy, "one") == (None, "", None)
    # Nobody is on the card, so it is not this one either.
    assert used(node.look(pods, mig_card({9: 0})), "one") == (0, "nvml", 0)


def test_the_older_form_names_no_instance_so_the_containers_processes_show_it(tmp_path: Path) -> None:
    """`[1-0]` is a place in HAMi's own list of geometries."""
    (tmp_path / "tree").mkdir()
    proc = FakeProc(tmp_path / "proc")
    node = Node(tmp_path / "tree", proc.root)
    uid = "0d9ad4a1-9b58-4f66-8d0a-3f2c4b1e9a01"
    pods = [pod_of("old", f"{A}[1-0],NVIDIA,9728,14:;", uid=uid, ids={"main": f"containerd://{ID}"})]
    card = mig_card({9: 600 * MIB, 11: 5_000 * MIB}, {100: (11, 4_900 * MIB)})
    proc.add(100, 7, cgroup=systemd_path(uid, ID))
    (gauges,) = node.look(pods, card).slices
    assert (gauges.used_bytes, gauges.memory_source, gauges.processes) == (5_000 * MIB, "nvml", 1)
    assert gauges.enforcement == "mig"


def test_the_older_form_is_unknown_where_the_hosts_processes_cannot_be_seen(node: Node) -> None:
    found = node.look(
        [pod_of("old", f"{A}[1-0],NVIDIA,9728,14:;")], mig_card({11: 5_000 * MIB}, {100: (11, 4_900 * MIB)})
    )
    assert used(found, "old") == (None, "", None)


def test_a_cgroup_outweighs_the_annotation(tmp_path: Path) -> None:
    """A process that got at another's instance is shown under its own pod."""
    (tmp_path / "tree").mkdir()
    proc = FakeProc(tmp_path / "proc")
    node = Node(tmp_path / "tree", proc.root)
    uid = "0d9ad4a1-9b58-4f66-8d0a-3f2c4b1e9a01"
    stranger = pod_of("stranger", "", uid=uid, ids={"main": f"containerd://{ID}"})
    proc.add(100, 7, cgroup=systemd_path(uid, ID))
    found = node.look(
        [newer("one", allocation(9)), stranger], mig_card({9: 600 * MIB}, {100: (9, 512 * MIB)})
    )
    (device,) = [each for each in found.devices if each.device_uuid == A]
    pids = {(owner.key.pod_uid, owner.key.is_slice): owner.pids for owner in device.owners}
    assert pids == {("uid-one", True): frozenset(), (uid, False): frozenset({100})}


def test_the_page_of_a_mig_card_has_memory_and_energy_and_no_sm_time(stand: Stand) -> None:
    held = pod("job", memory_mib=9_728, cores=14)
    held["metadata"]["annotations"]["hami.io/vgpu-mig-allocations"] = json.dumps([allocation(9, card=CARD)])
    stand.double.create("Pod", held)
    stand.card.instances = (MigInstance("MIG-9", "1g.10gb", 9, 0, 9_728 * MIB, 600 * MIB),)
    stand.card.memory, stand.card.instance_of = {4_711: 512 * MIB}, {4_711: 9}
    stand.start()

    def has_energy(page: Page) -> bool:
        return (page.one("device_energy_unattributed_joules_total") or 0) > 0.01

    page = stand.wait_for(has_energy)
    (info,) = page.labels("slice_info")
    assert (info["enforcement"], info["memory_source"], info["layout"]) == ("mig", "nvml", "")
    assert page.one("slice_memory_used_bytes") == 600 * MIB
    assert page.one("slice_memory_allocated_bytes") == 9_728 * MIB
    assert page.one("slice_processes") == 1
    assert (page.one("slice_memory_used_byte_seconds_total") or 0) > 0
    assert page.one("unattributed_processes") == 0
    assert page.labels("mig_info")[0]["profile"] == "1g.10gb"
    for name in (
        "slice_sm_seconds_total",
        "slice_sm_utilization_ratio",
        "slice_memory_limit_bytes",
        "device_busy_seconds_total",
        "device_utilization_ratio",
    ):
        assert page.find(name) == [], name
    assert (page.one("slice_unknown_seconds_total", reason="no_source") or 0) > 0
    # Energy exists once, on the board: nobody's activity is measured, so the active part is nobody's.
    assert page.one("slice_energy_joules_total", kind="active") == 0
    parts = sum(page.find("slice_energy_joules_total")) + sum(
        page.find("device_energy_unattributed_joules_total")
    )
    assert parts == pytest.approx(page.one("device_energy_joules_total"))
