"""Idle capacity of open months as the policy would hand it on, in the form of lines that are none yet.

Invariant: every part that a tenant is given is taken from `platform/idle` too, so nothing is added to the
whole; a cluster whose parts are posted gives none here, since there they are lines.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.ledger.calendar import Month, month_of
from accounting.ledger.intervals import Interval
from accounting.ledger.pricing import SKU_IDLE
from accounting.ledger.rounding import EXACT, PPM_MS
from accounting.ledger.tenancy import IDLE_PATH
from accounting.periods.distribution import DISTRIBUTION, IdleShare
from accounting.periods.idle_view import view_idle
from accounting.periods.months import find_period
from accounting.reports.grouping import Branches, Filters
from accounting.reports.ledger_sums import SummedLines
from accounting.store.models import BillingAccount, Cluster
from accounting.store.walls import CARDS, seeing


def provisional_lines(
    session: Session, account: BillingAccount, window: Interval, branches: Branches, filters: Filters
) -> list[SummedLines]:
    """What an account's tenants would be given, or `platform/idle` would give, on the days of a window."""
    with seeing(session, CARDS):
        platforms = {row.code: row.platform_account for row in session.scalars(select(Cluster))}
    idle_id = next((key for key, path in branches.paths.items() if path == IDLE_PATH), None)
    found = []
    for month in _months(window, account.time_zone):
        view = view_idle(session, account, month, find_period(session, account, month))
        for distribution in view.distributions:
            for share in distribution.shares:
                if share.cluster in view.posted or not window[0] <= share.day_ms < window[1]:
                    continue
                if share.account == account.code and share.tenant_id in branches.paths:
                    found.append(_line(share, account, share.tenant_id, 1))
                if platforms.get(share.cluster) == account.code and idle_id is not None:
                    found.append(_line(share, account, idle_id, -1))
    wanted = filters.columns()
    return [line for line in found if all(getattr(line, name) == value for name, value in wanted.items())]


def _months(window: Interval, time_zone: str) -> Iterator[Month]:
    month, last = month_of(window[0], time_zone), month_of(max(window[0], window[1] - 1), time_zone)
    while month <= last:
        yield month
        month = month.next()


def _line(share: IdleShare, account: BillingAccount, tenant_id: int, sign: int) -> SummedLines:
    amount = share.idle.amount
    if amount is not None and sign < 0:
        amount = EXACT.minus(amount)
    return SummedLines(
        account=account.code,
        kind=DISTRIBUTION,
        unit=PPM_MS,
        currency=account.currency,
        model=share.model,
        tenant_id=tenant_id,
        cluster=share.cluster,
        sku=SKU_IDLE,
        day_ms=share.day_ms,
        lines=0,
        own_quantity=sign * share.idle.quantity_ppm_ms,
        quantity=sign * share.idle.quantity_ppm_ms,
        amount=amount,
        unrated=int(amount is None),
    )
