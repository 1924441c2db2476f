"""Does a month hold? Identities, sums, and what is stored against what the facts give again.

Invariant: it writes nothing. A day that is due for rating is *pending*, which is no failure; every
difference on any other day is one, with the card, day and figures named. Closed periods of the month are
checked against their seals (`verify_sealed`).
Source: DESIGN section 5 (three invariants), `reference/ledger.md §9`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, or_, select, text
from sqlalchemy.orm import Session

from accounting.ledger.calendar import Month
from accounting.ledger.intervals import Interval
from accounting.ledger.policies import FOREVER_MS
from accounting.periods.findings import Finding, card_named
from accounting.periods.verify_cards import device_of, due_days, of_month
from accounting.periods.verify_processes import cards_of, verify_in_processes
from accounting.periods.verify_tasks import (
    CardsTask,
    MonthCheck,
    RollupTask,
    SealTask,
    StatementTask,
    Task,
    TaskFound,
)
from accounting.progress import Progress, unseen
from accounting.store.database import Database
from accounting.store.models import DeviceHour, LedgerLine


@dataclass(frozen=True, slots=True)
class Verified:
    """What was checked, what failed, and what waits for the next rating."""

    period: str
    as_of_ms: int | None
    device_hours: int
    lines: int
    statements: int
    days_recomputed: int
    findings: Sequence[Finding]
    pending: Sequence[str]
    """Days of cards that facts or prices touched after they were rated."""
    unrated_models: Sequence[str]
    late: Sequence[str] = ()
    """Differences in closed periods that facts explain which came after the seal."""

    @property
    def holds(self) -> bool:
        """Whether nothing failed."""
        return not self.findings

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to check: a month without devices, lines and statements holds nothing."""
        return not (self.device_hours or self.lines or self.statements or self.days_recomputed)


def verify_period(session: Session, month: Month, *, progress: Progress = unseen) -> Verified:
    """Check a month of every account, in this process.

    Args:
        session: A reading transaction: everything is compared in one state.
        month: The period, cut for each account at its own midnights.
        progress: Who wants to know how far it is.
    """
    check = MonthCheck(session, month)
    return _verify(session, check, month, lambda tasks: _one_by_one(check, tasks, progress))


def verify_month(database: Database, month: Month, *, jobs: int = 1, progress: Progress = unseen) -> Verified:
    """Check a month of every account, in several processes that see one state.

    Args:
        database: The books.
        month: The period, cut for each account at its own midnights.
        jobs: How many processes share the work; SQLite, which cannot show them one state, has one.
        progress: Who wants to know how far it is.

    Raises:
        WorkerEndedError: A process ended by itself.
    """
    with database.reading() as session:
        if jobs == 1 or not database.is_postgresql:
            return verify_period(session, month, progress=progress)
        snapshot = str(session.scalar(text("SELECT pg_export_snapshot()")))
        check = MonthCheck(session, month)
        return _verify(
            session,
            check,
            month,
            lambda tasks: verify_in_processes(database, month, snapshot, tasks, jobs, progress),
        )


def _verify(
    session: Session,
    check: MonthCheck,
    month: Month,
    perform: Callable[[Sequence[Task]], Sequence[TaskFound]],
) -> Verified:
    if not check.windows or check.as_of_ms is None:
        return Verified(str(month), check.as_of_ms, 0, 0, 0, 0, (), _pending(session, (0, FOREVER_MS)), ())
    statements = _Statements(session, check)
    tasks: list[Task] = [SealTask(code) for code in sorted(check.closed)]
    tasks += [RollupTask(), *statements.tasks]
    tasks += [CardsTask(tuple(group)) for group in check.again.groups()]
    found = perform(tasks)
    hour = DeviceHour
    in_whole = hour.hour_ms >= check.whole[0], hour.hour_ms < check.whole[1]
    return Verified(
        period=str(month),
        as_of_ms=check.as_of_ms,
        device_hours=session.scalar(select(func.count()).select_from(hour).where(*in_whole)) or 0,
        lines=statements.lines + _sealed_lines(session, check),
        statements=len(statements.tasks) + len(check.closed),
        days_recomputed=sum(one.days for one in found),
        findings=[*_hours_close(session, *in_whole), *(each for one in found for each in one.findings)],
        pending=_pending(session, check.whole),
        late=[each for one in found for each in one.late],
        unrated_models=statements.unrated_models,
    )


def _one_by_one(check: MonthCheck, tasks: Sequence[Task], progress: Progress) -> list[TaskFound]:
    found = []
    cards = sum(cards_of(task) for task in tasks)
    done = 0
    for task in tasks:
        if isinstance(task, CardsTask):
            progress("computing again", done, cards)
        found.append(check.perform(task, progress))
        done += cards_of(task)
    return found


def _sealed_lines(session: Session, check: MonthCheck) -> int:
    ids = [period.id for period in check.closed.values()]
    return session.scalar(select(func.count()).where(LedgerLine.period_id.in_(ids))) or 0


def _pending(session: Session, window: Interval) -> list[str]:
    return [card_named(key, day_ms) for key, day_ms in sorted(due_days(session, window))]


def _hours_close(session: Session, *where: ColumnElement[bool]) -> Iterator[Finding]:
    table = DeviceHour
    parts = (table.charged_ppm_ms, table.idle_ppm_ms, table.down_ppm_ms)
    is_broken = or_(parts[0] + parts[1] + parts[2] != table.present_ppm_ms, *(part < 0 for part in parts))
    for row in session.scalars(select(table).where(*where, is_broken)):
        yield Finding(
            "device_hour_closes",
            card_named(device_of(row.cluster, row.node_uid, row.device_uuid), row.hour_ms),
            f"charged {row.charged_ppm_ms} + idle {row.idle_ppm_ms} + down {row.down_ppm_ms} is not present "
            f"{row.present_ppm_ms}",
        )


class _Statements:
    """The tenants that have lines in open periods, each with a statement to be checked."""

    def __init__(self, session: Session, check: MonthCheck) -> None:
        line = LedgerLine
        rows = session.execute(
            select(line.account, line.tenant_id, func.count())
            .where(of_month(check.open_windows))
            .group_by(line.account, line.tenant_id)
        ).all()
        self.tasks = [StatementTask(account, of) for account, of in sorted((row[0], row[1]) for row in rows)]
        self.lines = sum(lines for _, _, lines in rows)
        self.unrated_models = session.scalars(
            select(line.model)
            .where(of_month(check.open_windows), line.currency.is_not(None), line.amount.is_(None))
            .distinct()
            .order_by(line.model)
        ).all()
