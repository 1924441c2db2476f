"""A card's time in columns: cut at every event and divided among holders, all segments at once.

A month of one card has thousands of segments and tens of thousands of parts, a large cluster has hundreds
of millions: they are worked out as columns of whole numbers. Nothing is a float; where a product might
not fit 64 bits, each segment is divided by itself (`shares.divide`), with the same result.

Invariant, for every segment: charged + idle + down = present, exactly. Source: `reference/ledger.md §2`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from accounting.ledger.intervals import Interval
from accounting.ledger.presence import PresenceSpan
from accounting.ledger.shares import Grant, Policy, card_units, divide, share_units
from contract.ids import SliceKey
from contract.units import MS_PER_HOUR, PPM

Whole: TypeAlias = NDArray[np.int64]
"""A column of whole numbers."""

Flags: TypeAlias = NDArray[np.bool_]

_FITS = 2**62
"""Products below it, and sums of two of them, fit 64 bits."""


class Hold(NamedTuple):
    """A slice holds a part of the card from `from_ms` to `to_ms`."""

    slice_key: SliceKey
    from_ms: int
    to_ms: int
    grant: Grant
    down_use: tuple[Interval, ...] = ()
    """When SM time was measured although the device counted as down."""


@dataclass(frozen=True, slots=True)
class PolicySpan:
    """A share policy in force on `[from_ms, to_ms)`."""

    from_ms: int
    to_ms: int
    policy: Policy


@dataclass(frozen=True, slots=True)
class Columns:
    """A card's time, divided.

    A row of the first five is a segment, in time order; a row of the last four is what one holder is
    charged in one segment: those of a holder together, in the order of their keys, and each in time order.
    While the device is down only a holder that was measured working has one.
    """

    spans: Sequence[PresenceSpan]
    holds: Sequence[Hold]
    """By key."""
    from_ms: Whole
    to_ms: Whole
    span_of: Whole
    """Of a segment: where in `spans` it is."""
    idle_ppm_ms: Whole
    down_ppm_ms: Whole
    hold_of: Whole
    """Of a part: where in `holds` its holder is."""
    segment_of: Whole
    charged_ppm_ms: Whole
    own_ppm_ms: Whole

    def of_spans(self, read: Callable[[PresenceSpan], int]) -> Whole:
        """For each segment: something of the span that it is in."""
        return np.array([read(span) for span in self.spans], np.int64)[self.span_of]

    @property
    def is_down(self) -> Flags:
        """Which segments are down time."""
        return self.of_spans(lambda span: span.is_down) > 0

    @property
    def present_ppm_ms(self) -> Whole:
        """One card for the length of each segment."""
        return (self.to_ms - self.from_ms) * PPM


def divide_time(
    spans: Sequence[PresenceSpan],
    holds: Iterable[Hold],
    window: Interval,
    *,
    cuts: Iterable[int] = (),
    policies: Sequence[PolicySpan] = (),
) -> Columns:
    """Divide the card's time in the window.

    Args:
        spans: The device's presence (`presence.timeline`).
        holds: Every slice's hold on the device, in any order.
        window: `[from, to)`; its edges should be hours or cuts, so that it cuts nothing itself.
        cuts: Instants at which a price, policy or tenant changes, and local midnights.
        policies: Share policies in force; `dominant` where none is.
    """
    held = sorted(
        (hold for hold in holds if hold.from_ms < window[1] and window[0] < hold.to_ms),
        key=attrgetter("slice_key"),
    )
    begins = np.array([hold.from_ms for hold in held], np.int64)
    ends = np.array([hold.to_ms for hold in held], np.int64)
    fixed = [*cuts, *(edge for span in policies for edge in (span.from_ms, span.to_ms))]
    events = np.unique(np.concatenate([np.array(fixed, np.int64), begins, ends]))
    cut = _segments(spans, window, events)
    from_ms, to_ms, span_of = cut
    # A segment lies wholly within a hold or wholly outside of it.
    first, last = np.searchsorted(from_ms, begins), np.searchsorted(from_ms, ends)
    lengths = last - first
    hold_of = np.repeat(np.arange(len(held)), lengths)
    segment_of = np.arange(len(hold_of)) + np.repeat(first - (np.cumsum(lengths) - lengths), lengths)
    units_of, whole = _units(spans, cut, held, policies)
    units = units_of(segment_of, hold_of)
    by_segment = np.argsort(segment_of, kind="stable")
    charged, own, idle = _divided(to_ms - from_ms, whole, units[by_segment], segment_of[by_segment])
    columns = Columns(
        spans,
        held,
        from_ms,
        to_ms,
        span_of,
        idle,
        np.zeros(len(from_ms), np.int64),
        hold_of,
        segment_of,
        _back(charged, by_segment),
        _back(own, by_segment),
    )
    return _without_down_time(columns) if any(span.is_down for span in spans) else columns


def _back(sorted_column: Whole, order: Whole) -> Whole:
    """A column in the order that it had before it was put into another."""
    column = np.empty_like(sorted_column)
    column[order] = sorted_column
    return column


class _Cut(NamedTuple):
    """The segments, not divided yet."""

    from_ms: Whole
    to_ms: Whole
    span_of: Whole


def _segments(spans: Sequence[PresenceSpan], window: Interval, events: Whole) -> _Cut:
    """Where segments begin and end, and in which span each lies: cut at events and at full hours."""
    starts, ends, span_of = [], [], []
    for index, span in enumerate(spans):
        start, end = max(span.from_ms, window[0]), min(span.to_ms, window[1])
        if start >= end:
            continue
        inside = events[np.searchsorted(events, start, "right") : np.searchsorted(events, end)]
        hours = np.arange(start - start % MS_PER_HOUR + MS_PER_HOUR, end, MS_PER_HOUR)
        edges = np.unique(np.concatenate([np.array([start, end]), inside, hours]))
        starts.append(edges[:-1])
        ends.append(edges[1:])
        span_of.append(np.full(len(edges) - 1, index))
    if not starts:
        nothing = np.zeros(0, np.int64)
        return _Cut(nothing, nothing, nothing)
    return _Cut(np.concatenate(starts), np.concatenate(ends), np.concatenate(span_of))


def _units(
    spans: Sequence[PresenceSpan], cut: _Cut, holds: Sequence[Hold], policies: Sequence[PolicySpan]
) -> tuple[Callable[[Whole, Whole], Whole], Whole]:
    """Looks up own shares in units, by segment and hold; and the units of the whole card by segment."""
    policy_of = np.zeros(len(cut.from_ms), np.int64)
    for number, span in reversed(list(enumerate(policies, start=1))):
        policy_of[(cut.from_ms >= span.from_ms) & (cut.from_ms < span.to_ms)] = number
    sizes = sorted({(span.registered_mib, span.model) for span in spans})
    size_of = np.array([sizes.index((span.registered_mib, span.model)) for span in spans], np.int64)
    kinds = len(policies) + 1
    rules, rule_of = np.unique(
        (size_of[cut.span_of] if spans else cut.span_of) * kinds + policy_of, return_inverse=True
    )
    grants = sorted({hold.grant for hold in holds})
    place = {grant: index for index, grant in enumerate(grants)}
    grant_of = np.array([place[hold.grant] for hold in holds], np.int64)
    table = np.zeros((len(rules), len(grants)), np.int64)
    wholes = np.zeros(len(rules), np.int64)
    for row, rule in enumerate(rules.tolist()):
        size, number = divmod(rule, kinds)
        policy: Policy = policies[number - 1].policy if number else "dominant"
        mib, model = sizes[size]
        wholes[row] = card_units(mib, model)
        table[row] = [share_units(grant, mib, model, policy) for grant in grants]

    def units_of(segments: Whole, held: Whole) -> Whole:
        units: Whole = table[rule_of[segments], grant_of[held]]
        return units

    return units_of, wholes[rule_of]


def _divided(length_ms: Whole, whole: Whole, units: Whole, segment_of: Whole) -> tuple[Whole, Whole, Whole]:
    """What each part is charged and owns, by segment and key, and what is left idle in each segment.

    `shares.divide` for every segment at once: floor, then largest remainder, ties by key and idle last.
    """
    count = len(length_ms)
    bounds = np.searchsorted(segment_of, np.arange(count + 1))
    running = np.concatenate([np.zeros(1, np.int64), np.cumsum(units)])
    taken = running[bounds[1:]] - running[bounds[:-1]]
    is_overbooked = taken > whole
    divisor = np.where(is_overbooked, taken, whole)
    if count and int(divisor.max()) * int(whole.max()) >= _FITS:
        return _divided_one_by_one(length_ms, whole, units, bounds)
    stretch = length_ms * PPM
    quotient, rest = np.divmod(stretch, divisor)
    over, fraction = np.divmod(rest[segment_of] * units, divisor[segment_of])
    charged = quotient[segment_of] * units + over
    free = np.where(is_overbooked, 0, whole - taken)
    over, idle_fraction = np.divmod(rest * free, divisor)
    idle = quotient * free + over
    running = np.concatenate([np.zeros(1, np.int64), np.cumsum(charged)])
    left = stretch - idle - (running[bounds[1:]] - running[bounds[:-1]])
    if left.any():
        fractions = np.concatenate([fraction, idle_fraction])
        segments = np.concatenate([segment_of, np.arange(count)])
        # Stable: of equal fractions those of parts come before idle, and in the order of their keys.
        order = np.lexsort((-fractions, segments))
        entries = np.diff(bounds) + 1
        rank = np.arange(len(order)) - np.repeat(np.cumsum(entries) - entries, entries)
        winners = order[rank < np.repeat(left, entries)]
        charged[winners[winners < len(charged)]] += 1
        idle[winners[winners >= len(charged)] - len(charged)] += 1
    own = charged.copy()
    if is_overbooked.any():
        shared = is_overbooked[segment_of]
        of = segment_of[shared]
        quotient, rest = np.divmod(stretch[of], whole[of])
        own[shared] = quotient * units[shared] - (-(rest * units[shared]) // whole[of])
    return charged, own, idle


def _divided_one_by_one(
    length_ms: Whole, whole: Whole, units: Whole, bounds: Whole
) -> tuple[Whole, Whole, Whole]:
    charged, own, idle = np.empty_like(units), np.empty_like(units), np.empty_like(length_ms)
    for index, (length, card) in enumerate(zip(length_ms.tolist(), whole.tolist(), strict=True)):
        of = slice(int(bounds[index]), int(bounds[index + 1]))
        division = divide(length, units[of].tolist(), card)
        charged[of], own[of], idle[index] = division.charged, division.own, division.idle
    return charged, own, idle


def _without_down_time(time: Columns) -> Columns:
    """While the device was down only who was measured working is charged; all else is down time."""
    is_down = time.is_down
    keeps = ~is_down[time.segment_of]
    for part in np.flatnonzero(~keeps).tolist():
        segment = int(time.segment_of[part])
        start, end = int(time.from_ms[segment]), int(time.to_ms[segment])
        uses = time.holds[int(time.hold_of[part])].down_use
        keeps[part] = any(use[0] < end and start < use[1] for use in uses)
    segment_of, charged = time.segment_of[keeps], time.charged_ppm_ms[keeps]
    worked = np.zeros(len(time.from_ms), np.int64)
    np.add.at(worked, segment_of[is_down[segment_of]], charged[is_down[segment_of]])
    return Columns(
        time.spans,
        time.holds,
        time.from_ms,
        time.to_ms,
        time.span_of,
        np.where(is_down, 0, time.idle_ppm_ms),
        np.where(is_down, time.present_ppm_ms - worked, 0),
        time.hold_of[keeps],
        segment_of,
        charged,
        time.own_ppm_ms[keeps],
    )
