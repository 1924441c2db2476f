"""Placing ticks on the wall clock: no overlap, exact lengths, gaps and steps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from exporter.node.clock import Instant, place, system_clock


def test_an_interval_is_as_long_as_the_boot_clock_says() -> None:
    interval = place(Instant(1_000, 0, 0), 1_000, Instant(2_003, 1_000, 1_000), gap_limit_ms=10_000)
    assert (interval.from_ms, interval.to_ms, interval.elapsed_ms) == (1_003, 2_003, 1_000)
    assert not interval.is_gap


def test_a_wall_clock_a_little_behind_does_not_make_intervals_overlap() -> None:
    interval = place(Instant(5_000, 0, 0), 5_000, Instant(5_400, 1_000, 1_000), gap_limit_ms=10_000)
    assert (interval.from_ms, interval.to_ms) == (5_000, 6_000)
    assert not interval.stepped_back


def test_a_wall_clock_set_back_is_told() -> None:
    now = Instant(100_000, 1_000, 1_000)
    interval = place(Instant(3_700_000, 0, 0), 3_700_000, now, gap_limit_ms=10_000)
    assert interval.stepped_back
    assert (interval.from_ms, interval.to_ms) == (99_000, 100_000)


def test_more_than_the_limit_is_a_gap() -> None:
    before = Instant(0, 0, 0)
    assert not place(before, 0, Instant(10_000, 10_000, 10_000), gap_limit_ms=10_000).is_gap
    assert place(before, 0, Instant(10_001, 10_001, 10_001), gap_limit_ms=10_000).is_gap


def test_a_suspend_is_a_gap_however_short() -> None:
    assert place(Instant(0, 0, 0), 0, Instant(5_000, 1_000, 5_000), gap_limit_ms=10_000).is_gap


@given(st.lists(st.tuples(st.integers(1, 5_000), st.integers(-900, 900)), min_size=1, max_size=40))
def test_intervals_follow_one_another_without_overlap(steps: list[tuple[int, int]]) -> None:
    boot = wall = placed = 1_000_000
    last = Instant(wall, boot, boot)
    for elapsed, slew in steps:
        boot += elapsed
        wall = max(wall + elapsed + slew, placed + elapsed - 900)
        now = Instant(wall, boot, boot)
        interval = place(last, placed, now, gap_limit_ms=10_000)
        assert interval.from_ms >= placed
        assert interval.to_ms - interval.from_ms == elapsed
        last, placed = now, interval.to_ms


@given(st.lists(st.integers(1, 5_000_000), min_size=1, max_size=40), st.integers(0, 999), st.integers(0, 999))
def test_rounding_two_clocks_to_milliseconds_tears_no_hole(
    steps_us: list[int], wall_offset_us: int, boot_offset_us: int
) -> None:
    now_us = 0
    last = Instant(1_000, 1_000, 1_000)
    placed_ms = last.wall_ms
    for step_us in steps_us:
        now_us += step_us
        boot_ms = 1_000 + (now_us + boot_offset_us) // 1_000
        now = Instant(1_000 + (now_us + wall_offset_us) // 1_000, boot_ms, boot_ms)
        interval = place(last, placed_ms, now, gap_limit_ms=10_000)
        assert interval.from_ms == placed_ms
        last, placed_ms = now, interval.to_ms


def test_the_systems_clocks_run_forward() -> None:
    first, second = system_clock(), system_clock()
    assert second.boot_ms >= first.boot_ms
    assert second.monotonic_ms >= first.monotonic_ms
    assert abs(second.wall_ms - first.wall_ms) < 60_000
