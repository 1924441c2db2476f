"""Whose is what: real regions, real pod objects, readings by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from contract.ids import DeviceUuid, PodUid
from exporter.hami.annotations.node_register import parse_node_register
from exporter.hami.layouts import V1_2_2008952 as LAYOUT
from exporter.hami.resources import ResourceNames
from exporter.kube.objects import Meta, Namespace, Pod
from exporter.kube.tenant import DEFAULT_TENANT_FROM, parse_tenant_rules
from exporter.kube.view import View
from exporter.node.attribution import Attribution, Attributor
from exporter.node.caches import CacheReader
from exporter.node.counters import OwnerKey
from exporter.node.joining import Sources
from exporter.node.liveness import Liveness
from exporter.node.pods import PodBook
from exporter.node.processes import ProcessTable
from exporter.node.residents import Residents
from exporter.node.snapshot import SliceGauges
from exporter.node.tallies import Tallies
from exporter.nvidia.source import DeviceReading, ProcessMemory
from lab.workloads.region_writer import RegionFile

MIB = 1_048_576
A, B = "GPU-aaaaaaaa-0000-4000-8000-000000000000", "GPU-bbbbbbbb-0000-4000-8000-000000000000"
NAMESPACES = View(
    MappingProxyType(
        {"ns": Namespace(Meta(name="team", uid="ns", labels={"capsule.clastix.io/tenant": "t1"}))}
    ),
    listed=True,
    confirmed_at_ms=1,
)


def _pod(
    name: str,
    devices: str,
    containers: Sequence[str] = ("main*",),
    *,
    init: Sequence[str] = (),
    env: Mapping[str, str] = MappingProxyType({}),
    phase: str = "Running",
) -> Pod:
    """A bound pod; containers with a star ask for a GPU."""

    def container(text: str) -> dict[str, Any]:
        wants = text.endswith("*")
        return {
            "name": text.rstrip("*"),
            "resources": {"limits": {"nvidia.com/gpu": "1"} if wants else {}},
            "env": [{"name": key, "value": value} for key, value in env.items()],
        }

    annotations = {"hami.io/vgpu-node": "n", "hami.io/vgpu-devices-allocated": devices} if devices else {}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-10-01T00:00:00Z"}
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", "annotations": annotations},
            "spec": {
                "nodeName": "n",
                "initContainers": [container(each) for each in init],
                "containers": [container(each) for each in containers],
            },
            "status": {"phase": phase, "conditions": [scheduled]},
        },
        Pod,
    )


def _card(uuid: str, processes: Mapping[int, int | None] | None, **fields: Any) -> DeviceReading:
    return DeviceReading(
        uuid=DeviceUuid(uuid),
        index=0,
        model="NVIDIA A100",
        memory_total_bytes=81_920 * MIB,
        processes=(
            None if processes is None else tuple(ProcessMemory(pid, used) for pid, used in processes.items())
        ),
        utilization=(),
        **fields,
    )


class Node:
    """A node whose tree is on disk and whose pods and cards are given tick by tick."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.tallies = Tallies()
        self.caches = CacheReader([folder], self.tallies)
        self.book = PodBook(ResourceNames(), parse_tenant_rules(DEFAULT_TENANT_FROM), self.tallies)
        self.attributor = Attributor(Residents(ProcessTable(None), Liveness()), self.tallies)
        self.registered = {
            each.uuid: each
            for each in parse_node_register(
                f"{A},10,81920,100,NVIDIA-A100,0,true:{B},10,81920,100,NVIDIA-A100,0,true:"
            ).devices
        }

    def region(self, pod: str, container: str, uuids: Sequence[str] = (A,), **fields: Any) -> RegionFile:
        folder = self.root / f"uid-{pod}_{container}"
        folder.mkdir(exist_ok=True)
        name = f"{len(list(folder.iterdir()))}.cache"
        limits = [4_000 * MIB] * len(uuids)
        return RegionFile(folder / name, uuids=uuids, limits_bytes=limits, **fields)

    def look(
        self, pods: Sequence[Pod], *cards: DeviceReading, looks: int = 0, at_ms: int = 1_000
    ) -> Attribution:
        view = View(
            MappingProxyType({pod.metadata.uid: pod for pod in pods}), listed=True, confirmed_at_ms=1_000
        )
        return self.attributor.attribute(
            Sources(
                at_ms=at_ms,
                sight=self.book.look(view, [], NAMESPACES, at_ms),
                registered=self.registered,
                readings={card.uuid: card for card in cards},
                survey=self.caches.survey(looks=looks, wait=lambda _seconds: None),
                had_readings=bool(cards),
            )
        )


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def _slice(found: Attribution, pod: str, device: str = A, container: str = "main") -> SliceGauges:
    key = OwnerKey(PodUid(f"uid-{pod}"), container, DeviceUuid(device), is_slice=True)
    return next(gauges for gauges in found.slices if gauges.key == key)


