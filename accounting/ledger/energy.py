"""Where the energy of a card's hour goes: slices, unallocated use, the platform; to the millijoule.

Active parts are measured and only cut in time. The board's idle part is split by the policy in force:
`memory` gives each slice the part of it that it holds of the card's memory, `none` gives it nothing; what
no slice is given stays with the idle capacity.

Invariant, for every hour: the portions and the residual add up to the board's counter. The residual is
what no report explains, and is below 0 where slices report more than the board; it belongs to nobody.
Source: `reference/ledger.md §3` (energy).
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from accounting.ledger.intervals import Interval
from accounting.ledger.merge import take_epochs
from accounting.ledger.shares import Grant, card_units, share_units
from accounting.ledger.sweep import Segment
from contract.apportion import apportion
from contract.facts import DeviceUsageFact, SliceUsageFact, UnallocatedUseFact
from contract.ids import SliceKey

EnergySource: TypeAlias = Literal["active", "idle_held", "idle_free", "unallocated", "unattributed"]
"""What a portion was drawn for; `idle_held` is a slice's part of the board's idle draw."""

PolicyAt: TypeAlias = Callable[[int], str]
"""The energy policy in force at an instant."""


@dataclass(frozen=True, slots=True)
class EnergyFacts:
    """The reports of one device and UTC hour, all epochs."""

    device: Sequence[DeviceUsageFact]
    slices: Sequence[SliceUsageFact]
    unallocated: Sequence[UnallocatedUseFact]


@dataclass(frozen=True, slots=True)
class Portion:
    """Energy of one holder in a stretch that crosses no cut."""

    from_ms: int
    to_ms: int
    source: EnergySource
    slice_key: SliceKey | None
    """The slice, or the container without an allocation; None for what nobody holds."""
    mj: int


@dataclass(frozen=True, slots=True)
class EnergyHour:
    """One device and hour, closed."""

    energy_mj: int
    portions: tuple[Portion, ...]

    def of(self, *sources: EnergySource) -> int:
        """The sum of some sources."""
        return sum(portion.mj for portion in self.portions if portion.source in sources)

    @property
    def residual_mj(self) -> int:
        """What no report explains."""
        return self.energy_mj - sum(portion.mj for portion in self.portions)


@dataclass(frozen=True, slots=True)
class CardTime:
    """What an hour of the card looks like to energy.

    Attributes:
        segments: Of the hour, from the sweep; cut at every cut.
        grants: What the slices of the segments were given.
        cuts: Instants at which a price, policy or local day changes, sorted.
        policy_at: The energy policy.
    """

    segments: Sequence[Segment]
    grants: Mapping[SliceKey, Grant]
    cuts: Sequence[int]
    policy_at: PolicyAt


def split_energy(facts: EnergyFacts, time: CardTime) -> EnergyHour:
    """Divide one hour's energy."""
    boards, _ = take_epochs(facts.device)
    portions: list[Portion] = []
    for board in boards:
        when = (board.from_ms, board.to_ms)
        portions += _split_idle(when, board.energy_idle_mj, time)
        portions += _in_time(when, "unattributed", None, board.energy_unattributed_mj, time.cuts)
    for use in _taken(facts.slices):
        when = (use.from_ms, use.to_ms)
        portions += _in_time(when, "active", use.slice_key, use.energy_active_mj, time.cuts)
    for other in _taken(facts.unallocated):
        when = (other.from_ms, other.to_ms)
        portions += _in_time(when, "unallocated", other.slice_key, other.energy_active_mj, time.cuts)
    return EnergyHour(sum(board.energy_mj for board in boards), tuple(portions))


def pieces(when: Interval, cuts: Sequence[int]) -> list[Interval]:
    """An interval, cut at the sorted instants that lie inside it."""
    inside = cuts[bisect_right(cuts, when[0]) : bisect_left(cuts, when[1])]
    edges = [when[0], *inside, when[1]]
    return [(start, end) for start, end in itertools.pairwise(edges) if start < end]


def _taken(
    uses: Iterable[SliceUsageFact] | Iterable[UnallocatedUseFact],
) -> list[SliceUsageFact | UnallocatedUseFact]:
    """The epochs that count, of every container."""
    of_container: dict[SliceKey, list[SliceUsageFact | UnallocatedUseFact]] = {}
    for use in uses:
        of_container.setdefault(use.slice_key, []).append(use)
    return [use for _, known in sorted(of_container.items()) for use in take_epochs(known)[0]]


def _in_time(
    when: Interval, source: EnergySource, slice_key: SliceKey | None, mj: int, cuts: Sequence[int]
) -> list[Portion]:
    if not mj:
        return []
    stretches = pieces(when, cuts)
    parts = apportion(mj, [end - start for start, end in stretches])
    return [
        Portion(start, end, source, slice_key, part)
        for (start, end), part in zip(stretches, parts, strict=True)
        if part
    ]


def _split_idle(when: Interval, mj: int, time: CardTime) -> list[Portion]:
    """First over time, evenly, then in each stretch among those that hold memory there."""
    if not mj:
        return []
    stretches = _stretches(when, time)
    parts = apportion(mj, [end - start for (start, end), _ in stretches])
    portions: list[Portion] = []
    for (when_, segment), part in zip(stretches, parts, strict=True):
        portions += _among_holders(when_, segment, part, time)
    return portions


def _stretches(when: Interval, time: CardTime) -> list[tuple[Interval, Segment | None]]:
    """The interval by segments; None where the card was not known to be present."""
    found: list[tuple[Interval, Segment | None]] = []
    at_ms = when[0]
    for segment in time.segments:
        start, end = max(segment.from_ms, when[0]), min(segment.to_ms, when[1])
        if start >= end:
            continue
        found += [(piece, None) for piece in pieces((at_ms, start), time.cuts)]
        found.append(((start, end), segment))
        at_ms = end
    return found + [(piece, None) for piece in pieces((at_ms, when[1]), time.cuts)]


def _among_holders(when: Interval, segment: Segment | None, mj: int, time: CardTime) -> list[Portion]:
    if segment is None or not segment.parts or time.policy_at(when[0]) == "none":
        return [Portion(*when, "idle_free", None, mj)] if mj else []
    whole = card_units(segment.registered_mib, segment.model)
    held = [
        share_units(time.grants[part.slice_key], segment.registered_mib, segment.model, "memory")
        for part in segment.parts
    ]
    *parts, free = apportion(mj, [*held, max(0, whole - sum(held))])
    portions = [
        Portion(*when, "idle_held", part.slice_key, mj_of)
        for part, mj_of in zip(segment.parts, parts, strict=True)
        if mj_of
    ]
    return [*portions, Portion(*when, "idle_free", None, free)] if free else portions
