"""Which span each record stands for: repeats, early reads, idle time, jitter, clocks set back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.ids import DeviceUuid
from exporter.node.metering.timeline import Timeline
from exporter.nvidia.source import BusySample, DeviceReading, UtilizationSample

START_S = 1_800_000_000
PPM_MS_PER_PERCENT_SECOND = 10_000_000  # 1 % of the card for 1 s = 10,000 ppm × 1,000 ms


def _us(second: float) -> int:
    return round((START_S + second) * 1_000_000)


def _reading(
    records: Sequence[tuple[int, float, int]] = (), busy: Sequence[tuple[float, int]] | None = None
) -> DeviceReading:
    return DeviceReading(
        uuid=DeviceUuid("GPU-a"),
        index=0,
        model="NVIDIA T4",
        utilization=tuple(UtilizationSample(pid, _us(at), percent) for pid, at, percent in records),
        busy=None if busy is None else tuple(BusySample(_us(at), percent) for at, percent in busy),
    )


def _begun(at: float = 0) -> Timeline:
    timeline = Timeline()
    assert timeline.advance(_reading([(7, at, 50)]), 1_000, _us(at)) is None
    return timeline


def test_a_record_is_valid_from_the_stamp_before_to_its_own() -> None:
    window = _begun().advance(_reading([(7, 1.0, 30)]), 1_000, _us(1))
    assert window is not None
    assert window.span_ms == 1_000
    assert window.process_ppm_ms == {7: 30 * PPM_MS_PER_PERCENT_SECOND}
    assert window.process_percent == {7: 30}


def test_several_records_of_one_read_each_stand_for_their_own_span() -> None:
    window = _begun().advance(_reading([(7, 0.5, 80), (7, 2.0, 20)]), 2_000, _us(2))
    assert window is not None
    # 80 % for half a second and 20 % for one and a half.
    assert window.process_ppm_ms == {7: (40 + 30) * PPM_MS_PER_PERCENT_SECOND}
    assert window.process_percent == {7: 20}


def test_a_record_that_comes_twice_counts_once() -> None:
    timeline = _begun()
    first = timeline.advance(_reading([(7, 1.0, 30)]), 1_000, _us(1))
    second = timeline.advance(_reading([(7, 1.0, 30), (7, 2.0, 10)]), 1_000, _us(2))
    assert first is not None
    assert second is not None
    assert second.process_ppm_ms == {7: 10 * PPM_MS_PER_PERCENT_SECOND}


def test_a_read_sooner_than_the_sample_period_changes_nothing() -> None:
    timeline = _begun()
    assert timeline.advance(_reading(), 200, _us(0.2)) is None
    assert timeline.advance(_reading(), 200, _us(0.4)) is None
    window = timeline.advance(_reading([(7, 1.0, 30)]), 600, _us(1))
    assert window is not None
    assert window.span_ms == 1_000
    assert window.process_ppm_ms == {7: 30 * PPM_MS_PER_PERCENT_SECOND}


def test_nothing_over_a_healthy_call_is_idle_time() -> None:
    window = _begun().advance(_reading(), 1_000, _us(1))
    assert window is not None
    assert (window.span_ms, window.process_ppm_ms, window.is_known) == (1_000, {}, True)


def test_time_given_out_as_idle_is_not_claimed_again_by_the_next_record() -> None:
    timeline = _begun()
    assert timeline.advance(_reading(), 1_000, _us(1)) is not None
    window = timeline.advance(_reading([(7, 2.0, 84)]), 1_000, _us(2))
    assert window is not None
    # Its span by the stamps is two seconds; one of them was idle already.
    assert window.process_ppm_ms == {7: 84 * PPM_MS_PER_PERCENT_SECOND}


def test_a_card_with_samples_of_its_own_waits_for_them_before_it_counts_as_idle() -> None:
    timeline = _begun()
    assert timeline.advance(_reading(busy=[(1, 0)]), 1_000, _us(1)) is not None
    assert timeline.advance(_reading(busy=[]), 1_000, _us(1.99)) is None
    window = timeline.advance(_reading([(7, 3, 84)], busy=[(2, 0), (3, 84)]), 1_020, _us(3.01))
    assert window is not None
    assert window.span_ms == 2_020
    # One second idle, one at 84 %: the process cannot have used more than the card was busy.
    assert window.busy_ppm_ms == 84 * PPM_MS_PER_PERCENT_SECOND
    assert window.busy_percent == 84


def test_a_dry_sample_buffer_counts_as_idle_after_three_periods() -> None:
    timeline = _begun()
    assert timeline.advance(_reading(busy=[]), 2_999, _us(2.999)) is None
    window = timeline.advance(_reading(busy=[]), 1, _us(3))
    assert window is not None
    assert (window.span_ms, window.busy_ppm_ms) == (3_000, 0)


def test_a_process_that_was_idle_for_a_second_begins_anew_after_it() -> None:
    timeline = _begun()
    timeline.advance(_reading([(7, 1, 82)], busy=[(1, 82), (2, 0)]), 2_000, _us(2))
    window = timeline.advance(_reading([(7, 3, 84)], busy=[(3, 84)]), 1_000, _us(3))
    assert window is not None
    assert window.process_ppm_ms == {7: 84 * PPM_MS_PER_PERCENT_SECOND}
    assert window.busy_ppm_ms == 84 * PPM_MS_PER_PERCENT_SECOND


def test_records_of_two_processes_with_skewed_stamps_both_count_in_full() -> None:
    timeline = Timeline()
    timeline.advance(_reading([(7, 0, 1), (8, 0.1, 1)]), 1_000, _us(0.1))
    timeline.advance(_reading([(7, 1, 40), (8, 1.1, 20)]), 1_000, _us(1.1))
    window = timeline.advance(_reading([(7, 2, 40), (8, 2.1, 20)]), 1_000, _us(2.1))
    assert window is not None
    assert window.process_ppm_ms == {7: 40 * PPM_MS_PER_PERCENT_SECOND, 8: 20 * PPM_MS_PER_PERCENT_SECOND}


def test_a_span_by_the_stamps_is_clipped_to_the_time_that_passed() -> None:
    window = _begun().advance(_reading([(7, 600, 50)]), 1_000, _us(1))
    assert window is not None
    assert window.process_ppm_ms == {7: 50 * PPM_MS_PER_PERCENT_SECOND}


def test_stamps_of_a_clock_set_back_are_a_new_anchor_and_nothing_is_added() -> None:
    timeline = _begun(at=100)
    window = timeline.advance(_reading([(7, 1, 90)]), 1_000, _us(1))
    assert window is not None
    assert not window.is_known
    assert window.process_ppm_ms == {}
    after = timeline.advance(_reading([(7, 2, 90)]), 1_000, _us(2))
    assert after is not None
    assert after.process_ppm_ms == {7: 90 * PPM_MS_PER_PERCENT_SECOND}


HELD_TO_30_PERCENT = (32, 82, 0, 84, 0, 60, 0, 57, 11, 25, 0, 9)


@given(
    jitter=st.lists(st.integers(-250, 250), min_size=60, max_size=60),
    phase_ms=st.integers(0, 999),
)
def test_no_sample_is_lost_or_counted_twice_however_late_a_tick_comes(
    jitter: list[int], phase_ms: int
) -> None:
    timeline = Timeline()
    begin_ms = phase_ms + 1_000
    timeline.advance(_reading([(7, begin_ms // 1_000, 32)], busy=[(begin_ms // 1_000, 32)]), 0, 0)
    before_ms, used, true, carry = begin_ms, 0, 0, 0
    # The stamp of the first read lies before it; the time since is the most that can be clipped.
    timeline._carry_us = carry = (begin_ms % 1_000) * 1_000
    for number, late_ms in enumerate(jitter, 1):
        now_ms = begin_ms + number * 1_000 + late_ms
        seconds = range(before_ms // 1_000 + 1, now_ms // 1_000 + 1)
        shares = {second: HELD_TO_30_PERCENT[second % 12] for second in seconds}
        records = [(7, second, share) for second, share in shares.items() if share]
        window = timeline.advance(
            _reading(records, busy=list(shares.items())), now_ms - before_ms, _us(now_ms / 1_000)
        )
        true += sum(shares.values()) * PPM_MS_PER_PERCENT_SECOND
        if window is not None:
            assert window.busy_ppm_ms is not None
            used += min(sum(window.process_ppm_ms.values()), window.busy_ppm_ms)
        before_ms = now_ms
    assert used <= true
    assert true - used <= 100 * PPM_MS_PER_PERCENT_SECOND * max(0, 250 - carry // 1_000) // 1_000


def test_a_source_without_any_stamp_yet_is_anchored_at_now() -> None:
    timeline = Timeline()
    assert timeline.advance(_reading(), 1_000, _us(0)) is None
    window = timeline.advance(_reading([(7, 1, 10)]), 1_000, _us(1))
    assert window is not None
    assert window.process_ppm_ms == {7: 10 * PPM_MS_PER_PERCENT_SECOND}


@pytest.mark.parametrize("count", [0, 1, 5])
def test_time_left_open_is_handed_back_when_a_timeline_begins_anew(count: int) -> None:
    timeline = _begun()
    for number in range(count):
        timeline.advance(_reading(), 100, _us(number / 10))
    assert timeline.restart(None, _us(1)) == 100 * count
