"""The presence of a device (`reference/ledger.md §2, §5`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from accounting.ledger.presence import HeldTime, PresenceSpan, not_ready_times, timeline
from contract.facts import DeviceState, NodeStateFact, PresenceFact
from contract.ids import ClusterCode, DeviceUuid, NodeUid

MINUTE = 60_000
HOUR = 3_600_000
GRACE = 15 * MINUTE

At = Callable[..., int]
Presence = Callable[..., PresenceFact]
State = Callable[..., NodeStateFact]


def shape(spans: list[PresenceSpan]) -> list[tuple[int, int, bool, str]]:
    return [(span.from_ms, span.to_ms, span.is_down, span.basis) for span in spans]


def test_both_witnesses_are_united_never_added(at: At, presence: Presence) -> None:
    reports = [
        presence(at("08:00"), at("10:00"), witness="node"),
        presence(at("09:00"), at("11:00"), witness="cluster"),
    ]
    spans = timeline(reports, [], [], [], as_of_ms=at("12:00"))
    assert shape(spans) == [(at("08:00"), at("11:00"), False, "reported")]


def test_node_witness_is_believed_on_the_state_of_a_moment(at: At, presence: Presence) -> None:
    reports = [
        presence(at("08:00"), at("12:00"), witness="cluster"),
        presence(at("09:00"), at("10:00"), witness="node", state="down", reason="xid_79"),
    ]
    spans = timeline(reports, [], [], [], as_of_ms=at("12:00"))
    assert shape(spans) == [
        (at("08:00"), at("09:00"), False, "reported"),
        (at("09:00"), at("10:00"), True, "reported"),
        (at("10:00"), at("12:00"), False, "reported"),
    ]
    assert spans[1].reason == "xid_79"


def test_gap_of_six_hours_is_bridged_and_flagged_a_longer_one_is_not(at: At, presence: Presence) -> None:
    reports = [
        presence(at("00:00"), at("01:00")),
        presence(at("07:00"), at("08:00")),
        presence(at("14:00:01"), at("15:00")),
    ]
    spans = timeline(reports, [], [], [], as_of_ms=at("20:00"))
    assert shape(spans) == [
        (at("00:00"), at("01:00"), False, "reported"),
        (at("01:00"), at("07:00"), False, "bridged"),
        (at("07:00"), at("08:00"), False, "reported"),
        (at("14:00:01"), at("15:00"), False, "reported"),
    ]
    assert sum(one.to_ms - one.from_ms for one in spans if one.is_confirmed) == 2 * HOUR + 3_599_000


def test_a_hold_makes_its_device_present_and_grace_confirms_nothing(at: At, presence: Presence) -> None:
    reports = [presence(at("08:00"), at("09:00"))]
    hold = HeldTime(at("08:30"), confirmed_to_ms=at("10:00"), to_ms=at("10:15"))
    spans = timeline(reports, [hold], [], [], as_of_ms=at("12:00"))
    assert shape(spans) == [
        (at("08:00"), at("09:00"), False, "reported"),
        (at("09:00"), at("10:00"), False, "held"),
        (at("10:00"), at("10:15"), False, "grace"),
    ]
    assert [span.is_confirmed for span in spans] == [True, True, False]


def test_device_that_nobody_reported_has_no_presence(at: At) -> None:
    hold = HeldTime(at("08:30"), at("10:00"), at("10:00"))
    assert timeline([], [hold], [], [], as_of_ms=at("12:00")) == []


def test_weekend_without_a_node_is_down_and_late_facts_lift_their_part(
    at: At, presence: Presence, node_state: State
) -> None:
    # Friday 2 October 22:00 last heartbeat; Monday 5 October 07:00 Ready again; the pod stays bound.
    friday, monday = at("22:00", 2), at("07:00", 5)
    states = [
        node_state(at("00:00", 2), at("22:00", 2), ready=True, heartbeat_at_ms=friday),
        node_state(at("22:01", 2), at("06:58", 5), ready=False, heartbeat_at_ms=friday),
        node_state(monday, at("09:00", 5), ready=True, heartbeat_at_ms=at("08:59", 5)),
    ]
    not_ready = not_ready_times(states, as_of_ms=at("09:00", 5), grace_ms=GRACE)
    assert not_ready == [(friday, monday)]
    assert monday - friday == 57 * HOUR
    reports = [
        presence(at("00:00", 2), at("09:00", 5), witness="cluster"),
        presence(at("00:00", 2), friday, witness="node"),
        presence(monday, at("09:00", 5), witness="node"),
    ]
    hold = HeldTime(at("00:00", 2), at("09:00", 5), at("09:00", 5))
    spans = timeline(reports, [hold], not_ready, [], as_of_ms=at("09:00", 5))
    down = [(span.from_ms, span.to_ms, span.reason) for span in spans if span.is_down]
    assert down == [(friday, monday, "node_not_ready")]
    # The outbox then shows processes that lived until Saturday 03:00.
    spans = timeline(reports, [hold], not_ready, [(friday, at("03:00", 3))], as_of_ms=at("09:00", 5))
    down = [(span.from_ms, span.to_ms, span.reason) for span in spans if span.is_down]
    assert down == [(at("03:00", 3), monday, "node_not_ready")]
    assert down[0][1] - down[0][0] == 52 * HOUR


def test_node_state_explains_a_silence_of_any_length(at: At, presence: Presence, node_state: State) -> None:
    states = [node_state(at("02:00"), at("20:00"), ready=False, heartbeat_at_ms=at("01:00"))]
    not_ready = not_ready_times(states, as_of_ms=at("20:00"), grace_ms=GRACE)
    spans = timeline([presence(at("00:00"), at("01:00"))], [], not_ready, [], as_of_ms=at("20:00"))
    assert shape(spans) == [
        (at("00:00"), at("01:00"), False, "reported"),
        (at("01:00"), at("20:00"), True, "node_state"),
    ]


def test_silent_exporter_on_a_ready_node_is_not_down(at: At, presence: Presence, node_state: State) -> None:
    states = [node_state(at("00:00"), at("12:00"), ready=True, heartbeat_at_ms=at("11:59"))]
    not_ready = not_ready_times(states, as_of_ms=at("12:00"), grace_ms=GRACE)
    reports = [
        presence(at("00:00"), at("03:00"), witness="node"),
        presence(at("00:00"), at("12:00"), witness="cluster"),
    ]
    spans = timeline(reports, [], not_ready, [], as_of_ms=at("12:00"))
    assert shape(spans) == [(at("00:00"), at("12:00"), False, "reported")]


def test_not_ready_goes_on_for_the_grace_while_nobody_says_otherwise(at: At, node_state: State) -> None:
    states = [node_state(at("02:00"), at("02:10"), ready=False, heartbeat_at_ms=at("01:58"))]
    assert not_ready_times(states, as_of_ms=at("02:12"), grace_ms=GRACE) == [(at("01:58"), at("02:12"))]
    assert not_ready_times(states, as_of_ms=at("09:00"), grace_ms=GRACE) == [(at("01:58"), at("02:25"))]


def test_size_is_known_from_a_neighbouring_report(at: At, presence: Presence) -> None:
    reports = [
        presence(at("08:00"), at("09:00"), registered_mib=15_360),
        presence(at("09:00"), at("10:00"), registered_mib=0, state="down", reason="nvml_lost"),
    ]
    spans = timeline(reports, [], [], [], as_of_ms=at("12:00"))
    assert [span.registered_mib for span in spans] == [15_360, 15_360]
    assert [span.is_down for span in spans] == [False, True]


instants = st.integers(0, 60)


@st.composite
def reports(draw: st.DrawFn) -> PresenceFact:
    start = draw(instants)
    states: list[DeviceState] = ["healthy", "down"]
    return PresenceFact(
        cluster=ClusterCode("c"),
        node_uid=NodeUid("n"),
        node="n",
        device_uuid=DeviceUuid("GPU-1"),
        witness=draw(st.sampled_from(["node", "cluster"])),
        from_ms=start * HOUR,
        to_ms=(start + draw(st.integers(0, 20))) * HOUR,
        state=draw(st.sampled_from(states)),
        model="T4",
        vendor="NVIDIA",
        registered_mib=draw(st.sampled_from([10, 20])),
        slots=10,
    )


@given(st.lists(reports(), max_size=6), instants, st.data())
def test_timeline_is_sorted_disjoint_and_knows_no_order(
    facts: list[PresenceFact], as_of: int, data: st.DataObject
) -> None:
    spans = timeline(facts, [], [], [], as_of_ms=as_of * HOUR)
    assert all(span.from_ms < span.to_ms <= as_of * HOUR for span in spans)
    assert all(a.to_ms <= b.from_ms for a, b in itertools.pairwise(spans))
    doubled = data.draw(st.permutations(facts + facts[:2]))
    assert timeline(doubled, [], [], [], as_of_ms=as_of * HOUR) == spans
    covered = {hour for fact in facts for hour in range(fact.from_ms // HOUR, min(fact.to_ms // HOUR, as_of))}
    reported = {
        hour
        for span in spans
        if span.basis == "reported"
        for hour in range(span.from_ms // HOUR, span.to_ms // HOUR)
    }
    assert reported == covered
