"""The months of accounts: made when first needed, tiling, open until closed.

Invariant: from its first to its latest period an account has every month once, each beginning where the
one before it ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from accounting.errors import NotFoundError
from accounting.ledger.calendar import Month, month_bounds_ms, month_of
from accounting.store.models import BillingAccount, BillingPeriod
from accounting.store.postgresql import lock_making

OPEN = "open"
CLOSING = "closing"
"""Frozen: its lines stand, its statement is being made. Whoever closes it again goes on from there."""
CLOSED = "closed"


def find_account(session: Session, code: str) -> BillingAccount:
    """The billing account of this code.

    Raises:
        NotFoundError: There is none.
    """
    account = session.get(BillingAccount, code)
    if account is None:
        raise no_account(code)
    return account


def no_account(code: str) -> NotFoundError:
    """The answer for an account that is not there, or that the asker may not see."""
    return NotFoundError(f'no account "{code}"; list them with: slicemeter accounting account list')


def find_period(session: Session, account: BillingAccount, month: Month) -> BillingPeriod | None:
    """The period of an account and month, if anything was ever rated in it."""
    starts_at_ms, _ = month_bounds_ms(month, account.time_zone)
    return session.scalar(
        select(BillingPeriod).where(
            BillingPeriod.account == account.code, BillingPeriod.starts_at_ms == starts_at_ms
        )
    )


def require_period(session: Session, account: BillingAccount, month: Month) -> BillingPeriod:
    """The period of an account and month.

    Raises:
        NotFoundError: There is none: nothing was ever rated in it.
    """
    period = find_period(session, account, month)
    if period is None:
        raise NotFoundError(
            f'account "{account.code}" has no period {month}; list them with: '
            "slicemeter accounting periods, or rate first: slicemeter accounting rate"
        )
    return period


def named(period: BillingPeriod, account: BillingAccount) -> str:
    """The month of a period, as `2026-10`."""
    return str(month_of(period.starts_at_ms, account.time_zone))


def list_periods(session: Session, accounts: Sequence[str]) -> Sequence[BillingPeriod]:
    """The periods of these accounts, by account and start."""
    return session.scalars(
        select(BillingPeriod)
        .where(BillingPeriod.account.in_(accounts))
        .order_by(BillingPeriod.account, BillingPeriod.starts_at_ms)
    ).all()


class Periods:
    """Finds and makes periods within one writing transaction, each looked up once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[tuple[str, Month], BillingPeriod] = {}

    def at(self, account: str, time_zone: str, at_ms: int) -> BillingPeriod:
        """The period that holds an instant; made, open, when it is new."""
        month = month_of(at_ms, time_zone)
        known = self._known.get((account, month))
        if known is not None:
            return known
        starts_at_ms, ends_at_ms = month_bounds_ms(month, time_zone)
        wanted = select(BillingPeriod).where(
            BillingPeriod.account == account, BillingPeriod.starts_at_ms == starts_at_ms
        )
        period = self._session.scalar(wanted)
        if period is None:
            lock_making(self._session.connection())
            period = self._session.scalar(wanted)
        if period is None:
            period = BillingPeriod(
                account=account, starts_at_ms=starts_at_ms, ends_at_ms=ends_at_ms, state=OPEN
            )
            self._session.add(period)
            self._session.flush()
        self._known[account, month] = period
        return period

    def tile(self, account: str, time_zone: str, until_ms: int) -> None:
        """Make the months that an account lacks between its first period and an instant."""
        first_ms = self._session.scalar(
            select(func.min(BillingPeriod.starts_at_ms)).where(BillingPeriod.account == account)
        )
        while first_ms is not None and first_ms <= until_ms:
            first_ms = self.at(account, time_zone, first_ms).ends_at_ms

    def open_after(self, account: str, time_zone: str, after_ms: int) -> BillingPeriod:
        """The first open period that begins at or after an instant: where late amounts are posted."""
        period = self.at(account, time_zone, after_ms)
        while period.state != OPEN or period.starts_at_ms < after_ms:
            period = self.at(account, time_zone, period.ends_at_ms)
        return period
