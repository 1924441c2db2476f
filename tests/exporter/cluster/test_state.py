"""What the cluster role stores: read back as it was, refused when it is something else."""

from __future__ import annotations

import pytest

from exporter.cluster.state import ClusterState, decode_state, encode_state
from tests.exporter.cluster.handmade import Cluster, event, filtered, gpu_node, gpu_pod, lock


def test_the_state_is_read_back_as_it_was(cluster: Cluster) -> None:
    cluster.put_nodes(gpu_node(lock=lock(1)), gpu_node(), at_s=1)
    cluster.put_pods(
        gpu_pod("a", annotations=filtered()), gpu_pod("b", annotations=filtered(), node="gpu-node")
    )
    cluster.say(event("a", "BindingFailed", "node gpu-node is locked", 1))
    cluster.tick(1)
    state = cluster.core.dump()
    assert state.locks["uid-gpu-node"].endings
    assert state.said
    assert state.waiting
    assert state.witness.allocations
    assert decode_state(encode_state(state)) == state


@pytest.mark.parametrize("stored", [b"", b"{", b"[]", b'{"format":2}', b'{"locks":3}', b"\xff"])
def test_bytes_that_are_no_state_are_refused(stored: bytes) -> None:
    assert decode_state(stored) is None


def test_a_state_with_fields_that_came_later_is_read() -> None:
    assert decode_state(b'{"format":1,"quotas":{}}') == ClusterState()
