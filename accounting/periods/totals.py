"""What the lines of a period come to, tenant by tenant; and which of their amounts are wrong.

A closed month of a large cluster has twelve million lines. PostgreSQL adds them up exactly where they lie;
on SQLite, whose sums are floats or overflow, they pass by one after the other. Invariant: both say the
same, to the last digit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, func, literal_column, select, text
from sqlalchemy.orm import Session

from accounting.ledger.rounding import AMOUNT_STEP, EXACT, MJ, amount_of, minor_digits, to_currency
from accounting.store.models import LedgerLine
from contract.units import CARD_HOUR_PPM_MS, MJ_PER_KWH

_ROWS_AT_A_TIME = 2_000

_BUYS = f"CASE unit WHEN '{MJ}' THEN {MJ_PER_KWH}::numeric ELSE {CARD_HOUR_PPM_MS} END * 100"
_EXACT = "quantity * unit_price * (100 - coalesce(discount_percent, 0))"
_OFF_BY_HALF_A_DIGIT = (
    f"(amount IS NULL OR 2 * abs(amount * {_BUYS} - {_EXACT}) >= {AMOUNT_STEP:f} * {_BUYS})"
)


@dataclass(slots=True)
class Totals:
    """Of one tenant's lines; corrections and adjustments only in the amounts."""

    lines: int = 0
    own_ppm_ms: int = 0
    charged_ppm_ms: int = 0
    idle_ppm_ms: int = 0
    amount: Decimal = Decimal(0)
    """The exact sum."""
    shown: Decimal = Decimal(0)
    """The sum of the lines as a statement shows them."""


def totals_by_tenant(session: Session, period_id: int, currency: str | None) -> dict[int, Totals]:
    """The lines of a period, added up by tenant id.

    Args:
        session: A transaction.
        period_id: Which period.
        currency: Of its account; None: amounts are not asked for.
    """
    if session.get_bind().dialect.name == "postgresql":
        return _added_up_there(session, period_id, currency)
    totals: dict[int, Totals] = {}
    line = LedgerLine
    columns = (line.tenant_id, line.kind, line.own_quantity, line.quantity, line.amount)
    rows = session.execute(
        select(*columns).where(line.period_id == period_id).execution_options(yield_per=_ROWS_AT_A_TIME)
    )
    for tenant_id, kind, own, quantity, amount in rows:
        one = totals.setdefault(tenant_id, Totals())
        one.lines += 1
        if kind == "usage":
            one.own_ppm_ms += own
            one.charged_ppm_ms += quantity
        elif kind == "idle":
            one.idle_ppm_ms += quantity
        if amount is not None and currency is not None:
            one.amount = EXACT.add(one.amount, amount)
            one.shown = EXACT.add(one.shown, to_currency(amount, currency))
    return totals


def _added_up_there(session: Session, period_id: int, currency: str | None) -> dict[int, Totals]:
    line = LedgerLine
    money: list[ColumnElement[Any]] = []
    if currency is not None:
        money = [func.sum(line.amount), func.sum(_half_even(minor_digits(currency)))]
    rows = session.execute(
        select(
            line.tenant_id,
            func.count(),
            func.sum(line.own_quantity).filter(line.kind == "usage"),
            func.sum(line.quantity).filter(line.kind == "usage"),
            func.sum(line.quantity).filter(line.kind == "idle"),
            *money,
        )
        .where(line.period_id == period_id)
        .group_by(line.tenant_id)
    )
    return {tenant_id: _totals(*sums) for tenant_id, *sums in rows}


def _totals(lines: int, *sums: Decimal | None) -> Totals:
    """What a sum over no row leaves null is 0."""
    own, charged, idle, amount, shown = (*(one or Decimal(0) for one in sums), Decimal(0), Decimal(0))[:5]
    return Totals(lines, int(own), int(charged), int(idle), amount, shown)


def _half_even(digits: int) -> ColumnElement[Any]:
    """`rounding.to_currency` of an amount in PostgreSQL's words, whose own `round` goes away from zero."""
    half = Decimal(5).scaleb(-digits - 1)
    return literal_column(
        f"CASE WHEN abs(amount - trunc(amount, {digits})) = {half:f} "
        f"AND mod(trunc(amount, {digits}) * {10**digits}, 2) = 0 "
        f"THEN trunc(amount, {digits}) ELSE round(amount, {digits}) END"
    )


def wrong_amounts(session: Session, *where: ColumnElement[bool]) -> Iterator[int]:
    """The ids of priced lines whose amount is not quantity × price less discount, rounded half even.

    PostgreSQL leaves only those to be looked at that are off by half of the last digit or more.
    """
    line = LedgerLine
    columns = (line.id, line.unit, line.quantity, line.unit_price, line.discount_percent, line.amount)
    query = select(*columns).where(*where, line.unit_price.is_not(None))
    if session.get_bind().dialect.name == "postgresql":
        query = query.where(text(_OFF_BY_HALF_A_DIGIT))
    rows = session.execute(query.execution_options(yield_per=_ROWS_AT_A_TIME))
    for line_id, unit, quantity, unit_price, percent, amount in rows:
        assert unit_price is not None
        if amount != amount_of(quantity, unit_price, unit=unit, percent=percent):
            yield line_id
