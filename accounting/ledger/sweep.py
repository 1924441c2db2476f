"""The sweep: a card's time, cut at every event, divided among the slices that hold it.

Invariant, for every segment and so for every sum of them: charged + idle + down = present, exactly.
Cuts come from events, UTC hours and the instants handed in, never from the window, so any window whose
edges are cuts gives the same segments. Source: `reference/ledger.md §2`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from accounting.ledger.intervals import Interval, overlaps
from accounting.ledger.presence import PresenceSpan
from accounting.ledger.shares import Grant, Policy, card_units, divide, share_units
from contract.ids import SliceKey
from contract.units import MS_PER_HOUR, PPM


@dataclass(frozen=True, slots=True)
class Hold:
    """A slice holds a part of the card from `from_ms` to `to_ms`."""

    slice_key: SliceKey
    from_ms: int
    to_ms: int
    grant: Grant
    down_use: tuple[Interval, ...] = ()
    """When SM time was measured although the device counted as down."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one slice is charged in one segment."""

    slice_key: SliceKey
    charged_ppm_ms: int
    own_ppm_ms: int
    is_degraded: bool
    """Charged while the device was down, because it was measured working."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch between two neighbouring events of a device."""

    from_ms: int
    to_ms: int
    model: str
    registered_mib: int
    is_confirmed: bool
    parts: tuple[Part, ...]
    idle_ppm_ms: int
    down_ppm_ms: int

    @property
    def present_ppm_ms(self) -> int:
        """One card for the length of the segment."""
        return (self.to_ms - self.from_ms) * PPM

    @property
    def charged_ppm_ms(self) -> int:
        """What all slices are charged together."""
        return sum(part.charged_ppm_ms for part in self.parts)


@dataclass(frozen=True, slots=True)
class PolicySpan:
    """A share policy in force on `[from_ms, to_ms)`."""

    from_ms: int
    to_ms: int
    policy: Policy


def sweep(
    spans: Sequence[PresenceSpan],
    holds: Iterable[Hold],
    window: Interval,
    *,
    cuts: Iterable[int] = (),
    policies: Sequence[PolicySpan] = (),
) -> list[Segment]:
    """Divide the card's time in the window.

    Args:
        spans: The device's presence (`presence.timeline`).
        holds: Every slice's hold on the device, in any order.
        window: `[from, to)`; its edges should be hours or cuts, so that it cuts nothing itself.
        cuts: Instants at which a price, policy or tenant changes, and local midnights.
        policies: Share policies in force; `dominant` where none is.

    Returns:
        The segments in time order; none where the device was not present.
    """
    ordered = [hold for hold in holds if overlaps((hold.from_ms, hold.to_ms), window)]
    fixed = {cut for cut in cuts if window[0] < cut < window[1]}
    fixed.update(edge for hold in ordered for edge in (hold.from_ms, hold.to_ms))
    fixed.update(edge for span in policies for edge in (span.from_ms, span.to_ms))
    events = sorted(fixed)
    segments: list[Segment] = []
    active = _Active(ordered)
    for span in spans:
        start, end = max(span.from_ms, window[0]), min(span.to_ms, window[1])
        for from_ms, to_ms in _pieces(start, end, events):
            held = active.at(from_ms)
            segments.append(_segment(span, held, (from_ms, to_ms), _policy_at(policies, from_ms)))
    return segments


class _Active:
    """Answers "which slices hold a part here?" for instants that only grow, in the order of their keys."""

    def __init__(self, holds: Sequence[Hold]) -> None:
        self._coming = sorted(holds, key=lambda hold: hold.from_ms, reverse=True)
        self._held: list[Hold] = []

    def at(self, at_ms: int) -> Sequence[Hold]:
        while self._coming and self._coming[-1].from_ms <= at_ms:
            insort(self._held, self._coming.pop(), key=lambda hold: hold.slice_key)
        if any(hold.to_ms <= at_ms for hold in self._held):
            self._held = [hold for hold in self._held if hold.to_ms > at_ms]
        return self._held


def _pieces(start: int, end: int, events: Sequence[int]) -> Iterator[Interval]:
    """Cut `[start, end)` at the events and at full hours."""
    if start >= end:
        return
    at = start
    index = bisect_left(events, start + 1)
    while at < end:
        stop = min(end, at - at % MS_PER_HOUR + MS_PER_HOUR)
        while index < len(events) and events[index] <= at:
            index += 1
        if index < len(events):
            stop = min(stop, events[index])
        yield at, stop
        at = stop


def _policy_at(policies: Sequence[PolicySpan], at_ms: int) -> Policy:
    return next((span.policy for span in policies if span.from_ms <= at_ms < span.to_ms), "dominant")


def _segment(span: PresenceSpan, active: Sequence[Hold], when: Interval, policy: Policy) -> Segment:
    units = [share_units(hold.grant, span.registered_mib, span.model, policy) for hold in active]
    division = divide(when[1] - when[0], units, card_units(span.registered_mib, span.model))
    parts = []
    down = division.idle if span.is_down else 0
    for hold, charged, own in zip(active, division.charged, division.own, strict=True):
        worked = span.is_down and any(overlaps(use, when) for use in hold.down_use)
        if span.is_down and not worked:
            down += charged
            continue
        parts.append(Part(hold.slice_key, charged, own, is_degraded=worked))
    return Segment(
        from_ms=when[0],
        to_ms=when[1],
        model=span.model,
        registered_mib=span.registered_mib,
        is_confirmed=span.is_confirmed,
        parts=tuple(parts),
        idle_ppm_ms=0 if span.is_down else division.idle,
        down_ppm_ms=down,
    )