def _unallocated(found: Attribution) -> dict[tuple[str, str, str], int | None]:
    return {
        (owner.key.pod_uid, owner.key.container, owner.key.device_uuid): owner.used_bytes
        for device in found.devices
        for owner in device.owners
        if not owner.key.is_slice
    }


def test_devices_of_one_container_are_joined_by_uuid_and_never_by_order(node: Node) -> None:
    # The annotation lists A first, the container's NVML lists B first.
    pod = _pod("two", f"{A},NVIDIA,4000,0:{B},NVIDIA,4000,0:;")
    with node.region("two", "main", [B, A]) as region:
        slot = region.attach(7, 100)
        slot.set_memory(0, data_bytes=300 * MIB)
        slot.set_memory(1, data_bytes=50 * MIB)
        found = node.look([pod], _card(A, {100: 51 * MIB}), _card(B, {100: 301 * MIB}))
    assert _slice(found, "two", A).used_bytes == 50 * MIB
    assert _slice(found, "two", B).used_bytes == 300 * MIB


def test_devices_that_the_program_exchanged_are_found_out_and_measured_by_nvml(node: Node) -> None:
    pod = _pod("two", f"{A},NVIDIA,4000,0:{B},NVIDIA,4000,0:;")
    with node.region("two", "main", [A, B]) as region:
        # With CUDA_VISIBLE_DEVICES=1,0 the program's device 0 is B.
        region.attach(7, 100).set_memory(0, data_bytes=3_000 * MIB)
        found = node.look([pod], _card(A, {}), _card(B, {100: 3_010 * MIB}))
    assert (_slice(found, "two", A).used_bytes, _slice(found, "two", A).memory_source) == (0, "nvml")
    assert _slice(found, "two", B).used_bytes == 3_010 * MIB


def test_memory_on_a_device_the_container_does_not_hold_is_unallocated(node: Node) -> None:
    pod = _pod("one", f"{A},NVIDIA,4000,0:;")
    with node.region("one", "main", [A, B]) as region:
        slot = region.attach(7, 100)
        slot.set_memory(0, data_bytes=10 * MIB)
        slot.set_memory(1, data_bytes=20 * MIB)
        found = node.look([pod], _card(A, {100: 10 * MIB}), _card(B, {100: 20 * MIB}))
    assert _slice(found, "one", A).used_bytes == 10 * MIB
    assert _unallocated(found) == {("uid-one", "main", B): 20 * MIB}


def test_a_directory_named_after_an_init_container_is_the_gpu_containers(node: Node) -> None:
    # HAMi 2.10.0 loses the padding: the directory is called after the init container.
    pod = _pod("job", f"{A},NVIDIA,4000,0:;", init=("setup",))
    with node.region("job", "setup") as region:
        region.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        found = node.look([pod], _card(A, {100: 64 * MIB}))
    assert _slice(found, "job").used_bytes == 64 * MIB
    assert _unallocated(found) == {}


def test_several_files_in_one_directory_are_all_read(node: Node) -> None:
    pod = _pod("job", f"{A},NVIDIA,4000,0:;")
    with node.region("job", "main") as first, node.region("job", "main") as second:
        first.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        second.attach(8, 101).set_memory(0, data_bytes=32 * MIB)
        found = node.look([pod], _card(A, {100: 64 * MIB, 101: 32 * MIB}))
    assert _slice(found, "job").used_bytes == 96 * MIB
    assert _slice(found, "job").processes == 2


