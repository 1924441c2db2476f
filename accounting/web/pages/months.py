"""Which month a page shows, and which others there are.

Invariant: a month that nobody asked for is the newest that has anything in it; one that somebody asked for
is shown, empty or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Query
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.errors import InvalidError
from accounting.ledger.calendar import CalendarError, Month, month_of, parse_month
from accounting.periods.months import list_periods, named
from accounting.reports.books import visible_accounts

AskedMonth = Annotated[str | None, Query(alias="period", max_length=7)]
"""As `2026-10`."""


@dataclass(frozen=True, slots=True)
class AccountMonth:
    """A month of one account."""

    account: str
    period: str
    state: str
    time_zone: str
    currency: str | None
    starts_at_ms: int
    ends_at_ms: int


@dataclass(frozen=True, slots=True)
class Months:
    """The month shown, and the others."""

    chosen: Month
    known: Sequence[str]
    """Newest first."""
    accounts: Sequence[AccountMonth]
    """Of the chosen month."""
    zones: Mapping[str, str]
    """By account."""

    @property
    def zone(self) -> str:
        """Whose months reports are cut in that know no account: that of all accounts, or UTC."""
        zones = set(self.zones.values())
        return zones.pop() if len(zones) == 1 else "UTC"

    @property
    def before(self) -> str | None:
        """The month before, if there is one."""
        return max((one for one in self.known if one < str(self.chosen)), default=None)

    @property
    def after(self) -> str | None:
        """The month after, if there is one."""
        return min((one for one in self.known if one > str(self.chosen)), default=None)


def months_of(session: Session, viewer: Viewer, asked: str | None, *, now_ms: int) -> Months:
    """The month asked for, or the newest that a viewer has.

    Raises:
        InvalidError: It is no month.
    """
    found = account_months(session, viewer)
    known = sorted({one.period for one in found}, reverse=True)
    try:
        chosen = parse_month(asked) if asked else parse_month(known[0]) if known else month_of(now_ms, "UTC")
    except CalendarError as error:
        raise InvalidError(str(error)) from None
    return Months(
        chosen=chosen,
        known=known if str(chosen) in known else sorted({*known, str(chosen)}, reverse=True),
        accounts=[one for one in found if one.period == str(chosen)],
        zones={one.account: one.time_zone for one in found},
    )


def account_months(session: Session, viewer: Viewer) -> list[AccountMonth]:
    """Every month of the accounts of a viewer's tenants, by account and start."""
    accounts = visible_accounts(session, viewer)
    return [
        AccountMonth(
            account=period.account,
            period=named(period, accounts[period.account]),
            state=period.state,
            time_zone=accounts[period.account].time_zone,
            currency=accounts[period.account].currency,
            starts_at_ms=period.starts_at_ms,
            ends_at_ms=period.ends_at_ms,
        )
        for period in list_periods(session, sorted(accounts))
    ]
