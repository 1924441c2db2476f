"""Some cards of one cluster, rated together: read together, swept one by one, written in one transaction.

Invariant: a card is rated by one transaction at a time, which has its marks locked; a transaction that is
stopped or lost leaves cards, lines and marks as they were.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from accounting.ledger.intervals import Interval
from accounting.periods.compute import (
    MS_PER_DAY,
    Computed,
    Rulebook,
    compute_cards,
    read_rulebook,
    runs_of_days,
)
from accounting.periods.months import Periods
from accounting.periods.reading import groups_of, of_devices
from accounting.periods.replacing import RATED, Replacement, open_days, settle_marks
from accounting.store.database import Database
from accounting.store.models import BillingAccount, Cluster, RatingMark, RatingState
from accounting.store.versions import VERSIONED
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

    On SQLite, where a writer keeps all others waiting, they are computed before it begins; should what they
    were computed from have changed by then, they are computed once more.

    Raises:
        StoppedError: `stop` said so; nothing was changed.
    """
    with _uncollected():
        if database.is_postgresql:
            with database.writing(cluster=keys[0].cluster, is_shared=True) as session:
                return rate_cards(session, keys, stop=stop)
        with database.reading() as session:
            plan, basis = _plan(session, keys), _basis(session, keys)
            computed = [(run, list(cards)) for run, cards in _compute(session, plan, stop)]
        with database.writing(cluster=keys[0].cluster) as session:
            if _basis(session, keys) != basis:
                return rate_cards(session, keys, stop=stop)
            return _store(session, plan, computed)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without garbage collection: looking for cycles in what a batch makes would take a third of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def rate_cards(session: Session, keys: Sequence[DeviceKey], *, stop: Stop = never) -> BatchRated:
    """Rate cards of one cluster as of the books' instant: of two ratings, whoever began last has set it.

    Raises:
        StoppedError: `stop` said so; the transaction is to be rolled back.
    """
    plan = _plan(session, keys)
    return _store(session, plan, _compute(session, plan, stop))


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be computed, and by which rules."""

    keys: Sequence[DeviceKey]
    runs: Mapping[DeviceKey, Sequence[Interval]]
    """Of the cards that are due."""
    as_of_ms: int
    grace_ms: int
    rulebook: Rulebook


def _plan(session: Session, keys: Sequence[DeviceKey]) -> _Plan:
    runs = _due_runs(session, keys)
    state = session.get_one(RatingState, 1)
    return _Plan(keys, runs, state.rated_as_of_ms, state.grace_ms, read_rulebook(session))


def _basis(session: Session, keys: Sequence[DeviceKey]) -> list[tuple[object, ...]]:
    """What is another wherever facts of these cards, the instant, rules, prices, accounts or clusters are."""
    found: list[tuple[object, ...]] = []
    for group in groups_of(session, keys):
        marks = select(*RatingMark.__table__.columns).where(of_devices(RatingMark, group))
        found += sorted(tuple(row) for row in session.execute(marks))
    for table in (RatingState, BillingAccount, Cluster):
        found += sorted(tuple(row) for row in session.execute(select(*table.__table__.columns)))
    for versions in VERSIONED:
        counted = select(func.max(versions.id), func.count(), func.count(versions.superseded_at_ms))
        found.append(tuple(session.execute(counted).one()))
    return found


def _compute(session: Session, plan: _Plan, stop: Stop) -> Iterator[tuple[Interval, Iterator[Computed]]]:
    """The cards of each run of days, one after the other."""
    by_run: dict[Interval, list[DeviceKey]] = defaultdict(list)
    for key, of_card in plan.runs.items():
        for run in of_card:
            by_run[run].append(key)
    for run, of_run in sorted(by_run.items()):
        cards = compute_cards(
            session, of_run, run, plan.rulebook, as_of_ms=plan.as_of_ms, grace_ms=plan.grace_ms
        )
        yield run, _unless(stop, cards)


def _unless(stop: Stop, cards: Iterator[Computed]) -> Iterator[Computed]:
    for computed in cards:
        if stop():
            raise StoppedError
        yield computed


def _store(session: Session, plan: _Plan, runs: Iterable[tuple[Interval, Iterable[Computed]]]) -> BatchRated:
    """Put what was computed in place of what stands there."""
    if not plan.runs:
        return BatchRated(len(plan.keys), 0, 0, ())
    tenants, periods = TenantTree(session, now_ms=plan.as_of_ms), Periods(session)
    tenants.idle(plan.rulebook.books[plan.keys[0].cluster].platform.code)
    unsettled: dict[DeviceKey, set[int]] = {key: set() for key in plan.runs}
    unknown: set[DeviceKey] = set()
    days = lines = 0
    for run, cards in runs:
        replacement = Replacement(session, plan.rulebook, tenants, periods)
        for computed in cards:
            replacement.add(computed)
            days += (run[1] - run[0]) // MS_PER_DAY
            lines += len(computed.lines)
            unsettled[computed.card.key] |= open_days(computed, plan.runs[computed.card.key][0][0])
            if computed.card.is_unknown:
                unknown.add(computed.card.key)
        replacement.store()
    settle_marks(session, unsettled)
    return BatchRated(len(plan.keys), days, lines, tuple(sorted(unknown)))


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
