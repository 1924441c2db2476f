from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from accounting.facts.bounds import judge
from accounting.facts.reading import MAX_LINE_BYTES, Scope, read_lines
from contract.facts import (
    AllocationFact,
    DeviceUsageFact,
    Fact,
    NodeStateFact,
    PresenceFact,
    SliceUsageFact,
    UnallocatedUseFact,
    canonical_bytes,
)
from contract.ids import ClusterCode, DeviceUuid, EpochId, NodeUid, PodUid, TenantKey

HOUR_MS = 1_790_805_600_000
"""2026-09-30T22:00Z, the first hour of October in Berlin."""
NOW_MS = HOUR_MS + 7_200_000
DAY_MS = 86_400_000

ALLOCATION = AllocationFact(
    cluster=ClusterCode("a"),
    pod_uid=PodUid("pod-1"),
    container="main",
    device_uuid=DeviceUuid("GPU-1"),
    witness="node",
    node_uid=NodeUid("uid-1"),
    node="node-1",
    namespace="team",
    pod="train",
    vendor="NVIDIA",
    model="NVIDIA L4",
    mem_mib=8_000,
    core_percent=50,
    container_kind="app",
    tenant_key=TenantKey("tenant-a"),
    bound_at_ms=HOUR_MS,
    started_at_ms=HOUR_MS + 10,
    first_confirmed_at_ms=HOUR_MS + 20,
    confirmed_at_ms=HOUR_MS + 3_000,
)
PRESENCE = PresenceFact(
    cluster=ClusterCode("a"),
    node_uid=NodeUid("uid-1"),
    node="node-1",
    device_uuid=DeviceUuid("GPU-1"),
    witness="node",
    from_ms=HOUR_MS,
    to_ms=HOUR_MS + 3_000,
    state="healthy",
    model="NVIDIA L4",
    vendor="NVIDIA",
    registered_mib=24_576,
    slots=10,
)
NODE_STATE = NodeStateFact(
    cluster=ClusterCode("a"),
    node_uid=NodeUid("uid-1"),
    node="node-1",
    from_ms=HOUR_MS,
    to_ms=HOUR_MS + 3_000,
    ready=True,
    heartbeat_at_ms=HOUR_MS + 2_000,
)
SLICE_USAGE = SliceUsageFact(
    cluster=ClusterCode("a"),
    pod_uid=PodUid("pod-1"),
    container="main",
    device_uuid=DeviceUuid("GPU-1"),
    node_uid=NodeUid("uid-1"),
    hour_ms=HOUR_MS,
    epoch=EpochId("e1"),
    revision=1,
    from_ms=HOUR_MS,
    to_ms=HOUR_MS + 1_000,
    covered_ms=900,
    unknown_ms=100,
    sm_ppm_ms=900_000_000,
    sm_down_ppm_ms=0,
    mem_used_mib_ms=1_000_000,
    mem_peak_mib=1_000,
    energy_active_mj=70_000,
    blocked_ms=0,
    over_limit_ms=0,
    source="nvml",
)
UNALLOCATED_USE = UnallocatedUseFact(
    **{name: getattr(SLICE_USAGE, name) for name in SliceUsageFact.__struct_fields__},
    namespace="team",
    pod="bypass",
    tenant_key=TenantKey("tenant-a"),
)
DEVICE_USAGE = DeviceUsageFact(
    cluster=ClusterCode("a"),
    device_uuid=DeviceUuid("GPU-1"),
    node_uid=NodeUid("uid-1"),
    hour_ms=HOUR_MS,
    epoch=EpochId("e1"),
    revision=1,
    from_ms=HOUR_MS,
    to_ms=HOUR_MS + 1_000,
    covered_ms=1_000,
    busy_ppm_ms=1_000_000_000,
    energy_mj=100_000,
    energy_idle_mj=60_000,
    energy_unattributed_mj=40_000,
    sm_unattributed_ppm_ms=0,
)
GOOD = (ALLOCATION, PRESENCE, NODE_STATE, SLICE_USAGE, UNALLOCATED_USE, DEVICE_USAGE)

changed: Callable[..., Any] = msgspec.structs.replace


