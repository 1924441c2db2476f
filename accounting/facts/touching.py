"""Which time of which device a new or changed fact may have changed, so that only that is rated again.

Invariant: rating what is marked gives the same ledger as rating everything, in any order of arrival. A
window reaches 6 h beyond the change on both sides, because presence is bridged that far and the grace is
never longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeVar
from uuid import UUID

from accounting.facts.bounds import MAX_AGE_MS
from accounting.settings import MAX_GRACE_MS
from contract.facts import (
    AllocationFact,
    DeviceUsageFact,
    Fact,
    NodeStateFact,
    PresenceFact,
    SliceUsageFact,
    UnallocatedUseFact,
)
from contract.units import MS_PER_DAY, MS_PER_HOUR

REACH_MS = MAX_GRACE_MS

SomeFact = TypeVar("SomeFact", bound=Fact)
SomeUse = TypeVar("SomeUse", SliceUsageFact, UnallocatedUseFact, DeviceUsageFact)


@dataclass(frozen=True, slots=True)
class Window:
    """Time of one device, or of all devices of a node (`device_uuid` None), that may have changed.

    Two witnesses speak of one slice, and a report of the card sizes what is held on it; so what else the
    store holds can widen the window (`marks.mark`):

    Attributes:
        reach: `slice_end` to the latest that any witness says of the slice `allocation_id`; `slice`
            over all that any says of it; `card` back to the first hold on the card, and the first use
            or energy of it, when no earlier report knows how large the card is.
    """

    node_uid: str
    device_uuid: str | None
    from_ms: int
    to_ms: int
    reach: Literal["itself", "slice_end", "slice", "card"] = "itself"
    allocation_id: UUID | None = None

    def days(self, *, now_ms: int) -> range:
        """Starts of the UTC days that it touches with its reach; nothing older than 400 days."""
        begins = max(self.from_ms - REACH_MS, now_ms - MAX_AGE_MS)
        first = begins - begins % MS_PER_DAY
        return range(first, self.to_ms + REACH_MS + 1, MS_PER_DAY)


Change: TypeAlias = tuple[SomeFact | None, SomeFact]
"""What the store held under a natural key (None: nothing), and what it holds now."""


def touched_by_allocations(changes: Iterable[Change[AllocationFact]], _now_ms: int) -> list[Window]:
    """The time that each change touches."""
    return [window for before, after in changes for window in _by_allocation(before, after)]


def _by_allocation(before: AllocationFact | None, after: AllocationFact) -> list[Window]:
    """Between a confirmation and the next only the time since; else all that is or was held.

    A report may give the merged slice another size, name or node, and an end cuts off what the other
    witness confirmed; a longer confirmation alone does neither.
    """
    here = Window(
        after.node_uid,
        after.device_uuid,
        after.bound_at_ms,
        max(after.confirmed_at_ms, after.ended_at_ms or 0),
        reach="slice",
        allocation_id=after.slice_key.allocation_id,
    )
    if before is None:
        return [here]
    until = max(here.to_ms, before.confirmed_at_ms, before.ended_at_ms or 0)
    if not _sized_alike(before, after):
        begins = min(before.bound_at_ms, after.bound_at_ms)
        nodes = sorted({before.node_uid, after.node_uid})
        return [replace(here, node_uid=node_uid, from_ms=begins, to_ms=until) for node_uid in nodes]
    ends = [at_ms for at_ms in (before.ended_at_ms, after.ended_at_ms) if at_ms is not None]
    begins = min(before.confirmed_at_ms, *ends) if ends else before.confirmed_at_ms
    return [replace(here, from_ms=begins, to_ms=until, reach="slice_end" if ends else "itself")]


def _sized_alike(before: AllocationFact, after: AllocationFact) -> bool:
    moving = ("confirmed_at_ms", "ended_at_ms", "end_reason", "end_kind")
    return all(
        getattr(before, name) == getattr(after, name)
        for name in after.__struct_fields__
        if name not in moving
    )


def touched_by_presences(changes: Iterable[Change[PresenceFact]], now_ms: int) -> list[Window]:
    """The time that each change touches."""
    return [_by_presence(before, after, now_ms) for before, after in changes]


def _by_presence(before: PresenceFact | None, after: PresenceFact, now_ms: int) -> Window:
    """A longer interval touches what it gained; a new one also all later time that had to guess from it."""
    if before is not None and _same_but_longer(before, after):
        return Window(after.node_uid, after.device_uuid, before.to_ms, after.to_ms)
    # The size and state last known hold on where slices are held but nobody reports the card.
    ends = max(after.to_ms, now_ms)
    return Window(after.node_uid, after.device_uuid, after.from_ms, ends, reach="card")


def _same_but_longer(before: PresenceFact, after: PresenceFact) -> bool:
    return all(
        getattr(before, name) == getattr(after, name) for name in after.__struct_fields__ if name != "to_ms"
    )


def touched_by_node_states(changes: Iterable[Change[NodeStateFact]], _now_ms: int) -> list[Window]:
    """The time that each change touches."""
    return [_by_node_state(before, after) for before, after in changes]


def _by_node_state(before: NodeStateFact | None, after: NodeStateFact) -> Window:
    """What it gained on every device of the node; all of it, from the last heartbeat on, when it is new."""
    begins = min(after.from_ms, after.heartbeat_at_ms)
    if before is not None:
        began = min(before.from_ms, before.heartbeat_at_ms)
        is_longer = before.ready == after.ready and (after.ready or began == begins)
        begins = before.to_ms if is_longer else min(began, begins)
    return Window(after.node_uid, None, begins, after.to_ms)


def touched_by_uses(changes: Iterable[Change[SomeUse]], _now_ms: int) -> list[Window]:
    """Their hours: use shows life on a node that looked down, and energy is priced by the hour."""
    hours = set()
    for before, after in changes:
        hours.add((after.node_uid, after.device_uuid, after.hour_ms))
        if before is not None:
            hours.add((before.node_uid, after.device_uuid, after.hour_ms))
    # Ten slices of a card have the same hour to say.
    return [
        Window(node_uid, device_uuid, hour_ms, hour_ms + MS_PER_HOUR)
        for node_uid, device_uuid, hour_ms in sorted(hours)
    ]
