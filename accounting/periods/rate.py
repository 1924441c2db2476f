"""Rating: bring the open ledger up to what the facts say at one instant.

Only days of cards that facts, prices or time itself touched are rated again, some cards' in one
transaction; on PostgreSQL several processes share the cards. Invariant: twice, or after a crash anywhere,
the lines are the same; what is stored is what `compute` gives for the instant in `rating_state`, except
where a mark says that it is due.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select, update

from accounting.periods.batch import BatchRated, Stop, StoppedError, never, rate_batch
from accounting.periods.months import Periods
from accounting.periods.rating_processes import rate_in_processes
from accounting.periods.replacing import DUE, RATED
from accounting.periods.rollups import merge_rollups
from accounting.progress import Progress, unseen
from accounting.store.database import Database
from accounting.store.models import BillingAccount, IngestCounter, RatingMark, RatingState
from contract.ids import ClusterCode, DeviceKey, DeviceUuid, NodeUid

_DAYS_PER_BATCH = 512
"""Days of cards in one transaction: some tens of thousands of lines, a second or two of work."""

_BATCHES_PER_PROCESS = 2
"""Fewer are rated before another process has begun."""


@dataclass(frozen=True, slots=True)
class Rated:
    """What a rating did."""

    as_of_ms: int
    days: int
    """Days of cards that were rated."""
    lines: int
    """Lines that now stand for them."""
    unknown_devices: tuple[DeviceKey, ...]
    """Devices on which slices are held although nobody ever reported them: their size is unknown."""
    is_complete: bool = True
    """Whether nothing that was due was left."""


def rate(
    database: Database,
    *,
    as_of_ms: int,
    grace_ms: int,
    jobs: int = 1,
    progress: Progress = unseen,
    stop: Stop = never,
) -> Rated:
    """Rate every day of every card that is due.

    Args:
        database: The books.
        as_of_ms: Now; open holds reach up to here.
        grace_ms: How long a slice is held after its latest confirmation when nobody saw it end.
        jobs: How many processes share the cards when there are many; on SQLite one writes, whatever this is.
        progress: Who wants to know how far it is.
        stop: Asked between cards; what is left stays due.
    """
    with database.turn("rate"):
        batches = _batches(_begin(database, as_of_ms, grace_ms))
        cards = sum(map(len, batches))
        done: list[BatchRated] = []
        progress("rating cards", 0, cards)
        for rated in _rated(database, batches, jobs, stop):
            done.append(rated)
            progress("rating cards", sum(one.cards for one in done), cards)
        merge_rollups(database)
    return Rated(
        as_of_ms,
        sum(one.days for one in done),
        sum(one.lines for one in done),
        tuple(sorted(key for one in done for key in one.unknown_devices)),
        sum(one.cards for one in done) == cards,
    )


def _rated(
    database: Database, batches: Sequence[Sequence[DeviceKey]], jobs: int, stop: Stop
) -> Iterator[BatchRated]:
    processes = min(jobs, len(batches) // _BATCHES_PER_PROCESS) if database.is_postgresql else 1
    if processes > 1:
        yield from rate_in_processes(database, batches, processes, stop)
        return
    for batch in batches:
        try:
            yield rate_batch(database, batch, stop=stop)
        except StoppedError:
            return


def _begin(database: Database, as_of_ms: int, grace_ms: int) -> list[tuple[DeviceKey, int]]:
    """Move the books' instant; whatever depends on it is due from here on, also if we crash next.

    Returns:
        The cards that are due, in order, and how many days of each.
    """
    with database.writing() as session:
        session.execute(update(RatingMark).where(RatingMark.ingest_seq == RATED).values(ingest_seq=DUE))
        counter = session.get(IngestCounter, 1)
        state = session.get(RatingState, 1)
        if state is None:
            state = RatingState(id=1, rated_as_of_ms=as_of_ms, grace_ms=grace_ms, rated_seq=0)
            session.add(state)
        state.rated_as_of_ms = as_of_ms
        state.grace_ms = grace_ms
        state.rated_seq = 0 if counter is None else counter.last_seq
        periods = Periods(session)
        for account in session.scalars(select(BillingAccount)):
            periods.tile(account.code, account.time_zone, as_of_ms)
        device = (RatingMark.cluster, RatingMark.node_uid, RatingMark.device_uuid)
        return sorted(
            (DeviceKey(ClusterCode(cluster), NodeUid(node_uid), DeviceUuid(device_uuid)), days)
            for cluster, node_uid, device_uuid, days in session.execute(
                select(*device, func.count()).group_by(*device)
            )
        )


def _batches(due: Iterable[tuple[DeviceKey, int]]) -> list[list[DeviceKey]]:
    """Neighbouring cards of one cluster, as many as one transaction should rate."""
    batches: list[list[DeviceKey]] = []
    room = 0
    for key, days in due:
        if not batches or days > room or batches[-1][0].cluster != key.cluster:
            batches.append([])
            room = _DAYS_PER_BATCH
        batches[-1].append(key)
        room -= days
    return batches
