"""What stays of two facts with one natural key.

Invariant: each merge is associative, commutative and idempotent, so any order, any repetition and any
cut into batches ends in the same row. Each field is a minimum or maximum over a total order; nothing
depends on which fact came first.

Source: DESIGN section 5, `reference/ledger.md §5` (merge rules).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from contract.facts import (
    AllocationFact,
    DeviceUsageFact,
    Fact,
    NodeStateFact,
    PresenceFact,
    SliceUsageFact,
    UnallocatedUseFact,
    canonical_bytes,
)

SomeFact = TypeVar("SomeFact", bound=Fact)
SomeUse = TypeVar("SomeUse", SliceUsageFact, UnallocatedUseFact, DeviceUsageFact)


@dataclass(frozen=True, slots=True)
class Merged(Generic[SomeFact]):
    """The fact that stays, and the one that lost against another of its key and revision."""

    kept: SomeFact
    loser: SomeFact | None = None


def merge_allocations(one: AllocationFact, other: AllocationFact) -> Merged[AllocationFact]:
    """Earliest bind and start, latest confirmation; names, labels and sizes of the earliest confirmation.

    Of ends, an observed one beats any inferred one; the earliest observed is final, the latest inferred
    stands (whether it counts is for the ledger, which knows both witnesses).
    """
    named = min(one, other, key=_naming)
    ended = min(one, other, key=_ending)
    starts = [at_ms for at_ms in (one.started_at_ms, other.started_at_ms) if at_ms is not None]
    return Merged(
        msgspec.structs.replace(
            named,
            bound_at_ms=min(one.bound_at_ms, other.bound_at_ms),
            started_at_ms=min(starts, default=None),
            first_confirmed_at_ms=min(one.first_confirmed_at_ms, other.first_confirmed_at_ms),
            confirmed_at_ms=max(one.confirmed_at_ms, other.confirmed_at_ms),
            ended_at_ms=ended.ended_at_ms,
            end_reason=ended.end_reason,
            end_kind=ended.end_kind,
        )
    )


def _naming(fact: AllocationFact) -> tuple[int, bool, bytes]:
    """Orders by the earliest confirmation; of equally early ones, one that knows the model goes first."""
    names = msgspec.structs.replace(
        fact,
        bound_at_ms=0,
        started_at_ms=None,
        first_confirmed_at_ms=0,
        confirmed_at_ms=0,
        ended_at_ms=None,
        end_reason=None,
        end_kind=None,
    )
    return fact.first_confirmed_at_ms, not fact.model, canonical_bytes(names)


def _ending(fact: AllocationFact) -> tuple[int, int, bool, str]:
    """Orders by kind and time; of ends alike one that says why goes first."""
    reason = fact.end_reason is None, fact.end_reason or ""
    if fact.ended_at_ms is None:
        return 2, 0, *reason
    if fact.end_kind == "observed":
        return 0, fact.ended_at_ms, *reason
    return 1, -fact.ended_at_ms, *reason


def merge_presence(one: PresenceFact, other: PresenceFact) -> Merged[PresenceFact]:
    """The latest confirmation stands: a change of state or size would have begun a new interval."""
    return Merged(max(one, other, key=lambda fact: (fact.to_ms, canonical_bytes(fact))))


def merge_node_states(one: NodeStateFact, other: NodeStateFact) -> Merged[NodeStateFact]:
    """The latest confirmation stands, with the latest heartbeat of both."""
    latest = max(one, other, key=lambda fact: (fact.to_ms, fact.ready, fact.node))
    heartbeat_at_ms = max(one.heartbeat_at_ms, other.heartbeat_at_ms)
    return Merged(msgspec.structs.replace(latest, heartbeat_at_ms=heartbeat_at_ms))


def merge_uses(one: SomeUse, other: SomeUse) -> Merged[SomeUse]:
    """The higher revision stands; of equal ones the larger (covered_ms, canonical bytes)."""
    if one.revision != other.revision:
        return Merged(one if one.revision > other.revision else other)
    ranks = [(fact.covered_ms, canonical_bytes(fact)) for fact in (one, other)]
    if ranks[0] == ranks[1]:
        return Merged(one)
    kept, loser = (one, other) if ranks[0] > ranks[1] else (other, one)
    return Merged(kept, loser)
