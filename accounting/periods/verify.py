"""Does a month hold? Identities, sums, and what is stored against what the facts give again.

Invariant: it writes nothing. A day that is due for rating is *pending*, which is no failure; every
difference on any other day is one, with the card, day and figures named. Closed periods of the month are
checked against their seals (`verify_sealed`).
Source: DESIGN section 5 (three invariants), `reference/ledger.md §9`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session

from accounting.access.viewer import COMMAND_LINE, is_at_or_below
from accounting.ledger.calendar import Month, month_bounds_ms
from accounting.ledger.intervals import Interval
from accounting.ledger.policies import FOREVER_MS
from accounting.ledger.rounding import exact_sum, to_currency
from accounting.periods.compute import MS_PER_DAY
from accounting.periods.findings import Finding, card_named
from accounting.periods.months import CLOSED
from accounting.periods.rollups import rollup_findings
from accounting.periods.statement import rated_as_of_ms, state_statement
from accounting.periods.verify_cards import CardsAgain, device_of, due_days, of_month
from accounting.periods.verify_sealed import SealedVerified, closed_periods, verify_sealed
from accounting.progress import Progress, unseen
from accounting.store.models import (
    BillingAccount,
    DeviceHour,
    LedgerLine,
    Tenant,
)


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
    """Check a month of every account.

    Args:
        session: A reading transaction: everything is compared in one state.
        month: The period, cut for each account at its own midnights.
        progress: Who wants to know how far it is.
    """
    windows = {
        account.code: month_bounds_ms(month, account.time_zone)
        for account in session.scalars(select(BillingAccount).order_by(BillingAccount.code))
    }
    as_of_ms = rated_as_of_ms(session)
    if not windows or as_of_ms is None:
        return Verified(str(month), as_of_ms, 0, 0, 0, 0, (), _pending(session, (0, FOREVER_MS)), ())
    whole = (min(start for start, _ in windows.values()), max(end for _, end in windows.values()))
    whole = (whole[0] - whole[0] % MS_PER_DAY, -(-whole[1] // MS_PER_DAY) * MS_PER_DAY)
    closed = closed_periods(session, windows, (CLOSED,))
    sealed = SealedVerified()
    for code, period in sorted(closed.items()):
        account = session.get_one(BillingAccount, code)
        verify_sealed(session, account, period, sealed, progress=progress)
        sealed.statements += 1
    rollups = list(rollup_findings(session, windows, whole, progress=progress))
    windows = {code: window for code, window in windows.items() if code not in closed}
    statements = _Statements(session, month, windows)
    again = CardsAgain(session, windows, whole, as_of_ms=as_of_ms)
    in_whole = DeviceHour.hour_ms >= whole[0], DeviceHour.hour_ms < whole[1]
    findings = [
        *_hours_close(session, *in_whole),
        *statements.findings(),
        *again.findings(progress),
        *sealed.findings,
        *rollups,
    ]
    return Verified(
        period=str(month),
        as_of_ms=as_of_ms,
        device_hours=session.scalar(select(func.count()).select_from(DeviceHour).where(*in_whole)) or 0,
        lines=statements.lines + sealed.lines,
        statements=statements.count + sealed.statements,
        days_recomputed=again.days + sealed.days,
        findings=findings,
        pending=_pending(session, whole),
        late=sealed.late,
        unrated_models=statements.unrated_models,
    )


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
    """The statement of every tenant that has lines, against those lines; one tenant's at a time."""

    def __init__(self, session: Session, month: Month, windows: Mapping[str, Interval]) -> None:
        self._session = session
        self._month = month
        self._windows = windows
        line = LedgerLine
        rows = session.execute(
            select(line.account, line.tenant_id, func.count())
            .where(of_month(windows))
            .group_by(line.account, line.tenant_id)
        ).all()
        self._of = sorted((account, tenant_id) for account, tenant_id, _ in rows)
        self.count = len(rows)
        self.lines = sum(lines for _, _, lines in rows)
        self.unrated_models = session.scalars(
            select(line.model)
            .where(of_month(windows), line.currency.is_not(None), line.amount.is_(None))
            .distinct()
            .order_by(line.model)
        ).all()

    def findings(self) -> Iterator[Finding]:
        for account, tenant_id in self._of:
            tenant = self._session.get_one(Tenant, tenant_id)
            stated = state_statement(
                self._session, COMMAND_LINE, self._month, tenant.path, account_code=account
            )
            self._session.expunge_all()
            if stated.currency is None or stated.total is None or stated.rounding is None:
                continue
            exact = self._exact(account, tenant.path)
            shown = exact_sum(line.shown for line in stated.lines if line.shown is not None)
            wanted = to_currency(exact, stated.currency)
            if stated.total != wanted or shown + stated.rounding != stated.total:
                yield Finding(
                    "statement_adds_up",
                    f"{tenant.path} in {account}",
                    f"lines: {exact}, shown {shown} + rounding {stated.rounding}, total {stated.total}",
                )

    def _exact(self, account: str, path: str) -> Decimal:
        """The amounts of a tenant and of all below it, as its statement has them."""
        amounts = self._session.scalars(
            select(LedgerLine.amount)
            .join(Tenant, Tenant.id == LedgerLine.tenant_id)
            .where(
                of_month({account: self._windows[account]}),
                is_at_or_below(path),
                LedgerLine.amount.is_not(None),
            )
        )
        return exact_sum(amount for amount in amounts if amount is not None)
