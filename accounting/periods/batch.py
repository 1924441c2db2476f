"""Some cards of one cluster, rated in one transaction: read together, swept one by one, written together.

Invariant: a card is rated by one transaction at a time, which has its marks locked; a transaction that is
stopped or lost leaves cards, lines and marks as they were.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.ledger.intervals import Interval
from accounting.periods.compute import MS_PER_DAY, compute_cards, read_rulebook, runs_of_days
from accounting.periods.months import Periods
from accounting.periods.reading import groups_of, of_devices
from accounting.periods.replacing import RATED, Replacement, open_days, settle_marks
from accounting.store.database import Database
from accounting.store.models import RatingMark, RatingState
from accounting.tenants.tree import TenantTree
from contract.ids import ClusterCode, DeviceKey, DeviceUuid, NodeUid

Stop = Callable[[], bool]
"""Asked between cards: whether to leave the rest for the next rating."""


class StoppedError(Exception):
    """Somebody wants to stop; what the transaction did is rolled back."""


def never() -> bool:
    """For whoever rates to the end."""
    return False


@dataclass(frozen=True, slots=True)
class BatchRated:
    """What was done with the cards of one transaction."""

    cards: int
    days: int
    lines: int
    unknown_devices: tuple[DeviceKey, ...]


def rate_batch(database: Database, keys: Sequence[DeviceKey], *, stop: Stop = never) -> BatchRated:
    """Rate some cards of one cluster in a transaction of their own.

    Raises:
        StoppedError: `stop` said so; nothing was changed.
    """
    with database.writing(cluster=keys[0].cluster, is_shared=True) as session:
        return rate_cards(session, keys, stop=stop)


def rate_cards(session: Session, keys: Sequence[DeviceKey], *, stop: Stop = never) -> BatchRated:
    """Rate cards of one cluster as of the books' instant: of two ratings, whoever began last has set it.

    Raises:
        StoppedError: `stop` said so; the transaction is to be rolled back.
    """
    runs = _due_runs(session, keys)
    if not runs:
        return BatchRated(len(keys), 0, 0, ())
    state = session.get_one(RatingState, 1)
    as_of_ms, grace_ms = state.rated_as_of_ms, state.grace_ms
    rulebook = read_rulebook(session)
    tenants, periods = TenantTree(session, now_ms=as_of_ms), Periods(session)
    tenants.idle(rulebook.books[keys[0].cluster].platform.code)
    unsettled: dict[DeviceKey, set[int]] = {key: set() for key in runs}
    unknown: set[DeviceKey] = set()
    lines = 0
    by_run: dict[Interval, list[DeviceKey]] = defaultdict(list)
    for key, of_card in runs.items():
        for run in of_card:
            by_run[run].append(key)
    for run, of_run in sorted(by_run.items()):
        replacement = Replacement(session, rulebook, tenants, periods)
        for computed in compute_cards(session, of_run, run, rulebook, as_of_ms=as_of_ms, grace_ms=grace_ms):
            if stop():
                raise StoppedError
            replacement.add(computed)
            lines += len(computed.lines)
            unsettled[computed.card.key] |= open_days(computed, runs[computed.card.key][0][0])
            if computed.card.is_unknown:
                unknown.add(computed.card.key)
        replacement.store()
    settle_marks(session, unsettled)
    days = sum((end - start) // MS_PER_DAY for of_card in runs.values() for start, end in of_card)
    return BatchRated(len(keys), days, lines, tuple(sorted(unknown)))


def _due_runs(session: Session, keys: Sequence[DeviceKey]) -> dict[DeviceKey, list[Interval]]:
    """The runs of days of each card that are due; nobody else rates them until the transaction ends."""
    days: dict[DeviceKey, list[int]] = defaultdict(list)
    columns = (RatingMark.cluster, RatingMark.node_uid, RatingMark.device_uuid, RatingMark.day_ms)
    for group in groups_of(session, keys):
        marks = (
            select(*columns)
            .where(of_devices(RatingMark, group), RatingMark.ingest_seq != RATED)
            .order_by(*columns)
            .with_for_update()
        )
        for cluster, node_uid, device_uuid, day_ms in session.execute(marks):
            days[DeviceKey(ClusterCode(cluster), NodeUid(node_uid), DeviceUuid(device_uuid))].append(day_ms)
    return {key: runs_of_days(of_card) for key, of_card in sorted(days.items())}
