"""The figures of all periods that are shown, read after a rating and kept for whoever scrapes.

A closed period never changes, so its sums are read once; open ones are read anew. Invariant: what is
published is one state of the books, whole; a scrape never waits for the database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from accounting.access.viewer import COMMAND_LINE
from accounting.budgets.standing import OpenAt, Outlook, Standing, outlooks, standings
from accounting.figures.sums import PeriodSums, sum_period
from accounting.ledger.calendar import midnight_ms, month_of
from accounting.periods.months import CLOSED, named
from accounting.periods.preflight import preflight
from accounting.store.models import BillingAccount, BillingPeriod, DeviceHour, IssuedStatement
from accounting.tenants.rules import read_owners
from accounting.tenants.touched import known_claims
from contract.units import MS_PER_HOUR

CLOSED_SHOWN = 12
"""How many closed periods of an account are shown beside those that are not closed."""

_CHECK_EVERY_MS = 10 * 60_000
"""A preflight reads every line of its period, so it is not done after each rating."""


@dataclass(frozen=True, slots=True)
class ShownPeriod:
    """One period of one account."""

    account: str
    period: str
    state: str
    sums: PeriodSums


@dataclass(frozen=True, slots=True)
class NextClose:
    """The close that is due next in an account.

    Attributes:
        due_ms: When its grace ends.
        blockers: How many findings keep it open, by check; empty before the period is over.
    """

    account: str
    due_ms: int
    blockers: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Figures:
    """One state of the books."""

    periods: Sequence[ShownPeriod] = ()
    closes: Sequence[NextClose] = ()
    mappings: Sequence[tuple[str, str, str]] = ()
    """(cluster, tenant key, path of the tenant), now."""
    violations: int = 0
    """Hours that do not close and statements that are not what their lines add up to."""
    budgets: Sequence[Standing] = ()
    """Of the month that holds this moment in each account."""
    outlooks: Sequence[Outlook] = ()

    @property
    def unrated_models(self) -> frozenset[str]:
        """Models that want a price in a period that is not closed."""
        return frozenset().union(*(each.sums.unrated_models for each in self.periods if each.state != CLOSED))


@dataclass(slots=True)
class FigureBook:
    """Reads figures, and remembers what cannot change any more."""

    _closed: dict[int, PeriodSums] = field(default_factory=dict)
    _blockers: dict[int, tuple[int, Mapping[str, int]]] = field(default_factory=dict)

    def read(self, session: Session, *, now_ms: int) -> Figures:
        """The figures of this moment.

        Args:
            session: A reading transaction that sees everything.
            now_ms: The clock.
        """
        shown: list[ShownPeriod] = []
        closes: list[NextClose] = []
        unclosed: list[BillingPeriod] = []
        violations = 0
        for account in session.scalars(select(BillingAccount).order_by(BillingAccount.code)).all():
            periods = _shown_periods(session, account)
            for period in periods:
                sums = self._sums(session, period)
                shown.append(ShownPeriod(account.code, named(period, account), period.state, sums))
                if period.state == CLOSED:
                    violations += _statement_differs(session, account, period, sums)
            waiting = [period for period in periods if period.state != CLOSED]
            unclosed += waiting
            if waiting:
                closes.append(self._next_close(session, account, waiting[0], now_ms))
        violations += _broken_hours(session, unclosed)
        return Figures(
            shown,
            closes,
            _mappings(session, now_ms),
            violations,
            standings(session, COMMAND_LINE, OpenAt(now_ms)),
            outlooks(session, COMMAND_LINE, OpenAt(now_ms)),
        )

    def _sums(self, session: Session, period: BillingPeriod) -> PeriodSums:
        if period.state != CLOSED:
            return sum_period(session, period)
        if period.id not in self._closed:
            self._closed[period.id] = sum_period(session, period)
        return self._closed[period.id]

    def _next_close(
        self, session: Session, account: BillingAccount, period: BillingPeriod, now_ms: int
    ) -> NextClose:
        month = month_of(period.starts_at_ms, account.time_zone)
        due_day = month.next().first_day + timedelta(days=account.grace_days)
        due_ms = midnight_ms(due_day, account.time_zone)
        if now_ms < period.ends_at_ms:
            return NextClose(account.code, due_ms, {})
        checked_ms, blockers = self._blockers.get(period.id, (-_CHECK_EVERY_MS, {}))
        if now_ms - checked_ms >= _CHECK_EVERY_MS:
            counted: dict[str, int] = {}
            for blocker in preflight(session, account, month, now_ms=now_ms).blockers:
                counted[blocker.check] = counted.get(blocker.check, 0) + 1
            blockers = counted
            self._blockers[period.id] = (now_ms, blockers)
        return NextClose(account.code, due_ms, blockers)


def _shown_periods(session: Session, account: BillingAccount) -> list[BillingPeriod]:
    """All that are not closed and the last closed ones, by start."""
    periods = session.scalars(
        select(BillingPeriod)
        .where(BillingPeriod.account == account.code)
        .order_by(BillingPeriod.starts_at_ms)
    ).all()
    closed = [period for period in periods if period.state == CLOSED][-CLOSED_SHOWN:]
    return [period for period in periods if period.state != CLOSED or period in closed]


def _broken_hours(session: Session, unclosed: Sequence[BillingPeriod]) -> int:
    """How many hours of devices do not close, over the time that is not closed."""
    if not unclosed:
        return 0
    hour = DeviceHour
    broken = select(func.count()).where(
        hour.hour_ms > min(period.starts_at_ms for period in unclosed) - MS_PER_HOUR,
        hour.hour_ms < max(period.ends_at_ms for period in unclosed),
        hour.charged_ppm_ms + hour.idle_ppm_ms + hour.down_ppm_ms != hour.present_ppm_ms,
    )
    return session.scalar(broken) or 0


def _statement_differs(
    session: Session, account: BillingAccount, period: BillingPeriod, sums: PeriodSums
) -> bool:
    """Whether the lines of a closed period add up to something else than its statement says."""
    if account.currency is None:
        return False
    issued = session.scalar(
        select(IssuedStatement.total)
        .where(IssuedStatement.period_id == period.id, IssuedStatement.kind == "statement")
        .order_by(IssuedStatement.revision.desc())
        .limit(1)
    )
    if issued is None:
        return False
    return sums.totals.get(account.currency, issued) != issued


def _mappings(session: Session, now_ms: int) -> list[tuple[str, str, str]]:
    """Which tenant each key belongs to now; a key may belong to several, by namespace or labels."""
    owners = read_owners(session)
    found = set()
    for claim in known_claims(session):
        if claim.cluster in owners.accounts:
            found.add((claim.cluster, claim.tenant_key, owners.of(claim).at(now_ms).path))
    return sorted(found)