@pytest.mark.parametrize("fact", GOOD, ids=lambda fact: type(fact).__name__)
def test_a_plausible_fact_is_taken(fact: Fact) -> None:
    assert judge(fact, now_ms=NOW_MS) is None


REFUSED: list[tuple[str, Fact]] = [
    ("end_before_start", changed(ALLOCATION, ended_at_ms=HOUR_MS - 1, end_kind="observed")),
    ("end_before_start", changed(ALLOCATION, first_confirmed_at_ms=HOUR_MS + 3_001)),
    ("end_before_start", changed(ALLOCATION, started_at_ms=HOUR_MS - DAY_MS - 1)),
    ("end_before_start", changed(PRESENCE, to_ms=HOUR_MS - 1)),
    ("end_before_start", changed(NODE_STATE, to_ms=HOUR_MS - 1)),
    ("end_before_start", changed(SLICE_USAGE, to_ms=HOUR_MS, covered_ms=0, unknown_ms=0, sm_ppm_ms=0)),
    ("end_incomplete", changed(ALLOCATION, ended_at_ms=HOUR_MS + 5)),
    ("end_incomplete", changed(ALLOCATION, end_kind="observed")),
    ("absurd_quantity", changed(ALLOCATION, mem_mib=-1)),
    ("absurd_quantity", changed(ALLOCATION, mem_mib=16 * 1024 * 1024 + 1)),
    ("absurd_quantity", changed(ALLOCATION, mem_mib=2**70)),
    ("absurd_quantity", changed(ALLOCATION, core_percent=1_001)),
    ("absurd_quantity", changed(PRESENCE, registered_mib=-1)),
    ("absurd_quantity", changed(PRESENCE, physical_mib=16 * 1024 * 1024 + 1)),
    ("absurd_quantity", changed(PRESENCE, slots=100_001)),
    ("absurd_quantity", changed(SLICE_USAGE, revision=-1)),
    ("absurd_quantity", changed(SLICE_USAGE, covered_ms=-1)),
    ("absurd_quantity", changed(SLICE_USAGE, covered_ms=1_001)),
    ("absurd_quantity", changed(SLICE_USAGE, sm_ppm_ms=-1)),
    ("absurd_quantity", changed(SLICE_USAGE, sm_down_ppm_ms=900_000_001)),
    ("absurd_quantity", changed(SLICE_USAGE, energy_active_mj=36_000_000_001)),
    ("absurd_quantity", changed(SLICE_USAGE, blocked_ms=1_001)),
    ("absurd_quantity", changed(SLICE_USAGE, over_limit_ms=1_001)),
    ("absurd_quantity", changed(SLICE_USAGE, mem_peak_mib=16 * 1024 * 1024 + 1)),
    ("absurd_quantity", changed(DEVICE_USAGE, energy_idle_mj=100_001)),
    ("absurd_quantity", changed(DEVICE_USAGE, energy_unattributed_mj=40_001)),
    ("absurd_quantity", changed(DEVICE_USAGE, sm_unattributed_ppm_ms=1_000_000_001)),
    ("covered_too_long", changed(SLICE_USAGE, unknown_ms=101)),
    ("sm_too_large", changed(SLICE_USAGE, sm_ppm_ms=900_000_001)),
    ("sm_too_large", changed(DEVICE_USAGE, busy_ppm_ms=1_000_000_001)),
    ("unknown_source", changed(SLICE_USAGE, source="guess")),
    ("hour_unaligned", changed(SLICE_USAGE, hour_ms=HOUR_MS - 1)),
    ("outside_hour", changed(SLICE_USAGE, from_ms=HOUR_MS - 1)),
    ("outside_hour", changed(SLICE_USAGE, from_ms=HOUR_MS + 3_599_000, to_ms=HOUR_MS + 3_600_001)),
    ("too_old", changed(PRESENCE, from_ms=0, to_ms=NOW_MS - 400 * DAY_MS - 1)),
    ("in_future", changed(PRESENCE, to_ms=NOW_MS + 600_001)),
    ("in_future", changed(ALLOCATION, started_at_ms=NOW_MS + 600_001)),
    ("in_future", changed(NODE_STATE, heartbeat_at_ms=NOW_MS + 600_001)),
    ("too_long", changed(PRESENCE, from_ms=HOUR_MS - 3_661 * DAY_MS)),
    ("too_long", changed(PRESENCE, from_ms=-1, to_ms=HOUR_MS)),
    ("unknown_schema", changed(PRESENCE, schema=2)),
    ("empty", changed(ALLOCATION, pod_uid="")),
    ("empty", changed(DEVICE_USAGE, epoch="")),
    ("too_long_text", changed(ALLOCATION, pod="x" * 254)),
    ("bad_text", changed(ALLOCATION, namespace="a\x00b")),
    ("bad_text", changed(ALLOCATION, labels={"app": "a\nb"})),
    ("too_many_labels", changed(ALLOCATION, labels={f"label-{n}": "x" for n in range(65)})),
]


