"""Facts for ledger tests: only what a test is about is written in the test."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from contract.facts import AllocationFact, NodeStateFact, PresenceFact, SliceUsageFact
from contract.ids import ClusterCode, DeviceUuid, EpochId, NodeUid, PodUid, TenantKey


@pytest.fixture(scope="session")
def at() -> Callable[..., int]:
    """Unix milliseconds of a time of day on 1 October 2026, UTC, or of another day of that month."""

    def when(time: str, day: int = 1) -> int:
        parts = [int(part) for part in time.split(":")]
        hour, minute, second = (*parts, 0, 0)[:3]
        return round(datetime(2026, 10, day, hour, minute, second, tzinfo=UTC).timestamp()) * 1000

    return when


@pytest.fixture(scope="session")
def allocation() -> Callable[..., AllocationFact]:
    def make(**fields: Any) -> AllocationFact:
        known: dict[str, Any] = {
            "cluster": ClusterCode("c"),
            "pod_uid": PodUid("pod-1"),
            "container": "main",
            "device_uuid": DeviceUuid("GPU-1"),
            "witness": "cluster",
            "node_uid": NodeUid("node-uid-1"),
            "node": "node-1",
            "namespace": "team",
            "pod": "train",
            "vendor": "NVIDIA",
            "model": "Tesla T4",
            "mem_mib": 4_000,
            "core_percent": 30,
            "container_kind": "app",
            "tenant_key": TenantKey("team"),
            "bound_at_ms": 0,
            "first_confirmed_at_ms": 0,
            "confirmed_at_ms": 0,
        }
        return AllocationFact(**(known | fields))

    return make


@pytest.fixture(scope="session")
def presence() -> Callable[..., PresenceFact]:
    def make(from_ms: int, to_ms: int, **fields: Any) -> PresenceFact:
        known: dict[str, Any] = {
            "cluster": ClusterCode("c"),
            "node_uid": NodeUid("node-uid-1"),
            "node": "node-1",
            "device_uuid": DeviceUuid("GPU-1"),
            "witness": "cluster",
            "state": "healthy",
            "model": "Tesla T4",
            "vendor": "NVIDIA",
            "registered_mib": 15_360,
            "slots": 10,
        }
        return PresenceFact(from_ms=from_ms, to_ms=to_ms, **(known | fields))

    return make


@pytest.fixture(scope="session")
def node_state() -> Callable[..., NodeStateFact]:
    def make(from_ms: int, to_ms: int, *, ready: bool, heartbeat_at_ms: int) -> NodeStateFact:
        return NodeStateFact(
            cluster=ClusterCode("c"),
            node_uid=NodeUid("node-uid-1"),
            node="node-1",
            from_ms=from_ms,
            to_ms=to_ms,
            ready=ready,
            heartbeat_at_ms=heartbeat_at_ms,
        )

    return make


@pytest.fixture(scope="session")
def slice_usage() -> Callable[..., SliceUsageFact]:
    def make(**fields: Any) -> SliceUsageFact:
        known: dict[str, Any] = {
            "cluster": ClusterCode("c"),
            "pod_uid": PodUid("pod-1"),
            "container": "main",
            "device_uuid": DeviceUuid("GPU-1"),
            "node_uid": NodeUid("node-uid-1"),
            "hour_ms": 0,
            "epoch": EpochId("e1"),
            "revision": 1,
            "from_ms": 0,
            "to_ms": 3_600_000,
            "covered_ms": 0,
            "unknown_ms": 0,
            "sm_ppm_ms": 0,
            "sm_down_ppm_ms": 0,
            "mem_used_mib_ms": 0,
            "mem_peak_mib": 0,
            "energy_active_mj": 0,
            "blocked_ms": 0,
            "over_limit_ms": 0,
            "source": "nvml",
        }
        return SliceUsageFact(**(known | fields))

    return make
