"""Parts that the delivery tests share: facts with few words, metrics that can be read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from contract.facts import DeviceUsageFact, NodeStateFact
from contract.ids import ClusterCode, DeviceUuid, EpochId, NodeUid
from exporter.delivery.metrics import DeliveryMetrics

NodeState = Callable[..., NodeStateFact]
Usage = Callable[..., DeviceUsageFact]
Count = Callable[..., float]


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> DeliveryMetrics:
    return DeliveryMetrics(registry)


@pytest.fixture
def count(registry: CollectorRegistry) -> Count:
    """The value of one of our counters, by its name without prefix and its one label."""

    def read(name: str, **labels: str) -> float:
        value = registry.get_sample_value(f"slicemeter_{name}", labels)
        assert value is not None
        return value

    return read


@pytest.fixture
def node_state() -> NodeState:
    def make(node: str, to_ms: int = 2, from_ms: int = 1) -> NodeStateFact:
        return NodeStateFact(
            cluster=ClusterCode("a"),
            node_uid=NodeUid(node),
            node=node,
            from_ms=from_ms,
            to_ms=to_ms,
            ready=True,
            heartbeat_at_ms=to_ms,
        )

    return make


@pytest.fixture
def usage() -> Usage:
    def make(revision: int, busy: int = 0, epoch: str = "e1") -> DeviceUsageFact:
        return DeviceUsageFact(
            cluster=ClusterCode("a"),
            device_uuid=DeviceUuid("GPU-1"),
            node_uid=NodeUid("n1"),
            hour_ms=0,
            epoch=EpochId(epoch),
            revision=revision,
            from_ms=0,
            to_ms=1000 * revision,
            covered_ms=1000 * revision,
            busy_ppm_ms=busy,
            energy_mj=0,
            energy_idle_mj=0,
            energy_unattributed_mj=0,
            sm_unattributed_ppm_ms=0,
        )

    return make
