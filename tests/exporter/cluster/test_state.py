"""What the cluster role stores: read back as it was, refused when it is something else."""

from __future__ import annotations

import msgspec
import pytest

from exporter.cluster.state import ClusterState, Keeper, decode_state, encode_state
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


def test_a_state_that_was_stored_before_compression_is_read(cluster: Cluster) -> None:
    cluster.put_pods(gpu_pod("a", annotations=filtered(), node="gpu-node"))
    cluster.tick(1)
    state = cluster.core.dump()
    assert decode_state(msgspec.json.encode(state)) == state


def test_bytes_that_were_cut_or_changed_are_refused(cluster: Cluster) -> None:
    cluster.tick(1)
    stored = encode_state(cluster.core.dump())
    assert decode_state(stored[:-1]) is None
    assert decode_state(stored[:-4] + b"\0\0\0\0") is None


def test_a_quiet_cluster_is_stored_twice_a_minute_and_a_changed_counter_at_once(cluster: Cluster) -> None:
    keeper = Keeper()
    cluster.put_pods(gpu_pod("a", annotations=filtered(), node="gpu-node", bound_s=0))
    stored: list[int] = []

    def tick(at_s: int, *, is_said: bool = False) -> None:
        cluster.tick(at_s)
        if keeper.is_due(cluster.core.dump(), at_s * 1_000, is_said=is_said):
            keeper.kept(cluster.core.dump(), at_s * 1_000, is_stored=at_s != 120)
            stored.append(at_s)

    for at_s in range(100, 119):
        tick(at_s)
    tick(119, is_said=True)
    assert stored == [100, 119]
    tick(120, is_said=True)
    tick(121)
    tick(122)
    assert stored[2:] == [120, 121], "the disk was full at 120"
    for at_s in range(122, 165):
        tick(at_s)
    assert stored[4:] == [151], "confirmations grow old"
    del stored[2:4]
    cluster.put_nodes(gpu_node(lock=lock(165)), at_s=165)
    tick(165)
    assert stored[3:] == [165], "a lock was counted"
    tick(166)
    tick(167, is_said=True)
    tick(168)
    assert stored[4:] == [167], "a fact was said"
    cluster.put_pods(gpu_pod("b", annotations=filtered(at_s=169)), at_s=169)
    for at_s in range(169, 172):
        tick(at_s)
    assert stored[5:] == [169, 170, 171], "waiting time goes on each second"
    tick(100)
    assert stored[8:] == [100], "the clock was set back"


def test_a_state_with_fields_that_came_later_is_read() -> None:
    assert decode_state(b'{"format":1,"quotas":{}}') == ClusterState()
