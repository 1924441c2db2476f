"""The witness: which facts are due when, what they claim, and what they never claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from contract.facts import AllocationFact, Fact
from contract.ids import ClusterCode, NodeUid, PodUid, TenantKey
from exporter.delivery.witness import Sight, Sighting, Witness, WitnessState
from exporter.hami.holding import Grant, HeldSlice

T0 = 1_790_000_000_000
"""A moment, Unix milliseconds; every time below is seconds from it."""
INTERVAL_MS = 300_000


def at(seconds: float) -> int:
    return T0 + round(seconds * 1000)


GRANT = Grant("main", "app", "GPU-1", "NVIDIA", 4000, 30, 1, None)


def sighting(pod: str = "p1", **changes: Any) -> Sighting:
    """A slice of 4,000 MiB and 30 % held since second 0."""
    held = HeldSlice(
        grant=changes.pop("grant", GRANT),
        bound_at_ms=changes.pop("bound_at_ms", at(0)),
        started_at_ms=changes.pop("started_at_ms", None),
        ended_at_ms=changes.pop("ended_at_ms", None),
        end_reason=changes.pop("end_reason", None),
    )
    sighted = Sighting(
        held=held,
        pod_uid=PodUid(pod),
        namespace="ns",
        pod=f"name-of-{pod}",
        node_uid=NodeUid("node-uid"),
        node="n1",
        tenant_key=TenantKey("team-a"),
        model="T4",
        labels={"app": "x"},
    )
    return replace(sighted, **changes)


def witness(state: WitnessState | None = None) -> Witness:
    return Witness(ClusterCode("a"), "node", INTERVAL_MS, state)


def look(
    someone: Witness,
    now: float,
    *slices: Sighting,
    view: float | None = -1,
    is_alive: bool = False,
    vanished: dict[str, int] | None = None,
) -> list[AllocationFact]:
    """One tick; the view is as fresh as the tick unless said, and no process is seen unless said."""
    confirmed = None if view is None else at(now if view == -1 else view)
    gone = {PodUid(uid): relisted_ms for uid, relisted_ms in (vanished or {}).items()}
    alive = {(each.pod_uid, each.held.grant.container) for each in slices} if is_alive else set()
    facts: Sequence[Fact] = someone.tick(Sight(at(now), confirmed, slices, alive, vanished=gone))
    allocations = [fact for fact in facts if isinstance(fact, AllocationFact)]
    assert len(allocations) == len(facts)
    return allocations


def test_a_new_slice_is_said_at_once_and_whole() -> None:
    (fact,) = look(witness(), 10, sighting(started_at_ms=at(5)))
    assert msgspec.to_builtins(fact) == {
        "type": "allocation",
        "schema": 1,
        "cluster": "a",
        "pod_uid": "p1",
        "container": "main",
        "device_uuid": "GPU-1",
        "witness": "node",
        "node_uid": "node-uid",
        "node": "n1",
        "namespace": "ns",
        "pod": "name-of-p1",
        "vendor": "NVIDIA",
        "model": "T4",
        "mem_mib": 4000,
        "core_percent": 30,
        "container_kind": "app",
        "tenant_key": "team-a",
        "bound_at_ms": at(0),
        "started_at_ms": at(5),
        "first_confirmed_at_ms": at(10),
        "confirmed_at_ms": at(10),
        "ended_at_ms": None,
        "end_reason": None,
        "end_kind": None,
        "mig": None,
        "labels": {"app": "x"},
    }


def test_confirmations_wait_for_their_interval() -> None:
    someone = witness()
    look(someone, 10, sighting())
    assert look(someone, 11, sighting()) == []
    assert look(someone, 309, sighting()) == []
    (fact,) = look(someone, 310, sighting())
    assert (fact.first_confirmed_at_ms, fact.confirmed_at_ms) == (at(10), at(310))
    assert look(someone, 311, sighting()) == []


def test_a_start_is_said_at_once() -> None:
    someone = witness()
    look(someone, 10, sighting())
    (fact,) = look(someone, 12, sighting(started_at_ms=at(11)))
    assert (fact.started_at_ms, fact.confirmed_at_ms) == (at(11), at(12))


def test_a_restarted_container_does_not_move_the_start() -> None:
    someone = witness()
    look(someone, 10, sighting(started_at_ms=at(5)))
    assert look(someone, 20, sighting(started_at_ms=at(19))) == []


def test_an_end_is_said_at_once_and_once() -> None:
    someone = witness()
    look(someone, 10, sighting())
    ended = sighting(ended_at_ms=at(20), end_reason="Failed")
    (fact,) = look(someone, 22, ended)
    assert (fact.ended_at_ms, fact.end_reason, fact.end_kind) == (at(20), "Failed", "observed")
    assert fact.confirmed_at_ms == at(20)  # nobody held it after its end
    assert look(someone, 23, ended) == []
    assert look(someone, 2000, ended) == []
    assert look(someone, 2001) == []


def test_an_observed_end_is_never_taken_back() -> None:
    someone = witness()
    look(someone, 10, sighting())
    look(someone, 22, sighting(ended_at_ms=at(20), end_reason="Succeeded"))
    assert look(someone, 23, sighting()) == []
    assert look(someone, 24, sighting(ended_at_ms=at(23), end_reason="Deleted")) == []


def test_an_earlier_observed_end_is_said_too() -> None:
    someone = witness()
    look(someone, 22, sighting(ended_at_ms=at(20), end_reason="Deleted"))
    (fact,) = look(someone, 23, sighting(ended_at_ms=at(19), end_reason="Failed"))
    assert fact.ended_at_ms == at(19)


def test_a_slice_first_seen_after_its_end_is_one_complete_fact() -> None:
    (fact,) = look(witness(), 3600, sighting(ended_at_ms=at(60), end_reason="Succeeded", started_at_ms=at(2)))
    assert (fact.bound_at_ms, fact.started_at_ms, fact.ended_at_ms) == (at(0), at(2), at(60))
    assert (fact.first_confirmed_at_ms, fact.confirmed_at_ms) == (at(60), at(60))


def test_a_stale_view_confirms_nothing() -> None:
    someone = witness()
    look(someone, 10, sighting())
    assert look(someone, 310, sighting(), view=10) == []
    assert look(someone, 610, sighting(), view=10) == []
    (fact,) = look(someone, 910, sighting(), view=700)
    assert fact.confirmed_at_ms == at(700)


def test_a_living_process_confirms_while_the_view_is_stale() -> None:
    someone = witness()
    look(someone, 10, sighting())
    (fact,) = look(someone, 310, sighting(), view=10, is_alive=True)
    assert fact.confirmed_at_ms == at(310)
    assert look(someone, 610, sighting(), view=10) == []


def test_before_pods_and_namespaces_were_listed_nothing_is_said_and_nothing_ends() -> None:
    first = witness()
    look(first, 10, sighting())
    second = witness(first.dump())
    assert look(second, 20, view=None) == []
    (fact,) = look(second, 21, sighting())
    assert (fact.ended_at_ms, fact.confirmed_at_ms) == (None, at(21))


def test_a_vanished_pod_ends_at_its_latest_confirmation() -> None:
    someone = witness()
    look(someone, 10, sighting())
    look(someone, 100, sighting())
    (fact,) = look(someone, 130, vanished={"p1": at(130)})
    assert (fact.ended_at_ms, fact.end_kind, fact.end_reason) == (at(100), "inferred", "Vanished")
    assert fact.confirmed_at_ms == at(100)


def test_a_vanished_pod_whose_process_was_seen_later_ends_then() -> None:
    someone = witness()
    look(someone, 10, sighting())
    look(someone, 100, sighting(), view=20, is_alive=True)
    (fact,) = look(someone, 130, vanished={"p1": at(130)})
    assert (fact.ended_at_ms, fact.confirmed_at_ms) == (at(100), at(100))


def test_an_inferred_end_is_never_later_than_the_relist() -> None:
    someone = witness()
    look(someone, 10, sighting())
    look(someone, 100, sighting(), view=20, is_alive=True)
    (fact,) = look(someone, 130, vanished={"p1": at(90)})
    assert (fact.ended_at_ms, fact.confirmed_at_ms) == (at(90), at(90))


def test_a_slice_that_comes_back_after_an_inferred_end_is_open_again() -> None:
    someone = witness()
    look(someone, 10, sighting())
    look(someone, 130)
    (fact,) = look(someone, 140, sighting())
    assert (fact.ended_at_ms, fact.end_kind, fact.confirmed_at_ms) == (None, None, at(140))


def test_a_pod_that_vanished_while_the_exporter_was_away_gets_its_end() -> None:
    first = witness()
    look(first, 10, sighting("p1"), sighting("p2"))
    look(first, 50, sighting("p1"), sighting("p2"))
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(first.dump()), type=WitnessState)
    second = witness(stored)
    facts = look(second, 4000, sighting("p2"))
    by_pod = {fact.pod_uid: fact for fact in facts}
    assert (by_pod[PodUid("p1")].ended_at_ms, by_pod[PodUid("p1")].end_kind) == (at(50), "inferred")
    assert (by_pod[PodUid("p2")].ended_at_ms, by_pod[PodUid("p2")].confirmed_at_ms) == (None, at(4000))
    assert by_pod[PodUid("p2")].first_confirmed_at_ms == at(10)


def test_names_labels_and_tenant_are_those_of_the_first_confirmation() -> None:
    someone = witness()
    look(someone, 10, sighting())
    (fact,) = look(someone, 310, sighting(tenant_key=TenantKey("other"), labels={}, model="renamed"))
    assert (fact.tenant_key, fact.labels, fact.model) == ("team-a", {"app": "x"}, "T4")


def test_a_model_that_was_not_known_is_filled_in() -> None:
    someone = witness()
    look(someone, 10, sighting(model=""))
    (fact,) = look(someone, 11, sighting(model="T4"))
    assert fact.model == "T4"


def test_other_vendors_become_no_facts() -> None:
    foreign = Grant("main", "app", "MLU-1", "MLU", 4000, 0, 1, None)
    assert look(witness(), 10, sighting(grant=foreign)) == []


def test_a_clock_behind_the_api_servers_claims_no_confirmation_before_the_binding() -> None:
    (fact,) = look(witness(), 10, sighting(bound_at_ms=at(12)))
    assert (fact.bound_at_ms, fact.first_confirmed_at_ms, fact.confirmed_at_ms) == (at(12), at(12), at(12))


def test_an_end_takes_back_no_process_that_was_seen_while_the_api_server_was_away() -> None:
    someone = witness()
    look(someone, 1, sighting(), view=0, is_alive=True)
    look(someone, 2, sighting(), view=0)
    (fact,) = look(someone, 3, sighting(ended_at_ms=at(3), end_reason="Failed"), view=0)
    assert (fact.first_confirmed_at_ms, fact.confirmed_at_ms, fact.ended_at_ms) == (at(1), at(1), at(3))


ticks = st.lists(
    st.tuples(
        st.integers(1, 400),  # seconds since the tick before
        st.booleans(),  # did the API answer
        st.booleans(),  # was a process seen
        st.sampled_from(["held", "held", "held", "ended", "absent"]),
        st.booleans(),  # is the exporter restarted first
    ),
    min_size=1,
    max_size=30,
)


@given(ticks)
def test_no_fact_claims_more_than_was_seen(course: list[tuple[int, bool, bool, str, bool]]) -> None:
    someone = witness()
    now = view = proof = 0
    ended_at: int | None = None
    for seconds, api_answers, process_seen, state, restarted in course:
        if restarted:
            someone = witness(msgspec.json.decode(msgspec.json.encode(someone.dump()), type=WitnessState))
        now += seconds
        view = now if api_answers else view
        proof = now if process_seen else proof
        if state == "ended" and ended_at is None:
            ended_at = now
        slices = []
        if state != "absent":
            end: dict[str, Any] = (
                {} if ended_at is None else {"ended_at_ms": at(ended_at), "end_reason": "Failed"}
            )
            slices = [sighting(**end)]
        for fact in look(someone, now, *slices, view=view, is_alive=process_seen):
            assert fact.confirmed_at_ms <= at(max(view, proof))
            assert fact.first_confirmed_at_ms <= fact.confirmed_at_ms
            assert (fact.ended_at_ms is None) == (fact.end_kind is None)
            if fact.end_kind == "observed":
                assert ended_at is not None
                assert fact.ended_at_ms == at(ended_at)
            if fact.ended_at_ms is not None:
                assert fact.bound_at_ms <= fact.ended_at_ms
                assert fact.confirmed_at_ms <= fact.ended_at_ms


@given(ticks, st.booleans())
def test_slices_handed_in_again_as_they_were_say_what_new_ones_of_the_same_content_say(
    course: list[tuple[int, bool, bool, str, bool]], is_first_listed: bool
) -> None:
    """The same objects tick by tick are followed by a shorter way; the facts must not tell."""
    short, long = witness(), witness()
    now = view = 0
    kept: dict[str, tuple[Sighting, ...]] = {"absent": ()}
    ended_at: int | None = None
    for number, (seconds, api_answers, process_seen, state, _) in enumerate(course):
        now += seconds
        view = now if api_answers else view
        if state == "ended" and ended_at is None:
            ended_at = now
        name = "absent" if state == "absent" else "held" if ended_at is None else "ended"
        end: dict[str, Any] = {} if name != "ended" else {"ended_at_ms": at(ended_at or 0), "end_reason": "x"}
        fresh = () if name == "absent" else (sighting(**end), sighting("p2", started_at_ms=at(1)))
        same = kept.setdefault(name, fresh)
        confirmed = None if number == 0 and not is_first_listed else at(view)
        alive = frozenset((PodUid(uid), "main") for uid in ("p1", "p2")) if process_seen else frozenset()
        assert short.tick(Sight(at(now), confirmed, same, alive)) == long.tick(
            Sight(at(now), confirmed, fresh, alive)
        )
        assert short.dump() == long.dump()
