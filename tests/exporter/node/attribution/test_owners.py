"""Whose is what: real regions, real pod objects, readings by hand."""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType

import msgspec
import pytest

from contract.ids import DeviceUuid, PodUid
from exporter.hami.layouts import V1_2_2008952 as LAYOUT
from exporter.kube.objects import Pod
from exporter.kube.view import View
from exporter.node.attribution.joining import Sources
from exporter.node.attribution.owners import Attribution, down_reason
from exporter.node.metering.counters import OwnerKey
from exporter.node.snapshot import SliceGauges
from exporter.node.sources.caches import CacheReader, CacheSurvey
from exporter.node.sources.hardware import HardwareView
from exporter.node.sources.pods import PodSight
from exporter.node.tallies import Tallies
from exporter.nvidia.source import DeviceReading
from lab.workloads.region_writer import RegionFile
from tests.exporter.node.tree import MIB, A, B, Node, card_of, pod_of


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


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        ("driver_not_loaded", "driver_not_loaded"),
        (None, "not_listed"),
        ("library_not_found", None),  # the exporter's own trouble
        ("mig_lock", None),
        ("no_source", None),
    ],
)
def test_a_card_is_down_when_nvml_knew_it_and_lost_it_and_not_when_nvml_cannot_be_asked(
    failure: str | None, reason: str | None
) -> None:
    sources = Sources(
        at_ms=1,
        sight=PodSight(),
        registered={},
        readings={},
        survey=CacheSurvey(),
        hardware={A: HardwareView()},
        had_readings=True,
        device_failure=failure,
    )
    assert down_reason(sources, A) == reason
    assert down_reason(sources, B) is None, "NVML never knew it"


def test_devices_of_one_container_are_joined_by_uuid_and_never_by_order(node: Node) -> None:
    # The annotation lists A first, the container's NVML lists B first.
    pod = pod_of("two", f"{A},NVIDIA,4000,0:{B},NVIDIA,4000,0:;")
    with node.region("two", "main", [B, A]) as region:
        slot = region.attach(7, 100)
        slot.set_memory(0, data_bytes=300 * MIB)
        slot.set_memory(1, data_bytes=50 * MIB)
        found = node.look([pod], card_of(A, {100: 51 * MIB}), card_of(B, {100: 301 * MIB}))
    assert _slice(found, "two", A).used_bytes == 50 * MIB
    assert _slice(found, "two", B).used_bytes == 300 * MIB


def test_devices_that_the_program_exchanged_are_found_out_and_measured_by_nvml(node: Node) -> None:
    pod = pod_of("two", f"{A},NVIDIA,4000,0:{B},NVIDIA,4000,0:;")
    with node.region("two", "main", [A, B]) as region:
        # With CUDA_VISIBLE_DEVICES=1,0 the program's device 0 is B.
        region.attach(7, 100).set_memory(0, data_bytes=3_000 * MIB)
        found = node.look([pod], card_of(A, {}), card_of(B, {100: 3_010 * MIB}))
    assert (_slice(found, "two", A).used_bytes, _slice(found, "two", A).memory_source) == (0, "nvml")
    assert _slice(found, "two", B).used_bytes == 3_010 * MIB


def test_memory_on_a_device_the_container_does_not_hold_is_unallocated(node: Node) -> None:
    pod = pod_of("one", f"{A},NVIDIA,4000,0:;")
    with node.region("one", "main", [A, B]) as region:
        slot = region.attach(7, 100)
        slot.set_memory(0, data_bytes=10 * MIB)
        slot.set_memory(1, data_bytes=20 * MIB)
        found = node.look([pod], card_of(A, {100: 10 * MIB}), card_of(B, {100: 20 * MIB}))
    assert _slice(found, "one", A).used_bytes == 10 * MIB
    assert _unallocated(found) == {("uid-one", "main", B): 20 * MIB}


def test_a_directory_named_after_an_init_container_is_the_gpu_containers(node: Node) -> None:
    # HAMi 2.10.0 loses the padding: the directory is called after the init container.
    pod = pod_of("job", f"{A},NVIDIA,4000,0:;", init=("setup",))
    with node.region("job", "setup") as region:
        region.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        found = node.look([pod], card_of(A, {100: 64 * MIB}))
    assert _slice(found, "job").used_bytes == 64 * MIB
    assert _unallocated(found) == {}