@pytest.mark.parametrize(("reason", "fact"), REFUSED)
def test_an_absurd_fact_is_refused_by_reason(reason: str, fact: Fact) -> None:
    refusal = judge(fact, now_ms=NOW_MS)
    assert refusal is not None
    assert refusal.reason == reason
    assert refusal.detail


def test_a_slice_bound_long_ago_is_taken_as_long_as_it_is_still_confirmed() -> None:
    assert judge(changed(ALLOCATION, bound_at_ms=HOUR_MS - 500 * DAY_MS), now_ms=NOW_MS) is None


def test_a_fact_of_400_days_back_is_taken() -> None:
    late_ms = PRESENCE.to_ms + 400 * DAY_MS
    assert judge(PRESENCE, now_ms=late_ms) is None
    assert judge(PRESENCE, now_ms=late_ms + 1) is not None


CLUSTER = Scope("a")
NODE = Scope("a", "uid-1")


def reason_of(line: bytes, scope: Scope = CLUSTER) -> str | None:
    (read,) = read_lines(line, scope, now_ms=NOW_MS)
    assert (read.fact is None) == (read.refusal is not None)
    return read.refusal.reason if read.refusal else None


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("malformed", b"nonsense"),
        ("malformed", b"[1, 2]"),
        ("malformed", b'{"type":"presence","cluster":"a"}'),
        ("malformed", b'{"type":"presence","cluster":"\xff"}'),
        ("malformed", canonical_bytes(PRESENCE).replace(b'"slots":10', b'"slots":1.5')),
        ("malformed", canonical_bytes(PRESENCE).replace(b'"healthy"', b'"ill"')),
        ("malformed", b"[" * 5_000),
        ("unknown_type", b'{"type":"rumour","schema":1}'),
        ("unknown_schema", b'{"type":"rumour","schema":2}'),
        ("unknown_schema", b'{"type":"presence","schema":7,"cluster":"a"}'),
        ("too_long_line", b'"' + b"x" * MAX_LINE_BYTES + b'"'),
    ],
)
def test_a_line_that_is_no_fact_is_refused_by_reason(reason: str, line: bytes) -> None:
    assert reason_of(line) == reason


def test_a_fact_of_another_cluster_is_refused_alone() -> None:
    other = canonical_bytes(changed(PRESENCE, cluster="b"))
    lines = read_lines(other + b"\n\n" + canonical_bytes(PRESENCE) + b"\n", CLUSTER, now_ms=NOW_MS)
    assert [(line.number, line.refusal and line.refusal.reason) for line in lines] == [
        (1, "other_cluster"),
        (3, None),
    ]


def test_an_exporter_of_a_node_speaks_of_its_node_as_node_witness_only() -> None:
    assert reason_of(canonical_bytes(ALLOCATION), NODE) is None
    assert reason_of(canonical_bytes(SLICE_USAGE), NODE) is None
    assert reason_of(canonical_bytes(changed(ALLOCATION, node_uid="uid-2")), NODE) == "other_node"
    assert reason_of(canonical_bytes(changed(DEVICE_USAGE, node_uid="uid-2")), NODE) == "other_node"
    assert reason_of(canonical_bytes(changed(ALLOCATION, witness="cluster")), NODE) == "other_witness"
    assert reason_of(canonical_bytes(NODE_STATE), NODE) == "other_witness"