def test_a_host_pid_that_two_containers_claim_is_neithers(node: Node) -> None:
    pods = [_pod("x", f"{A},NVIDIA,4000,0:;"), _pod("y", f"{A},NVIDIA,4000,0:;")]
    with node.region("x", "main") as x, node.region("y", "main") as y:
        x.attach(7, 100)
        y.attach(7, 100)
        found = node.look(pods, _card(A, {100: 5 * MIB}))
    (card,) = [device for device in found.devices if device.device_uuid == A]
    assert [owner.pids for owner in card.owners] == [frozenset(), frozenset()]
    assert all(owner.has_unknown_pids for owner in card.owners)
    assert found.unattributed == frozenset({100})


def test_the_files_of_an_ended_pod_count_only_where_nvml_still_lists_its_process(node: Node) -> None:
    pod = _pod("done", f"{A},NVIDIA,4000,0:;", phase="Succeeded")
    with node.region("done", "main") as region:
        region.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        assert _unallocated(node.look([pod], _card(A, {}))) == {}
        assert _unallocated(node.look([pod], _card(A, {100: 70 * MIB}))) == {
            ("uid-done", "main", A): 70 * MIB
        }
    assert node.look([pod], _card(A, {})).slices == ()


def test_a_directory_of_no_known_pod_owns_nothing(node: Node) -> None:
    with node.region("stranger", "main") as region:
        region.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        found = node.look([], _card(A, {100: 64 * MIB}))
    assert found.unattributed == frozenset({100})
    assert _unallocated(found) == {}


def test_without_a_region_a_slice_uses_0_only_if_no_process_could_be_its_own(node: Node) -> None:
    pod = _pod("job", f"{A},NVIDIA,4000,0:;")
    idle = _slice(node.look([pod], _card(A, {})), "job")
    assert (idle.used_bytes, idle.memory_source) == (0, "nvml")
    unsure = _slice(node.look([pod], _card(A, {555: 9 * MIB})), "job")
    assert (unsure.used_bytes, unsure.memory_source) == (None, "")
    blind = _slice(node.look([pod]), "job")
    assert (blind.used_bytes, blind.memory_source) == (None, "")


def test_a_file_that_cannot_be_read_costs_its_own_slice_and_one_counted_error(node: Node) -> None:
    pods = [_pod("good", f"{A},NVIDIA,4000,0:;"), _pod("bad", f"{A},NVIDIA,4000,0:;")]
    folder = node.root / "uid-bad_main"
    folder.mkdir()
    (folder / "x.cache").write_bytes(b"\x01" * 5_000)
    with node.region("good", "main") as region:
        region.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        for _ in range(3):
            found = node.look(pods, _card(A, {100: 64 * MIB}))
    assert _slice(found, "good").used_bytes == 64 * MIB
    assert (_slice(found, "bad").used_bytes, _slice(found, "bad").memory_source) == (0, "nvml")
    # Three ticks, one error.
    assert node.tallies.by_family() == {"cache_errors_total": {("unknown_size",): 1}}


def test_an_impossible_memory_value_is_left_out_and_counted(node: Node) -> None:
    pod = _pod("job", f"{A},NVIDIA,4000,0:;")
    with node.region("job", "main") as region:
        region.attach(7, 100).set_memory(0, data_bytes=-1 * MIB % 2**64)
        region.attach(8, 101).set_memory(0, data_bytes=32 * MIB)
        found = node.look([pod], _card(A, {101: 32 * MIB}))
    assert _slice(found, "job").used_bytes == 32 * MIB
    assert node.tallies.by_family() == {"values_refused_total": {("slot_memory", "below_range"): 1}}


def test_enforcement_says_who_holds_the_limit(node: Node) -> None:
    allocated = f"{A},NVIDIA,4000,0:;"
    with node.region("held", "main"):
        found = node.look([_pod("held", allocated)], _card(A, {}))
    assert _slice(found, "held").enforcement == "hami-core"
    (node.root / "uid-new_main").mkdir()
    assert _slice(node.look([_pod("new", allocated)], _card(A, {})), "new").enforcement == "pending"
    off = _pod("off", allocated, env={"CUDA_DISABLE_CONTROL": "true"})
    assert _slice(node.look([off], _card(A, {})), "off").enforcement == "none"
    mig = _pod("mig", f"{A}[1-0],NVIDIA,10240,14:;")
    assert _slice(node.look([mig], _card(A, {})), "mig").enforcement == "mig"


