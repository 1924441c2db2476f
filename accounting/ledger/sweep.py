"""The sweep: a card's time, cut at every event, divided among the slices that hold it.

Invariant, for every segment and so for every sum of them: charged + idle + down = present, exactly.
Cuts come from events, UTC hours and the instants handed in, never from the window, so any window whose
edges are cuts gives the same segments. Source: `reference/ledger.md §2`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import NamedTuple

from accounting.ledger.intervals import Interval
from accounting.ledger.presence import PresenceSpan
from accounting.ledger.shares import Division, Grant, Policy, Sharing, card_units, share_units
from contract.ids import SliceKey
from contract.units import MS_PER_HOUR, PPM

_BEGINNING_MS, _END_MS = -(2**62), 2**62
"""Before and after every instant of ours."""


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


class Segment(NamedTuple):
    """A stretch between two neighbouring events of a device."""

    from_ms: int
    to_ms: int
    model: str
    registered_mib: int
    is_confirmed: bool
    is_down: bool
    held: Sequence[Hold]
    """The slices that are charged, by key; while the device is down only those measured working."""
    charged: Sequence[int]
    """What each of them is charged, in ppm·ms."""
    own: Sequence[int]
    """What each would be charged without neighbours."""
    idle_ppm_ms: int
    down_ppm_ms: int

    @property
    def parts(self) -> Iterator[Part]:
        """What each slice is charged."""
        for hold, charged, own in zip(self.held, self.charged, self.own, strict=True):
            yield Part(hold.slice_key, charged, own, self.is_down)

    @property
    def present_ppm_ms(self) -> int:
        """One card for the length of the segment."""
        return (self.to_ms - self.from_ms) * PPM

    @property
    def charged_ppm_ms(self) -> int:
        """What all slices are charged together."""
        return sum(self.charged)


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
    ordered = [hold for hold in holds if hold.from_ms < window[1] and window[0] < hold.to_ms]
    fixed = {cut for cut in cuts if window[0] < cut < window[1]}
    for hold in ordered:
        fixed.add(hold.from_ms)
        fixed.add(hold.to_ms)
    fixed.update(edge for span in policies for edge in (span.from_ms, span.to_ms))
    events = sorted(fixed)
    segments: list[Segment] = []
    active = _Active(ordered)
    for span in spans:
        start, end = max(span.from_ms, window[0]), min(span.to_ms, window[1])
        sharing = _SharingOf(span, policies)
        for from_ms, to_ms in _pieces(start, end, events):
            held = active.at(from_ms)
            division = sharing.of(held, from_ms).divide(to_ms - from_ms)
            segment = _down_segment if span.is_down else _up_segment
            segments.append(segment(span, held, division, (from_ms, to_ms)))
    return segments


_key_order = attrgetter(
    "slice_key.cluster", "slice_key.pod_uid", "slice_key.container", "slice_key.device_uuid"
)


class _Active:
    """Answers "which slices hold a part here?" for instants that only grow, in the order of their keys.

    As long as nothing changes the answer is the same object.
    """

    def __init__(self, holds: Sequence[Hold]) -> None:
        by_key = sorted(holds, key=_key_order)
        self._coming = sorted(enumerate(by_key), key=lambda each: each[1].from_ms, reverse=True)
        self._held: list[tuple[int, Hold]] = []
        self._answer: Sequence[Hold] = ()
        self._changes_at_ms = _BEGINNING_MS

    def at(self, at_ms: int) -> Sequence[Hold]:
        if at_ms < self._changes_at_ms:
            return self._answer
        while self._coming and self._coming[-1][1].from_ms <= at_ms:
            insort(self._held, self._coming.pop(), key=itemgetter(0))
        self._held = [each for each in self._held if each[1].to_ms > at_ms]
        self._answer = tuple([hold for _, hold in self._held])
        self._changes_at_ms = min([hold.to_ms for hold in self._answer], default=_END_MS)
        if self._coming:
            self._changes_at_ms = min(self._changes_at_ms, self._coming[-1][1].from_ms)
        return self._answer


class _SharingOf:
    """How holders divide the card during one span, prepared once for each set of them and policy."""

    def __init__(self, span: PresenceSpan, policies: Sequence[PolicySpan]) -> None:
        self._size, self._model = span.registered_mib, span.model
        self._whole = card_units(self._size, self._model)
        self._policies = policies
        self._policy: Policy = "dominant"
        self._held: Sequence[Hold] | None = None
        self._sharing = Sharing((), self._whole)
        # By identity: the holds outlive the sweep, and their values take long to compare.
        self._units: dict[int, int] = {}

    def of(self, held: Sequence[Hold], at_ms: int) -> Sharing:
        policy = _policy_at(self._policies, at_ms)
        if policy != self._policy:
            self._policy, self._held, self._units = policy, None, {}
        if self._held is not held:
            self._held = held
            self._sharing = Sharing([self._unit(hold) for hold in held], self._whole)
        return self._sharing

    def _unit(self, hold: Hold) -> int:
        known = self._units.get(id(hold))
        if known is None:
            known = share_units(hold.grant, self._size, self._model, self._policy)
            self._units[id(hold)] = known
        return known


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
    for span in policies:
        if span.from_ms <= at_ms < span.to_ms:
            return span.policy
    return "dominant"


def _up_segment(span: PresenceSpan, active: Sequence[Hold], division: Division, when: Interval) -> Segment:
    # By position, since there are tens of millions of them.
    charged, own, idle = division
    return Segment(
        *when, span.model, span.registered_mib, span.is_confirmed, False, active, charged, own, idle, 0
    )


def _down_segment(span: PresenceSpan, active: Sequence[Hold], division: Division, when: Interval) -> Segment:
    """Only who was measured working is charged; all else is down time."""
    worked = [
        index
        for index, hold in enumerate(active)
        if any(use[0] < when[1] and when[0] < use[1] for use in hold.down_use)
    ]
    charged = [division.charged[index] for index in worked]
    return Segment(
        *when,
        span.model,
        span.registered_mib,
        span.is_confirmed,
        True,
        tuple([active[index] for index in worked]),
        charged,
        [division.own[index] for index in worked],
        0,
        (when[1] - when[0]) * PPM - sum(charged),
    )
