"""A card's time, divided (`reference/ledger.md §2`)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from accounting.ledger.columns import Hold, PolicySpan
from accounting.ledger.presence import PresenceSpan
from accounting.ledger.shares import Grant, card_units, divide, share_units
from accounting.ledger.sweep import Segment, sweep
from contract.ids import ClusterCode, DeviceUuid, PodUid, SliceKey

MINUTE = 60_000
HOUR = 3_600_000
CARD_MINUTE = 60_000_000_000
CAPACITY = 10_000

At = Callable[..., int]


def key(pod: str) -> SliceKey:
    return SliceKey(ClusterCode("c"), PodUid(pod), "main", DeviceUuid("GPU-1"))


def hold(pod: str, from_ms: int, to_ms: int, share_percent: int, **fields: object) -> Hold:
    grant = Grant(CAPACITY * share_percent // 100, 0)
    return Hold(key(pod), from_ms, to_ms, grant, **fields)  # type: ignore[arg-type]


def present(from_ms: int, to_ms: int, *, is_down: bool = False) -> PresenceSpan:
    return PresenceSpan(from_ms, to_ms, is_down, None, "T4", CAPACITY, "reported")


def charged(segments: list[Segment]) -> Counter[str]:
    total: Counter[str] = Counter()
    for segment in segments:
        for part in segment.parts:
            total[part.slice_key.pod_uid] += part.charged_ppm_ms
    return total


def own(segments: list[Segment]) -> Counter[str]:
    total: Counter[str] = Counter()
    for segment in segments:
        for part in segment.parts:
            total[part.slice_key.pod_uid] += part.own_ppm_ms
    return total


def test_segments_charge_what_whole_hours_would_sell_twice(at: At) -> None:
    holds = [hold("X", at("09:00"), at("09:40"), 50), hold("Y", at("09:30"), at("10:00"), 75)]
    segments = sweep([present(at("09:00"), at("10:00"))], holds, (at("09:00"), at("10:00")))
    assert [(s.from_ms, s.to_ms) for s in segments] == [
        (at("09:00"), at("09:30")),
        (at("09:30"), at("09:40")),
        (at("09:40"), at("10:00")),
    ]
    assert charged(segments) == {"X": 19 * CARD_MINUTE, "Y": 21 * CARD_MINUTE}
    assert [s.idle_ppm_ms for s in segments] == [15 * CARD_MINUTE, 0, 5 * CARD_MINUTE]
    assert own(segments) == {"X": 20 * CARD_MINUTE, "Y": 22 * CARD_MINUTE + CARD_MINUTE // 2}


def test_down_quarter_of_an_hour_is_neither_idle_nor_charged(at: At) -> None:
    spans = [
        present(at("09:00"), at("09:30")),
        present(at("09:30"), at("09:45"), is_down=True),
        present(at("09:45"), at("10:00")),
    ]
    segments = sweep(spans, [hold("X", at("08:00"), at("11:00"), 25)], (at("09:00"), at("10:00")))
    assert charged(segments) == {"X": 11 * CARD_MINUTE + CARD_MINUTE // 4}
    assert sum(s.idle_ppm_ms for s in segments) == 33 * CARD_MINUTE + CARD_MINUTE * 3 // 4
    assert sum(s.down_ppm_ms for s in segments) == 15 * CARD_MINUTE


def test_slice_that_worked_while_down_is_charged_and_flagged_its_idle_neighbour_is_not(at: At) -> None:
    spans = [
        present(at("09:00"), at("09:30")),
        present(at("09:30"), at("09:45"), is_down=True),
        present(at("09:45"), at("10:00")),
    ]
    worked = hold("X", at("08:00"), at("11:00"), 25, down_use=((at("09:00"), at("10:00")),))
    segments = sweep(spans, [worked], (at("09:00"), at("10:00")))
    assert charged(segments) == {"X": 15 * CARD_MINUTE}
    degraded = sum(p.charged_ppm_ms for s in segments for p in s.parts if p.is_degraded)
    assert degraded == 3 * CARD_MINUTE + CARD_MINUTE * 3 // 4
    assert sum(s.down_ppm_ms for s in segments) == 11 * CARD_MINUTE + CARD_MINUTE // 4
    assert sum(s.idle_ppm_ms for s in segments) == 33 * CARD_MINUTE + CARD_MINUTE * 3 // 4
    neighbour = hold("Y", at("08:00"), at("11:00"), 50)
    segments = sweep(spans, [worked, neighbour], (at("09:30"), at("09:45")))
    assert charged(segments) == {"X": 3 * CARD_MINUTE + CARD_MINUTE * 3 // 4}


def test_slices_that_follow_each_other_are_not_normalised_against_each_other(at: At) -> None:
    holds = [hold("X", at("09:00"), at("09:30"), 100), hold("Y", at("09:30"), at("10:00"), 100)]
    segments = sweep([present(at("09:00"), at("10:00"))], holds, (at("09:00"), at("10:00")))
    assert charged(segments) == {"X": 30 * CARD_MINUTE, "Y": 30 * CARD_MINUTE}
    assert own(segments) == charged(segments)


def test_a_cut_splits_the_segment_at_its_instant(at: At) -> None:
    segments = sweep(
        [present(at("11:00"), at("14:00"))],
        [hold("X", at("11:00"), at("14:00"), 50)],
        (at("11:00"), at("14:00")),
        cuts=[at("11:45")],
    )
    assert [s.from_ms for s in segments] == [at("11:00"), at("11:45"), at("12:00"), at("13:00")]


def test_a_policy_holds_from_its_instant(at: At) -> None:
    spans = [PolicySpan(at("09:30"), at("10:00"), "whole_card")]
    segments = sweep(
        [present(at("09:00"), at("10:00"))],
        [hold("X", at("09:00"), at("10:00"), 50)],
        (at("09:00"), at("10:00")),
        policies=spans,
    )
    assert [s.charged_ppm_ms for s in segments] == [15 * CARD_MINUTE, 30 * CARD_MINUTE]


def test_without_presence_nothing_is_charged_and_nothing_idle(at: At) -> None:
    assert sweep([], [hold("X", at("09:00"), at("10:00"), 50)], (at("09:00"), at("10:00"))) == []


instants = st.integers(0, 6 * 60)


@st.composite
def intervals(draw: st.DrawFn) -> tuple[int, int]:
    start = draw(instants)
    return start * MINUTE, (start + draw(st.integers(1, 120))) * MINUTE


@st.composite
def holds(draw: st.DrawFn) -> Hold:
    start, end = draw(intervals())
    grant = Grant(draw(st.integers(0, 12_000)), draw(st.integers(0, 100)))
    return Hold(key(draw(st.text("abc", min_size=3, max_size=3))), start, end, grant, ((start, end),))


@st.composite
def timelines(draw: st.DrawFn) -> list[PresenceSpan]:
    edges = sorted(draw(st.sets(instants, min_size=2, max_size=6)))
    # The last is so large that products do not fit 64 bits.
    capacity = draw(st.sampled_from([1, 7_000, 10_000, 2**36]))
    return [
        PresenceSpan(a * MINUTE, b * MINUTE, draw(st.booleans()), None, "T4", capacity, "reported")
        for a, b in itertools.pairwise(edges)
        if draw(st.booleans())
    ]


DAY = (0, 12 * HOUR)
cards = st.lists(holds(), max_size=6, unique_by=lambda held: held.slice_key)


@given(
    timelines(),
    cards,
    st.lists(instants, max_size=3),
)
def test_charged_and_idle_and_down_are_present_exactly(
    spans: list[PresenceSpan], held: list[Hold], cuts: list[int]
) -> None:
    segments = sweep(spans, held, DAY, cuts=[cut * MINUTE for cut in cuts])
    for segment in segments:
        assert segment.charged_ppm_ms + segment.idle_ppm_ms + segment.down_ppm_ms == segment.present_ppm_ms
        assert (
            min([segment.idle_ppm_ms, segment.down_ppm_ms, *(p.charged_ppm_ms for p in segment.parts)]) >= 0
        )
        assert all(part.charged_ppm_ms <= part.own_ppm_ms for part in segment.parts)
        assert segment.from_ms // HOUR == (segment.to_ms - 1) // HOUR
    assert sum(s.present_ppm_ms for s in segments) == 1_000_000 * sum(s.to_ms - s.from_ms for s in spans)


@given(
    timelines(),
    cards,
    st.lists(instants, max_size=2),
    st.integers(1, 11),
    st.data(),
)
def test_any_window_on_the_cuts_gives_the_same_segments(
    spans: list[PresenceSpan], held: list[Hold], cuts: list[int], hour: int, data: st.DataObject
) -> None:
    at_ms = [cut * MINUTE for cut in cuts]
    whole = sweep(spans, held, DAY, cuts=at_ms)
    again = data.draw(st.permutations(held))
    parts = sweep(spans, again, (0, hour * HOUR), cuts=at_ms) + sweep(
        spans, again, (hour * HOUR, DAY[1]), cuts=at_ms
    )
    assert parts == whole


@given(timelines(), cards)
def test_segments_divided_at_once_are_what_each_is_by_itself(
    spans: list[PresenceSpan], held: list[Hold]
) -> None:
    for segment in sweep(spans, held, DAY):
        if segment.is_down:
            continue
        size, model = segment.registered_mib, segment.model
        units = [share_units(hold.grant, size, model) for hold in segment.held]
        alone = divide(segment.to_ms - segment.from_ms, units, card_units(size, model))
        assert (list(segment.charged), list(segment.own), segment.idle_ppm_ms) == (
            list(alone.charged),
            list(alone.own),
            alone.idle,
        )