def test_the_cache_measures_only_while_somebody_watches(node: Node) -> None:
    pod = _pod("job", f"{A},NVIDIA,4000,0:;")

    def sm_percent() -> int | None:
        (owner,) = node.look([pod], looks=4).devices[0].owners
        return owner.cache_sm_percent

    with node.region("job", "main") as region:
        assert sm_percent() == 0  # no process, so nothing is used
        slot, other = region.attach(7, 100), region.attach(8, 101)
        assert sm_percent() is None  # a 0 that no watcher wrote means "not measured"
        slot.set_monitorused(0, 1)
        assert sm_percent() == 0
        slot.set_sm(0, 40)
        other.set_sm(0, 30)
        assert sm_percent() == 70
        other.set_sm(0, 90)
        assert sm_percent() == 100


def test_a_zero_between_two_looks_does_not_lower_the_value(node: Node) -> None:
    with node.region("job", "main") as region:
        slot = region.attach(7, 100)
        slot.set_sm(0, 40)
        shares = iter([0, 45, 0])
        survey = node.caches.survey(looks=4, wait=lambda _seconds: slot.set_sm(0, next(shares)))
    assert [dict(cache.sm_percent) for cache in survey.directories[0].caches] == [{(7, 0): 45}]


def test_the_held_lock_of_a_region_is_dated_by_its_first_sight_until_it_is_free(node: Node) -> None:
    pod = _pod("job", f"{A},NVIDIA,4000,0:;")

    def held_since_ms(now_ms: int) -> int | None:
        region = _slice(node.look([pod], _card(A, {}), at_ms=now_ms), "job").region
        assert region is not None
        return region.lock_held_since_ms

    with node.region("job", "main") as region:
        assert held_since_ms(1_000) is None
        region._write_int(LAYOUT.owner_pid, 7)
        region._write_int(LAYOUT.sem, 0)
        assert (held_since_ms(2_000), held_since_ms(62_000)) == (2_000, 2_000)
        region._write_int(LAYOUT.owner_pid, 8)
        assert held_since_ms(63_000) == 63_000
        region._write_int(LAYOUT.sem, 1)
        assert held_since_ms(64_000) is None


def test_a_pod_is_read_again_only_when_it_changes_and_each_error_counts_once(node: Node) -> None:
    pod = _pod("job", f"{A},NVIDIA,4000,0:GPU-x,NVIDIA:;")
    for _ in range(3):
        assert _slice(node.look([pod]), "job").allocated_mib == 4_000
    touched = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, reason="again"))
    node.look([touched])
    assert node.tallies.by_family() == {"annotation_errors_total": {("pod-devices", "field_count"): 1}}


def test_nothing_is_attributed_before_namespaces_were_listed(node: Node) -> None:
    pod = _pod("job", f"{A},NVIDIA,4000,0:;")
    view = View(MappingProxyType({pod.metadata.uid: pod}), listed=True, confirmed_at_ms=1_000)
    assert node.book.look(view, [], View(), 1_000).records == {}
    assert not node.book.look(view, [], View(), 1_000).is_listed


def test_a_slice_has_a_source_once_nvml_answered_or_hami_made_its_directory(node: Node) -> None:
    pod = _pod("job", f"{A},NVIDIA,4000,0:;")

    def has_source(*cards: DeviceReading) -> bool:
        (owner,) = node.look([pod], *cards).devices[0].owners
        return owner.has_source

    # An empty containers folder, as a chart may make it on a mock node, measures nothing.
    assert not has_source()
    assert has_source(_card(A, {}))
    (node.root / "uid-job_main").mkdir()
    assert has_source()


def test_slices_of_other_vendors_are_shown_and_never_metered(node: Node) -> None:
    pod = msgspec.convert(
        {
            "metadata": {
                "name": "npu",
                "namespace": "team",
                "uid": "uid-npu",
                "annotations": {"hami.io/Ascend910B-devices-allocated": "Ascend910B-0,Ascend910B,16384,0:;"},
            },
            "spec": {
                "nodeName": "n",
                "containers": [{"name": "main", "resources": {"limits": {"huawei.com/Ascend910B": "1"}}}],
            },
            "status": {"phase": "Running"},
        },
        Pod,
    )
    found = node.look([pod], _card(A, {}))
    (gauges,) = found.slices
    assert (gauges.labels.vendor, gauges.allocated_mib, gauges.used_bytes) == ("Ascend910B", 16_384, None)
    (owner,) = next(device for device in found.devices if device.device_uuid == "Ascend910B-0").owners
    assert not owner.has_source