def test_several_files_in_one_directory_are_all_read(node: Node) -> None:
    pod = pod_of("job", f"{A},NVIDIA,4000,0:;")
    with node.region("job", "main") as first, node.region("job", "main") as second:
        first.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        second.attach(8, 101).set_memory(0, data_bytes=32 * MIB)
        found = node.look([pod], card_of(A, {100: 64 * MIB, 101: 32 * MIB}))
    assert _slice(found, "job").used_bytes == 96 * MIB
    assert _slice(found, "job").processes == 2


def test_a_host_pid_that_two_containers_claim_is_neithers(node: Node) -> None:
    pods = [pod_of("x", f"{A},NVIDIA,4000,0:;"), pod_of("y", f"{A},NVIDIA,4000,0:;")]
    with node.region("x", "main") as x, node.region("y", "main") as y:
        x.attach(7, 100)
        y.attach(7, 100)
        found = node.look(pods, card_of(A, {100: 5 * MIB}))
    (card,) = [device for device in found.devices if device.device_uuid == A]
    assert [owner.pids for owner in card.owners] == [frozenset(), frozenset()]
    assert all(owner.has_unknown_pids for owner in card.owners)
    assert found.unattributed == frozenset({100})


def test_the_files_of_an_ended_pod_count_only_where_nvml_still_lists_its_process(node: Node) -> None:
    pod = pod_of("done", f"{A},NVIDIA,4000,0:;", phase="Succeeded")
    with node.region("done", "main") as region:
        region.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        assert _unallocated(node.look([pod], card_of(A, {}))) == {}
        assert _unallocated(node.look([pod], card_of(A, {100: 70 * MIB}))) == {
            ("uid-done", "main", A): 70 * MIB
        }
    assert node.look([pod], card_of(A, {})).slices == ()


def test_a_directory_of_no_known_pod_owns_nothing(node: Node) -> None:
    with node.region("stranger", "main") as region:
        region.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        found = node.look([], card_of(A, {100: 64 * MIB}))
    assert found.unattributed == frozenset({100})
    assert _unallocated(found) == {}


def test_without_a_region_a_slice_uses_0_only_if_no_process_could_be_its_own(node: Node) -> None:
    pod = pod_of("job", f"{A},NVIDIA,4000,0:;")
    idle = _slice(node.look([pod], card_of(A, {})), "job")
    assert (idle.used_bytes, idle.memory_source) == (0, "nvml")
    unsure = _slice(node.look([pod], card_of(A, {555: 9 * MIB})), "job")
    assert (unsure.used_bytes, unsure.memory_source) == (None, "")
    blind = _slice(node.look([pod]), "job")
    assert (blind.used_bytes, blind.memory_source) == (None, "")


def test_a_file_that_cannot_be_read_costs_its_own_slice_and_one_counted_error(node: Node) -> None:
    pods = [pod_of("good", f"{A},NVIDIA,4000,0:;"), pod_of("bad", f"{A},NVIDIA,4000,0:;")]
    folder = node.root / "uid-bad_main"
    folder.mkdir()
    (folder / "x.cache").write_bytes(b"\x01" * 5_000)
    with node.region("good", "main") as region:
        region.attach(7, 100).set_memory(0, data_bytes=64 * MIB)
        for _ in range(3):
            found = node.look(pods, card_of(A, {100: 64 * MIB}))
    assert _slice(found, "good").used_bytes == 64 * MIB
    assert (_slice(found, "bad").used_bytes, _slice(found, "bad").memory_source) == (0, "nvml")
    # Three ticks, one error.
    assert node.tallies.by_family() == {"cache_errors_total": {("unknown_size",): 1}}


def test_an_impossible_memory_value_is_left_out_and_counted(node: Node) -> None:
    pod = pod_of("job", f"{A},NVIDIA,4000,0:;")
    with node.region("job", "main") as region:
        region.attach(7, 100).set_memory(0, data_bytes=-1 * MIB % 2**64)
        region.attach(8, 101).set_memory(0, data_bytes=32 * MIB)
        found = node.look([pod], card_of(A, {101: 32 * MIB}))
    assert _slice(found, "job").used_bytes == 32 * MIB
    assert node.tallies.by_family() == {"values_refused_total": {("slot_memory", "below_range"): 1}}


