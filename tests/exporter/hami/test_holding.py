"""What a pod holds: DESIGN section 5, `reference/hami-kubernetes.md §3.1, §3.4, §3.7, §3.8, §6, §10.1`."""

from __future__ import annotations

from typing import Any

import msgspec

from exporter.hami.holding import UNKNOWN_CONTAINER, Grant, HeldSlice, Holding, holding
from exporter.hami.resources import ResourceNames
from exporter.kube.objects import Pod

NAMES = ResourceNames()
MINUTE_MS = 60_000

# 2026-10-01T08:00:00Z: 56 years with 14 leap days and 273 days after 1970, eight hours.
EIGHT_MS = ((20_454 + 273) * 24 + 8) * 3_600_000


def gpu(name: str, **more: object) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {"nvidia.com/gpu": "1"}}, **more}


def pod(
    annotations: dict[str, str] | None = None,
    *,
    containers: list[dict[str, Any]] | None = None,
    init: list[dict[str, Any]] | None = None,
    node: str | None = "node-a",
    status: dict[str, Any] | None = None,
) -> Pod:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-10-01T08:00:00Z"}
    raw = {
        "metadata": {"name": "p", "uid": "u", "namespace": "ns", "annotations": annotations or {}},
        "spec": {
            "nodeName": node,
            "initContainers": init or [],
            "containers": containers if containers is not None else [gpu("main")],
        },
        "status": {"phase": "Running", "conditions": [scheduled] if node else [], **(status or {})},
    }
    return msgspec.convert(raw, Pod)


def allocated(text: str, **more: str) -> dict[str, str]:
    return {"hami.io/vgpu-devices-allocated": text, **more}


def seen(found: Pod, *, minutes: int = 60, deleted_minutes: int | None = None) -> Holding:
    deleted_at_ms = None if deleted_minutes is None else EIGHT_MS + deleted_minutes * MINUTE_MS
    return holding(found, NAMES, seen_at_ms=EIGHT_MS + minutes * MINUTE_MS, deleted_at_ms=deleted_at_ms)


def ran(name: str, start: str, finish: str | None = None, exit_code: int = 0) -> dict[str, Any]:
    if finish is None:
        return {"name": name, "state": {"running": {"startedAt": f"2026-10-01T{start}Z"}}}
    times = {"startedAt": f"2026-10-01T{start}Z", "finishedAt": f"2026-10-01T{finish}Z"}
    return {"name": name, "state": {"terminated": {**times, "exitCode": exit_code}}}


def test_a_slice_is_held_from_the_binding_whatever_the_container_does() -> None:
    found = seen(pod(allocated("GPU-a,NVIDIA,4000,30:;")))
    grant = Grant("main", "app", "GPU-a", "NVIDIA", 4000, 30, 1, None)
    assert found == Holding("node-a", (HeldSlice(grant, EIGHT_MS, None, None, None),), (), ())


def test_the_start_is_the_first_run_that_is_known() -> None:
    status = ran("main", "08:05:00")
    status["lastState"] = {
        "terminated": {"startedAt": "2026-10-01T08:01:00Z", "finishedAt": "2026-10-01T08:02:00Z"}
    }
    (held,) = seen(pod(allocated("GPU-a,NVIDIA,1,0:;"), status={"containerStatuses": [status]})).slices
    assert (held.bound_at_ms, held.started_at_ms) == (EIGHT_MS, EIGHT_MS + MINUTE_MS)


def test_a_pod_without_a_node_is_a_reservation_and_holds_nothing() -> None:
    annotations = allocated("GPU-a,NVIDIA,4000,0:;", **{"hami.io/vgpu-node": "node-b"})
    found = seen(pod(annotations, node=None, status={"phase": "Pending"}))
    assert found.slices == ()
    assert [(grant.device_uuid, grant.memory_mib) for grant in found.reserved] == [("GPU-a", 4000)]
    assert found.node == "node-b"


def test_a_bound_pod_of_a_mock_node_stays_allocating_and_holds_without_an_error() -> None:
    text = "GPU-a,NVIDIA,20000,30:;"
    more = {
        "hami.io/vgpu-devices-to-allocate": text,
        "hami.io/bind-phase": "allocating",
        "hami.io/bind-time": "1790841600",
        "hami.io/vgpu-node": "node-a",
        "hami.io/vgpu-time": "1790841599",
    }
    found = seen(pod(allocated(text, **more)))
    assert len(found.current) == 1
    assert found.errors == ()


