"""Manual adjustments: an amount that a person adds to a tenant's open period, with a reason.

Invariant: an adjustment is a line of its own. It edits no other line, and it counts in the statement's
total like any line. Source: `reference/ledger.md §4`.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from accounting.access.audit import record, require_reason
from accounting.access.viewer import Viewer
from accounting.errors import InvalidError
from accounting.ledger.calendar import day_bounds_ms
from accounting.ledger.rounding import minor_digits, to_currency
from accounting.numbers import plain_decimal
from accounting.periods.months import OPEN, Periods, find_account, no_account
from accounting.store.models import LedgerLine
from accounting.tenants.tree import find_tenant

KIND = "adjustment"
MAX_AMOUNT = Decimal(10) ** 12


def parse_amount(text: str) -> Decimal:
    """Read an amount, exactly.

    Raises:
        InvalidError: It is no number, 0, or absurd.
    """
    try:
        amount = plain_decimal(text)
    except InvalidOperation:
        raise InvalidError(f'amount "{text}" is no number; write it like -12.50') from None
    if not amount.is_finite() or not amount or abs(amount) > MAX_AMOUNT:
        raise InvalidError(f'amount "{text}" is 0 or beyond {MAX_AMOUNT:f}; write it like -12.50')
    return amount


def adjust(
    session: Session,
    tenant_name: str,
    amount: Decimal,
    *,
    reason: str,
    by: Viewer,
    now_ms: int,
    account_code: str | None = None,
) -> LedgerLine:
    """Add an amount to a tenant's period that is open now.

    Args:
        session: A writing transaction.
        tenant_name: Its path, or its code where only one has it.
        amount: In the account's currency; below 0 in the tenant's favour.
        reason: Why; it stands on the statement.
        by: Who adjusts.
        now_ms: The clock; the line stands on its day.
        account_code: Only for a tenant with lines in several accounts; else its own.

    Raises:
        NotFoundError: No such tenant or account.
        InvalidError: No reason, a showback account, or an amount finer than the currency.
    """
    require_reason(reason, "an adjustment")
    tenant = find_tenant(session, by, tenant_name)
    if account_code is not None and not by.sees_everything:
        raise no_account(account_code)
    account = find_account(session, account_code or tenant.account)
    if account.currency is None:
        raise InvalidError(f'account "{account.code}" is a showback account: it states no money')
    if to_currency(amount, account.currency) != amount:
        digits = minor_digits(account.currency)
        raise InvalidError(f"amount {amount:f} is finer than {account.currency}, which has {digits} digits")
    periods = Periods(session)
    period = periods.at(account.code, account.time_zone, now_ms)
    if period.state != OPEN:
        period = periods.open_after(account.code, account.time_zone, period.ends_at_ms)
    day = day_bounds_ms(max(now_ms, period.starts_at_ms), account.time_zone)
    count = session.scalar(
        select(func.max(LedgerLine.revision)).where(
            LedgerLine.account == account.code, LedgerLine.kind == KIND
        )
    )
    number = (count or 0) + 1
    line = LedgerLine(
        account=account.code,
        period_id=period.id,
        tenant_id=tenant.id,
        kind=KIND,
        sku=KIND,
        resource_key=f"{KIND}/{number}",
        day_ms=day[0],
        charge_from_ms=day[0],
        charge_to_ms=day[1],
        **dict.fromkeys(("cluster", "node_uid", "node", "device_uuid", "model"), ""),
        **dict.fromkeys(("namespace", "pod", "container"), ""),
        own_quantity=0,
        quantity=0,
        held_not_running_quantity=0,
        degraded_quantity=0,
        unit="ppm_ms",
        currency=account.currency,
        amount=amount,
        revision=number,
        reason=reason,
    )
    session.add(line)
    session.flush()
    after: dict[str, str | int | bool | None] = {
        "account": account.code,
        "amount": f"{amount:f}",
        "reason": reason,
        "number": number,
    }
    record(session, at_ms=now_ms, by=by, action="adjust", what=tenant.path, after=after)
    return line
