"""Half-open intervals of Unix milliseconds: union, difference, clipping.

Invariant: every result is sorted, disjoint and free of empty intervals, so a caller may add lengths.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Interval: TypeAlias = tuple[int, int]
"""`[from_ms, to_ms)`."""


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The time covered by any of the intervals; those that touch become one."""
    ordered = sorted([interval for interval in intervals if interval[0] < interval[1]])
    if not ordered:
        return []
    merged: list[Interval] = []
    first, last = ordered[0]
    for start, end in ordered:
        if start > last:
            merged.append((first, last))
            first, last = start, end
        elif end > last:
            last = end
    merged.append((first, last))
    return merged


def subtract(intervals: Iterable[Interval], holes: Iterable[Interval]) -> list[Interval]:
    """The time covered by the intervals and by none of the holes."""
    cutting = union(holes)
    left: list[Interval] = []
    for start, end in union(intervals):
        at = start
        for hole_start, hole_end in cutting:
            if hole_end <= at or hole_start >= end:
                continue
            if hole_start > at:
                left.append((at, hole_start))
            at = hole_end
        if at < end:
            left.append((at, end))
    return left


def clip(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """The parts of the intervals that lie inside the window, as a union."""
    start, end = window
    # Thousands of holds of a card pass here, and calls of `max` and `min` would take most of the time.
    return union([(a if a > start else start, b if b < end else end) for a, b in intervals])  # noqa: FURB136


def length_ms(intervals: Sequence[Interval]) -> int:
    """Total length of disjoint intervals."""
    return sum(end - start for start, end in intervals)


def overlaps(first: Interval, second: Interval) -> bool:
    """Whether two intervals share an instant."""
    return first[0] < second[1] and second[0] < first[1]
