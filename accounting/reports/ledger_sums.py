"""Ledger lines added up by some of their columns: from their roll-up by day wherever it has the columns.

SQLite keeps amounts as text and its sums of whole numbers end at 64 bits, so there the rows are read one
by one and added up here; PostgreSQL adds in NUMERIC. Invariant: both, and both sources, give the same sums,
to the last digit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Select, case, func, literal, select
from sqlalchemy.orm import Session

from accounting.ledger.rounding import EXACT, amount_of
from accounting.store.models import LedgerLine, RollupDay

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
_ON_LINES_ALONE = frozenset({"pod", "node", "device_uuid"})
_ROWS_AT_A_TIME = 5_000

Source: TypeAlias = type[LedgerLine] | type[RollupDay]


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


def source_of(by: Iterable[str], filtered: Iterable[str]) -> Source:
    """The roll-up, unless what is told apart or filtered by stands on lines alone.

    Args:
        by: Names of columns to tell apart.
        filtered: Names of columns that conditions speak of.
    """
    return LedgerLine if _ON_LINES_ALONE & {*by, *filtered} else RollupDay


def sum_lines(
    session: Session, source: Source, where: Sequence[ColumnElement[bool]], by: Iterable[str]
) -> list[SummedLines]:
    """Add up the lines that fulfil conditions.

    Args:
        session: A reading transaction.
        source: What `source_of` said.
        where: Conditions on the source.
        by: Names of columns to tell apart besides those that always are.
    """
    names = (*_ALWAYS, *(name for name in _OPTIONAL if name in set(by)))
    columns = [getattr(source, name) for name in names]
    if session.connection().dialect.name == "postgresql":
        rows = session.execute(_in_sql(source, columns, where))
        return [one for row in rows if (one := _made(names, row)).lines]
    found: dict[tuple[object, ...], SummedLines] = {}
    query = select(*columns, *_summands(source)).where(*where)
    for row in session.execute(query.execution_options(yield_per=_ROWS_AT_A_TIME)):
        key = tuple(row[: len(names)])
        one = _made(names, row)
        known = found.setdefault(key, one)
        if known is not one:
            _add(known, one)
    return [one for one in found.values() if one.lines]


def _summands(source: Source) -> list[Any]:
    """Of one row: how many lines, how many without an amount, their quantities, their amount."""
    quantities = [getattr(source, name) for name in _SUMS]
    if source is RollupDay:
        return [RollupDay.line_count, RollupDay.unrated, *quantities, RollupDay.amount]
    return [literal(1), case((LedgerLine.amount.is_(None), 1), else_=0), *quantities, LedgerLine.amount]


def _in_sql(source: Source, columns: Sequence[Any], where: Sequence[ColumnElement[bool]]) -> Select[Any]:
    sums = [func.sum(one) for one in _summands(source)]
    return select(*columns, *sums).where(*where).group_by(*columns)


def _made(names: Sequence[str], row: Sequence[Any]) -> SummedLines:
    lines, unrated, *quantities, amount = row[len(names) :]
    made = SummedLines(
        **dict(zip(names, row, strict=False)),
        lines=int(lines),
        amount=None if amount is None or lines == unrated else Decimal(amount),
        unrated=int(unrated),
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
