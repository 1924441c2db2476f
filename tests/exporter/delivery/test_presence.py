"""Devices and Nodes: a fact for each state and size, growing with confirmations, open where nobody looked."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from contract.facts import Fact, NodeStateFact, PresenceFact
from contract.ids import ClusterCode, DeviceUuid, NodeUid
from exporter.delivery.presence import PresentDevice, SeenNode
from exporter.delivery.witness import Sight, Witness, WitnessState

T0 = 1_790_000_000_000
INTERVAL_MS = 300_000


def at(seconds: float) -> int:
    return T0 + round(seconds * 1000)


def device(confirmed: float, **changes: Any) -> PresentDevice:
    seen = PresentDevice(
        device_uuid=DeviceUuid("GPU-1"),
        node_uid=NodeUid("node-uid"),
        node="n1",
        model="T4",
        vendor="NVIDIA",
        registered_mib=15_360,
        slots=10,
        confirmed_at_ms=at(confirmed),
        physical_mib=15_360,
    )
    return replace(seen, **changes)


def node(confirmed: float, *, is_ready: bool = True, **changes: Any) -> SeenNode:
    seen = SeenNode(NodeUid("node-uid"), "n1", is_ready, at(confirmed), at(confirmed))
    return replace(seen, **changes)


def witness(state: WitnessState | None = None) -> Witness:
    return Witness(ClusterCode("a"), "cluster", INTERVAL_MS, state)


def look(someone: Witness, now: float, *things: PresentDevice | SeenNode) -> list[Fact]:
    devices = [thing for thing in things if isinstance(thing, PresentDevice)]
    nodes = [thing for thing in things if isinstance(thing, SeenNode)]
    return someone.tick(Sight(at(now), None, devices=devices, nodes=nodes))


def spans(facts: list[Fact]) -> list[tuple[float, float, object]]:
    """From, to (seconds) and state of each fact."""
    found: list[tuple[float, float, object]] = []
    for fact in facts:
        assert isinstance(fact, (PresenceFact, NodeStateFact))
        state = fact.state if isinstance(fact, PresenceFact) else fact.ready
        found.append(((fact.from_ms - T0) / 1000, (fact.to_ms - T0) / 1000, state))
    return found


def test_a_device_is_said_at_once_and_whole() -> None:
    (fact,) = look(witness(), 1, device(1))
    assert msgspec.to_builtins(fact) == {
        "type": "presence",
        "schema": 1,
        "cluster": "a",
        "node_uid": "node-uid",
        "node": "n1",
        "device_uuid": "GPU-1",
        "witness": "cluster",
        "from_ms": at(1),
        "to_ms": at(1),
        "state": "healthy",
        "model": "T4",
        "vendor": "NVIDIA",
        "registered_mib": 15_360,
        "slots": 10,
        "physical_mib": 15_360,
        "reason": None,
    }


def test_presence_grows_every_interval() -> None:
    someone = witness()
    look(someone, 1, device(1))
    assert look(someone, 2, device(2)) == []
    assert spans(look(someone, 301, device(301))) == [(1, 301, "healthy")]
    assert spans(look(someone, 601, device(600))) == [(1, 600, "healthy")]


def test_a_device_that_nobody_confirmed_again_is_not_said_again() -> None:
    someone = witness()
    look(someone, 1, device(1))
    assert look(someone, 301, device(1)) == []


def test_a_change_of_state_ends_one_fact_and_begins_the_next_at_once() -> None:
    someone = witness()
    look(someone, 1, device(1))
    look(someone, 100, device(100))
    facts = look(someone, 101, device(101, state="down", reason="xid_79"))
    assert spans(facts) == [(1, 101, "healthy"), (101, 101, "down")]
    assert [fact.reason for fact in facts if isinstance(fact, PresenceFact)] == [None, "xid_79"]


def test_a_change_of_size_begins_a_new_fact_too() -> None:
    someone = witness()
    look(someone, 1, device(1))
    facts = look(someone, 5, device(5, registered_mib=30_720))
    assert spans(facts) == [(1, 5, "healthy"), (5, 5, "healthy")]
    assert [fact.registered_mib for fact in facts if isinstance(fact, PresenceFact)] == [15_360, 30_720]


def test_a_device_that_is_gone_gets_its_last_confirmation_said() -> None:
    someone = witness()
    look(someone, 1, device(1))
    look(someone, 50, device(50))
    assert spans(look(someone, 51)) == [(1, 50, "healthy")]
    assert look(someone, 400) == []


def test_a_silence_of_more_than_two_intervals_is_left_open() -> None:
    someone = witness()
    look(someone, 1, device(1))
    look(someone, 100, device(100))
    assert spans(look(someone, 701, device(701))) == [(1, 100, "healthy"), (701, 701, "healthy")]


def test_a_short_absence_of_the_exporter_goes_on_in_the_same_fact() -> None:
    first = witness()
    look(first, 1, device(1))
    look(first, 100, device(100))
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(first.dump()), type=WitnessState)
    assert spans(look(witness(stored), 300, device(300))) == [(1, 300, "healthy")]


def test_a_long_absence_of_the_exporter_is_left_open() -> None:
    first = witness()
    look(first, 1, device(1))
    look(first, 100, device(100))
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(first.dump()), type=WitnessState)
    facts = look(witness(stored), 9000, device(9000))
    assert spans(facts) == [(1, 100, "healthy"), (9000, 9000, "healthy")]


def test_equal_uuids_on_two_nodes_are_two_devices() -> None:
    facts = look(witness(), 1, device(1), device(1, node_uid=NodeUid("other")))
    assert {fact.node_uid for fact in facts if isinstance(fact, PresenceFact)} == {"node-uid", "other"}


def test_a_node_is_said_with_its_heartbeat() -> None:
    (fact,) = look(witness(), 60, node(60, since_ms=at(10), heartbeat_at_ms=at(55)))
    assert msgspec.to_builtins(fact) == {
        "type": "node_state",
        "schema": 1,
        "cluster": "a",
        "node_uid": "node-uid",
        "node": "n1",
        "from_ms": at(10),
        "to_ms": at(60),
        "ready": True,
        "heartbeat_at_ms": at(55),
    }


def test_a_node_that_has_been_ready_for_long_is_said_from_now_on() -> None:
    assert spans(look(witness(), 60, node(60, since_ms=at(60 - 86_401)))) == [(60, 60, True)]


def test_a_node_that_stops_being_ready_changes_at_its_own_time() -> None:
    someone = witness()
    look(someone, 1, node(1))
    look(someone, 50, node(50))
    facts = look(someone, 100, node(100, is_ready=False, since_ms=at(90), heartbeat_at_ms=at(45)))
    assert spans(facts) == [(1, 90, True), (90, 100, False)]
    last = facts[-1]
    assert isinstance(last, NodeStateFact)
    assert last.heartbeat_at_ms == at(45)


def test_the_heartbeat_moves_on_with_confirmations() -> None:
    someone = witness()
    look(someone, 1, node(1))
    (fact,) = look(someone, 301, node(301, heartbeat_at_ms=at(299)))
    assert isinstance(fact, NodeStateFact)
    assert (fact.to_ms, fact.heartbeat_at_ms) == (at(301), at(299))


courses = st.lists(
    st.tuples(
        st.integers(0, 900),  # seconds since the look before
        st.sampled_from(["healthy", "healthy", "down", "absent", "stale"]),
        st.booleans(),  # is the exporter restarted first
    ),
    min_size=1,
    max_size=30,
)


@given(courses)
def test_facts_of_one_device_never_overlap_nor_claim_time_that_nobody_saw(
    course: list[tuple[int, str, bool]],
) -> None:
    someone = witness()
    now = confirmed = 0
    newest: dict[int, PresenceFact] = {}
    for seconds, state, restarted in course:
        if restarted:
            someone = witness(msgspec.json.decode(msgspec.json.encode(someone.dump()), type=WitnessState))
        now += seconds
        if state != "stale":
            confirmed = now
        health = "down" if state == "down" else "healthy"
        seen = [] if state == "absent" else [device(confirmed, state=health)]
        for fact in look(someone, now, *seen):
            assert isinstance(fact, PresenceFact)
            assert fact.to_ms <= at(confirmed)
            before = newest.get(fact.from_ms)
            assert before is None or before.to_ms <= fact.to_ms
            newest[fact.from_ms] = fact
    ordered = [newest[from_ms] for from_ms in sorted(newest)]
    for earlier, later in itertools.pairwise(ordered):
        assert earlier.to_ms <= later.from_ms