def test_enforcement_says_who_holds_the_limit(node: Node) -> None:
    allocated = f"{A},NVIDIA,4000,0:;"
    with node.region("held", "main"):
        found = node.look([pod_of("held", allocated)], card_of(A, {}))
    assert _slice(found, "held").enforcement == "hami-core"
    (node.root / "uid-new_main").mkdir()
    assert _slice(node.look([pod_of("new", allocated)], card_of(A, {})), "new").enforcement == "pending"
    off = pod_of("off", allocated, env={"CUDA_DISABLE_CONTROL": "true"})
    assert _slice(node.look([off], card_of(A, {})), "off").enforcement == "none"
    mig = pod_of("mig", f"{A}[1-0],NVIDIA,10240,14:;")
    assert _slice(node.look([mig], card_of(A, {})), "mig").enforcement == "mig"


def test_the_cache_measures_only_while_somebody_watches(node: Node) -> None:
    pod = pod_of("job", f"{A},NVIDIA,4000,0:;")

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


def test_a_figure_is_believed_only_while_its_file_changes(tmp_path: Path) -> None:
    now_s = 0.0
    caches = CacheReader([tmp_path], Tallies(), lambda: now_s)
    (tmp_path / "uid-job_main").mkdir()

    def figures() -> dict[tuple[int, int], int]:
        ((cache,),) = (each.caches for each in caches.survey(looks=2, wait=lambda _seconds: None).directories)
        return dict(cache.sm_percent)

    path = tmp_path / "uid-job_main" / "x.cache"
    with RegionFile(path, uuids=[A, B], limits_bytes=[0, 0]) as region:
        slot = region.attach(7, 100)
        slot.set_sm(0, 40)
        slot.set_sm(1, 11)
        assert figures() == {(7, 0): 40, (7, 1): 11}
        now_s = 59.0
        assert figures() == {(7, 0): 40, (7, 1): 11}
        # Something else in the file moves: the watcher lives, but it has forgotten the second device.
        slot.set_monitorused(0, 1)
        now_s = 61.0
        assert figures() == {(7, 0): 40}
        now_s = 122.0
        assert figures() == {}
        # The kernel dates the file anew when a write through a mapping reaches it.
        os.utime(path, ns=(1, 1))
        now_s = 123.0
        assert figures() == {(7, 0): 40}
        slot.set_sm(0, 0)
        slot.set_sm(1, 0)
        now_s = 500.0
        assert figures() == {(7, 0): 0, (7, 1): 0}
        now_s = 900.0
        assert figures() == {(7, 0): 0, (7, 1): 0}


def test_the_held_lock_of_a_region_is_dated_by_its_first_sight_until_it_is_free(node: Node) -> None:
    pod = pod_of("job", f"{A},NVIDIA,4000,0:;")

    def held_since_ms(now_ms: int) -> int | None:
        region = _slice(node.look([pod], card_of(A, {}), at_ms=now_ms), "job").region
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
    pod = pod_of("job", f"{A},NVIDIA,4000,0:GPU-x,NVIDIA:;")
    for _ in range(3):
        assert _slice(node.look([pod]), "job").allocated_mib == 4_000
    touched = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, reason="again"))
    node.look([touched])
    assert {what: count for what, count in node.flaws.counts().items() if count} == {
        ("pod-devices", "field_count"): 1
    }


def test_nothing_is_attributed_before_namespaces_were_listed(node: Node) -> None:
    pod = pod_of("job", f"{A},NVIDIA,4000,0:;")
    view = View(MappingProxyType({pod.metadata.uid: pod}), listed=True, confirmed_at_ms=1_000)
    assert node.book.look(view, [], View(), 1_000).records == {}
    assert not node.book.look(view, [], View(), 1_000).is_listed


def test_a_slice_has_a_source_once_nvml_answered_or_hami_made_its_directory(node: Node) -> None:
    pod = pod_of("job", f"{A},NVIDIA,4000,0:;")

    def has_source(*cards: DeviceReading) -> bool:
        (owner,) = node.look([pod], *cards).devices[0].owners
        return owner.has_source

    # An empty containers folder, as a chart may make it on a mock node, measures nothing.
    assert not has_source()
    assert has_source(card_of(A, {}))
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
    found = node.look([pod], card_of(A, {}))
    (gauges,) = found.slices
    assert (gauges.labels.vendor, gauges.allocated_mib, gauges.used_bytes) == ("Ascend910B", 16_384, None)
    (owner,) = next(device for device in found.devices if device.device_uuid == "Ascend910B-0").owners
    assert not owner.has_source