def test_bind_time_stands_in_for_a_missing_condition() -> None:
    annotations = allocated("GPU-a,NVIDIA,1,0:;", **{"hami.io/bind-time": str(EIGHT_MS // 1000 + 60)})
    (held,) = seen(pod(annotations, status={"conditions": []})).slices
    assert held.bound_at_ms == EIGHT_MS + MINUTE_MS


def test_a_terminal_pod_ends_with_its_last_app_container() -> None:
    statuses = [ran("a", "08:01:00", "08:10:00"), ran("b", "08:01:00", "08:20:00")]
    two = pod(
        allocated("GPU-a,NVIDIA,1,0:;GPU-b,NVIDIA,1,0:;"),
        containers=[gpu("a"), gpu("b")],
        status={"phase": "Succeeded", "containerStatuses": statuses},
    )
    ends = [(held.grant.container, held.ended_at_ms, held.end_reason) for held in seen(two).slices]
    assert ends == [
        ("a", EIGHT_MS + 20 * MINUTE_MS, "Succeeded"),
        ("b", EIGHT_MS + 20 * MINUTE_MS, "Succeeded"),
    ]


def test_a_pod_that_failed_before_any_container_ran_ends_when_that_was_seen() -> None:
    status = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
    (held,) = seen(pod(allocated("GPU-a,NVIDIA,1,0:;"), status=status), minutes=3).slices
    assert (held.ended_at_ms, held.end_reason) == (EIGHT_MS + 3 * MINUTE_MS, "UnexpectedAdmissionError")


def test_times_of_a_container_that_never_ran_are_no_times() -> None:
    never = {"startedAt": "1970-01-01T00:00:00Z", "finishedAt": "0001-01-01T00:00:00Z", "exitCode": 128}
    status = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": never}}]}
    (held,) = seen(pod(allocated("GPU-a,NVIDIA,1,0:;"), status=status), minutes=3).slices
    assert (held.started_at_ms, held.ended_at_ms) == (None, EIGHT_MS + 3 * MINUTE_MS)


def test_a_deleted_pod_ends_at_the_event() -> None:
    (held,) = seen(pod(allocated("GPU-a,NVIDIA,1,0:;")), deleted_minutes=5).slices
    assert (held.ended_at_ms, held.end_reason) == (EIGHT_MS + 5 * MINUTE_MS, "Deleted")


def test_the_earlier_of_terminal_phase_and_deletion_ends() -> None:
    status = {"phase": "Succeeded", "containerStatuses": [ran("main", "08:01:00", "08:10:00")]}
    (held,) = seen(pod(allocated("GPU-a,NVIDIA,1,0:;"), status=status), deleted_minutes=30).slices
    assert (held.ended_at_ms, held.end_reason) == (EIGHT_MS + 10 * MINUTE_MS, "Succeeded")


def test_a_terminating_pod_still_holds() -> None:
    found = pod(allocated("GPU-a,NVIDIA,1,0:;"))
    leaving = msgspec.structs.replace(
        found, metadata=msgspec.structs.replace(found.metadata, deletion_timestamp="2026-10-01T08:30:00Z")
    )
    assert len(seen(leaving).current) == 1


def test_an_init_container_that_restarts_always_is_a_sidecar_and_holds_all_the_time() -> None:
    sidecar = gpu("proxy", restartPolicy="Always")
    found = pod(allocated("GPU-a,NVIDIA,100,0:;GPU-b,NVIDIA,200,0:;"), init=[sidecar])
    assert [(held.grant.container, held.grant.kind, held.bound_at_ms) for held in seen(found).slices] == [
        ("proxy", "sidecar", EIGHT_MS),
        ("main", "app", EIGHT_MS),
    ]


INIT_AND_MAIN = allocated("GPU-a,NVIDIA,100,0:;GPU-b,NVIDIA,200,0:;")


def test_a_plain_init_container_holds_only_while_it_runs() -> None:
    def init_slices(statuses: list[dict[str, Any]]) -> list[tuple[int, int | None, str | None]]:
        found = seen(pod(INIT_AND_MAIN, init=[gpu("setup")], status={"initContainerStatuses": statuses}))
        return [
            (
                held.bound_at_ms - EIGHT_MS,
                None if held.ended_at_ms is None else held.ended_at_ms - EIGHT_MS,
                held.end_reason,
            )
            for held in found.slices
            if held.grant.kind == "init"
        ]

    assert init_slices([]) == []
    assert init_slices([ran("setup", "08:01:00")]) == [(MINUTE_MS, None, None)]
    assert init_slices([ran("setup", "08:01:00", "08:04:00")]) == [(MINUTE_MS, 4 * MINUTE_MS, "Completed")]
    # It failed and will be started again: an end here would be final in the ledger.
    assert init_slices([ran("setup", "08:01:00", "08:04:00", exit_code=1)]) == [(MINUTE_MS, None, None)]


def test_an_init_container_that_never_ran_holds_nothing_when_the_pod_ends() -> None:
    found = seen(pod(INIT_AND_MAIN, init=[gpu("setup")]), deleted_minutes=5)
    assert [held.grant.container for held in found.slices] == ["main"]


def test_two_grants_of_one_device_to_one_container_add_up() -> None:
    text = "GPU-a[1-0],NVIDIA,10240,14:GPU-a[1-1],NVIDIA,10240,14:;"
    (held,) = seen(pod(allocated(text))).slices
    assert held.grant == Grant("main", "app", "GPU-a", "NVIDIA", 20480, 28, 2, "[1-0],[1-1]")


def test_one_container_with_two_cards_holds_two_slices() -> None:
    found = seen(pod(allocated("GPU-a,NVIDIA,3000,0:GPU-b,NVIDIA,3000,0:;")))
    assert [(held.grant.device_uuid, held.grant.slots) for held in found.slices] == [
        ("GPU-a", 1),
        ("GPU-b", 1),
    ]


def test_mig_of_2_10_is_found_by_entry_and_device() -> None:
    instances = (
        '[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-a","profile":"1g.10gb",'
        '"placement":{"start":6,"size":1}}]'
    )
    annotations = allocated("GPU-a,NVIDIA,9728,14:;", **{"hami.io/vgpu-mig-allocations": instances})
    (held,) = seen(pod(annotations)).slices
    assert held.grant.mig == "1g.10gb@6+1"


def test_devices_of_an_unknown_container_are_still_the_pods() -> None:
    found = seen(pod(allocated("GPU-a,NVIDIA,1,0:;"), containers=[gpu("a"), gpu("b")]))
    assert [(held.grant.container, held.grant.device_uuid) for held in found.slices] == [
        (UNKNOWN_CONTAINER, "GPU-a")
    ]
    assert [error.reason for error in found.errors] == ["unmapped"]


def test_a_pod_bound_elsewhere_than_hami_chose_is_reported() -> None:
    annotations = allocated("GPU-a,NVIDIA,1,0:;", **{"hami.io/vgpu-node": "node-z"})
    assert [error.reason for error in seen(pod(annotations)).errors] == ["other_node"]


def test_other_vendors_are_held_too_and_are_not_nvidia() -> None:
    container = {"name": "main", "resources": {"limits": {"huawei.com/Ascend910B3": "1"}}}
    annotations = {"hami.io/Ascend910B3-devices-allocated": "npu-0,Ascend910B3,16384,0,more:;"}
    (held,) = seen(pod(annotations, containers=[container])).slices
    assert (held.grant.container, held.grant.vendor, held.grant.is_nvidia) == ("main", "Ascend910B3", False)


def test_cores_that_are_no_percent_are_left_out() -> None:
    container = {"name": "main", "resources": {"limits": {"aws.amazon.com/neuroncore": "1"}}}
    annotations = {"hami.io/aws-neuron-devices-allocated": "neuron-0,AWSNeuron,0,3:;"}
    (held,) = seen(pod(annotations, containers=[container])).slices
    assert held.grant.core_percent == 0


def test_devices_repeated_in_a_second_vendors_annotation_count_once() -> None:
    annotations = allocated(
        "GPU-a,NVIDIA,100,10:;", **{"hami.io/dcu-devices-allocated": "GPU-a,NVIDIA,100,10:;"}
    )
    container = gpu("main")
    container["resources"]["limits"]["hygon.com/dcunum"] = "1"
    assert [held.grant.memory_mib for held in seen(pod(annotations, containers=[container])).slices] == [100]


def test_a_pod_without_hamis_annotations_holds_nothing() -> None:
    assert seen(pod()) == Holding("node-a", (), (), ())


def test_an_end_never_comes_before_the_binding() -> None:
    (held,) = seen(pod(allocated("GPU-a,NVIDIA,1,0:;")), deleted_minutes=-1).slices
    assert held.ended_at_ms == EIGHT_MS
