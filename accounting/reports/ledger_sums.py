"""Ledger lines added up by some of their columns: by the database where it can do so exactly.

SQLite keeps amounts as text and its sums of whole numbers end at 64 bits, so there the lines are read one
by one and added up here; PostgreSQL adds in NUMERIC. Invariant: both give the same sums, to the last digit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, Select, func, literal, select
from sqlalchemy.orm import Session

from accounting.ledger.rounding import EXACT, amount_of
from accounting.store.models import LedgerLine

_ALWAYS = (
    "account",
    "kind",
    "unit",
    "currency",
    "model",
    "corrects_kind",
    "unit_price",
    "discount_percent",
)
"""Few values, and what every report must tell apart."""

_OPTIONAL = ("tenant_id", "cluster", "namespace", "pod", "node", "device_uuid", "sku", "day_ms")
_SUMS = ("own_quantity", "quantity", "held_not_running_quantity", "degraded_quantity")
_ROWS_AT_A_TIME = 5_000


@dataclass(slots=True)
class SummedLines:
    """Lines that have the same values in the columns asked for; those not asked for are empty or 0."""

    account: str
    kind: str
    unit: str
    currency: str | None
    model: str
    corrects_kind: str | None = None
    unit_price: Decimal | None = None
    discount_percent: Decimal | None = None
    tenant_id: int = 0
    cluster: str = ""
    namespace: str = ""
    pod: str = ""
    node: str = ""
    device_uuid: str = ""
    sku: str = ""
    day_ms: int = 0
    lines: int = 0
    own_quantity: int = 0
    quantity: int = 0
    held_not_running_quantity: int = 0
    degraded_quantity: int = 0
    amount: Decimal | None = None
    """Of those that are rated; None: none is."""
    unrated: int = 0

    @property
    def discount(self) -> Decimal:
        """What the list price would come to, less the amount."""
        if not self.discount_percent or self.unit_price is None or self.amount is None:
            return Decimal(0)
        return EXACT.subtract(amount_of(self.quantity, self.unit_price, unit=self.unit), self.amount)


def sum_lines(session: Session, where: Sequence[ColumnElement[bool]], by: Iterable[str]) -> list[SummedLines]:
    """Add up the lines that fulfil conditions.

    Args:
        session: A reading transaction.
        where: Conditions on `LedgerLine`.
        by: Names of columns to tell apart besides those that always are.
    """
    names = (*_ALWAYS, *(name for name in _OPTIONAL if name in set(by)))
    columns = [getattr(LedgerLine, name) for name in names]
    if session.connection().dialect.name == "postgresql":
        return [_made(names, row) for row in session.execute(_in_sql(columns, where))]
    found: dict[tuple[object, ...], SummedLines] = {}
    query = select(*columns, literal(1), *_quantities(), LedgerLine.amount).where(*where)
    for row in session.execute(query.execution_options(yield_per=_ROWS_AT_A_TIME)):
        key = tuple(row[: len(names)])
        one = _made(names, (*row, 0))
        one.unrated = int(one.amount is None)
        known = found.setdefault(key, one)
        if known is not one:
            _add(known, one)
    return list(found.values())


def _quantities() -> list[Any]:
    return [getattr(LedgerLine, name) for name in _SUMS]


def _in_sql(columns: Sequence[Any], where: Sequence[ColumnElement[bool]]) -> Select[Any]:
    sums = [func.sum(column) for column in _quantities()]
    unrated = func.count().filter(LedgerLine.amount.is_(None))
    amount = func.sum(LedgerLine.amount)
    return select(*columns, func.count(), *sums, amount, unrated).where(*where).group_by(*columns)


def _made(names: Sequence[str], row: Sequence[Any]) -> SummedLines:
    lines, *quantities, amount, unrated = row[len(names) :]
    made = SummedLines(
        **dict(zip(names, row, strict=False)),
        lines=lines,
        amount=None if amount is None else Decimal(amount),
        unrated=unrated,
    )
    for name, value in zip(_SUMS, quantities, strict=True):
        setattr(made, name, int(value))
    return made


def _add(known: SummedLines, other: SummedLines) -> None:
    known.lines += other.lines
    known.unrated += other.unrated
    for name in _SUMS:
        setattr(known, name, getattr(known, name) + getattr(other, name))
    if other.amount is not None:
        known.amount = other.amount if known.amount is None else EXACT.add(known.amount, other.amount)
