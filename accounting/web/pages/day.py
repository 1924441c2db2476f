"""One day against the day before: what came, what went, what cost another price, and each line to explain.

Invariant: the differences are those of the cost report's rows, so they add up to the difference of the days.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.api.dependencies import InService, Reader
from accounting.errors import InvalidError
from accounting.ledger.calendar import midnight_ms
from accounting.ledger.rounding import EXACT
from accounting.periods.explain import lines_of_day
from accounting.reports.cost import CostRow, report_cost
from accounting.reports.grouping import Filters
from accounting.reports.spans import Span
from accounting.store.models import LedgerLine
from accounting.web.pages.asked import AccountName, OptionalTenant
from accounting.web.pages.months import account_months
from accounting.web.rendering import render

router = APIRouter()

FIRST, LAST = date(1971, 1, 2), date(9998, 12, 30)
_GROUP = ("tenant", "pod", "kind", "day")


@dataclass(frozen=True, slots=True)
class Difference:
    """What one pod of one tenant came to on both days; None: it had nothing that day, or no amount."""

    tenant: str
    pod: str
    kind: str
    currency: str | None
    before_ppm_ms: int
    now_ppm_ms: int
    before: Decimal | None
    now: Decimal | None
    was_there: bool
    is_there: bool

    @property
    def more_ppm_ms(self) -> int:
        """Card time, now less before."""
        return self.now_ppm_ms - self.before_ppm_ms

    @property
    def more(self) -> Decimal | None:
        """Now less before; None where nothing has an amount."""
        if self.before is None and self.now is None:
            return None
        return EXACT.subtract(self.now or Decimal(0), self.before or Decimal(0))

    @property
    def why(self) -> str:
        """In a few words."""
        if not self.was_there:
            return "new that day"
        if not self.is_there:
            return "gone"
        if self.more_ppm_ms > 0:
            return "more card time"
        if self.more_ppm_ms < 0:
            return "less card time"
        return "another price" if self.more else "as the day before"


@dataclass(frozen=True, slots=True)
class Totals:
    """Both days in one currency (None: showback)."""

    currency: str | None
    before_ppm_ms: int
    now_ppm_ms: int
    before: Decimal | None
    now: Decimal | None
    more: Decimal | None


@dataclass(frozen=True, slots=True)
class Day:
    """What the page shows."""

    day: date
    tenant: str | None
    zones: Sequence[str]
    differences: Sequence[Difference]
    """The largest first."""
    totals: Sequence[Totals]
    lines: Sequence[tuple[LedgerLine, str]]
    """With their tenants' paths; only where a tenant was named."""

    @property
    def before(self) -> date:
        """The day before."""
        return self.day - timedelta(days=1)

    @property
    def after(self) -> date:
        """The day after."""
        return self.day + timedelta(days=1)


def day_of(session: Session, viewer: Viewer, day: date, tenant: str | None, account: str | None) -> Day:
    """Compare a day with the one before.

    Raises:
        InvalidError: A day out of all time.
        NotFoundError: No such tenant, or none that the viewer may see.
    """
    if not FIRST <= day <= LAST:
        raise InvalidError(f"no ledger reaches to {day.isoformat()}; write a day like 2026-10-14")
    before, after = day - timedelta(days=1), day + timedelta(days=1)
    span = Span(day.isoformat(), lambda zone: (midnight_ms(before, zone), midnight_ms(after, zone)))
    filters = Filters(tenant=tenant, account=account)
    report = report_cost(session, viewer, span, _GROUP, filters=filters)
    whole = report_cost(session, viewer, span, ("day",), filters=filters)
    named = tenant or viewer.tenant_path
    lines = lines_of_day(session, viewer, named, day) if named else []
    zones = {one.account: one.time_zone for one in account_months(session, viewer)}
    return Day(
        day=day,
        tenant=named,
        zones=sorted({zones[code] for code, _ in report.windows if code in zones}),
        differences=_differences(report.rows, day.isoformat()),
        totals=_totals(whole.rows, day.isoformat()),
        lines=[(line, path) for line, path in lines if account in {None, "", line.account}],
    )


def _card_time(row: CostRow | None) -> int:
    if row is None:
        return 0
    sums = row.sums
    return sums.charged_ppm_ms + sums.idle_ppm_ms + sums.unallocated_ppm_ms + sums.handed_on_ppm_ms


def _differences(rows: Sequence[CostRow], day: str) -> list[Difference]:
    pairs: dict[tuple[str, ...], dict[bool, CostRow]] = {}
    for row in rows:
        *keys, of_day = row.keys
        pairs.setdefault((*keys, row.currency or ""), {})[of_day == day] = row
    found = [_difference(key, pair) for key, pair in pairs.items()]
    return sorted(found, key=lambda one: (-abs(one.more or Decimal(0)), -abs(one.more_ppm_ms), one.pod))


def _difference(key: tuple[str, ...], pair: Mapping[bool, CostRow]) -> Difference:
    before, now = pair.get(False), pair.get(True)
    return Difference(
        tenant=key[0],
        pod=key[1],
        kind=key[2],
        currency=key[3] or None,
        before_ppm_ms=_card_time(before),
        now_ppm_ms=_card_time(now),
        before=None if before is None else before.amount,
        now=None if now is None else now.amount,
        was_there=before is not None,
        is_there=now is not None,
    )


def _totals(rows: Sequence[CostRow], day: str) -> list[Totals]:
    currencies = sorted({row.currency or "" for row in rows})
    found = []
    for currency in currencies:
        mine = [row for row in rows if (row.currency or "") == currency]
        before = next((row for row in mine if row.keys[0] != day), None)
        now = next((row for row in mine if row.keys[0] == day), None)
        amounts = [None if row is None else row.amount for row in (before, now)]
        more = None
        if any(amount is not None for amount in amounts):
            more = EXACT.subtract(*(amount or Decimal(0) for amount in reversed(amounts)))
        found.append(
            Totals(currency or None, _card_time(before), _card_time(now), amounts[0], amounts[1], more)
        )
    return found


@router.get("/day")
def day_page(
    *,
    request: Request,
    service: InService,
    viewer: Reader,
    day: Annotated[date, Query(description="as 2026-10-14")],
    tenant: OptionalTenant = None,
    account: AccountName = None,
) -> Response:
    """A day against the day before."""
    with service.database.reading() as session:
        shown = day_of(session, viewer, day, tenant or None, account or None)
        return render(request, "day.html", viewer=viewer, shown=shown, account=account or "")
