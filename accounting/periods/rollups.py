"""Roll-ups: merged after a rating, compared with what they add up, and made again from it.

Triggers of the database keep them (`store.rollup_tables`), so whoever writes lines does not know of them.
Invariant: merging changes no sum, whoever writes meanwhile: it puts together only rows that it took away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby, islice
from typing import Any, TypeAlias

from sqlalchemy import (
    ColumnElement,
    and_,
    case,
    delete,
    false,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    true,
)
from sqlalchemy.orm import Session

from accounting.ledger.calendar import at_text, local_date
from accounting.ledger.intervals import Interval
from accounting.periods.findings import Finding
from accounting.progress import Progress, unseen
from accounting.store.columns import Exact
from accounting.store.database import Database
from accounting.store.models import BillingAccount, DeviceHour, LedgerLine, RollupDay, RollupHour

_PARTS_PER_TRANSACTION = 16
"""Days of accounts, or hours of clusters, that are merged together."""

RollUp: TypeAlias = type[RollupDay | RollupHour]
_Sums: TypeAlias = tuple[Decimal | int, ...]


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a roll-up adds up the rows of its table."""

    table: RollUp
    of: type[LedgerLine | DeviceHour]
    part: tuple[str, str]
    """The columns of the key by which it is merged."""
    key: tuple[str, ...]
    quantities: tuple[str, ...]
    count: str
    has_amount: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of a row, but its id."""
        money = ("unrated", "amount") if self.has_amount else ()
        return (*self.key, self.count, *self.quantities, *money, "is_merged")

    def columns_of(self, table: Any) -> list[ColumnElement[Any]]:
        """The key, of a row of either table."""
        return [getattr(table, name) for name in self.key]

    def added_up(self, add: Any) -> list[ColumnElement[Any]]:
        """The sums of the rows of its table."""
        sums: list[ColumnElement[Any]] = [
            func.count(),
            *(func.sum(getattr(self.of, name)) for name in self.quantities),
        ]
        if self.has_amount:
            amount = LedgerLine.amount
            sums += [
                func.sum(case((amount.is_(None), 1), else_=0)),
                func.coalesce(add(amount), literal(Decimal(0), Exact())),
            ]
        return sums

    def merged(self, rows: Any, add: Any) -> list[ColumnElement[Any]]:
        """The sums of some of its own rows."""
        sums: list[ColumnElement[Any]] = [
            func.sum(getattr(rows, name)) for name in (self.count, *self.quantities)
        ]
        return [*sums, func.sum(rows.unrated), add(rows.amount)] if self.has_amount else sums


_DAYS = _Shape(
    RollupDay,
    LedgerLine,
    ("account", "day_ms"),
    (
        "account",
        "period_id",
        "tenant_id",
        "kind",
        "sku",
        "day_ms",
        "cluster",
        "model",
        "namespace",
        "unit",
        "currency",
        "unit_price",
        "discount_percent",
        "corrects_kind",
    ),
    ("own_quantity", "quantity", "held_not_running_quantity", "degraded_quantity"),
    "line_count",
    has_amount=True,
)
_HOURS = _Shape(
    RollupHour,
    DeviceHour,
    ("cluster", "hour_ms"),
    ("cluster", "hour_ms", "model"),
    ("present_ppm_ms", "charged_ppm_ms", "idle_ppm_ms", "down_ppm_ms", "confirmed_ms"),
    "device_count",
    has_amount=False,
)
_SHAPES = (_DAYS, _HOURS)


def merge_rollups(database: Database) -> None:
    """Put together what statements added one by one; nothing to do on SQLite, which keeps one row a key."""
    if not database.is_postgresql:
        return
    for shape in _SHAPES:
        with database.reading() as session:
            table: Any = shape.table
            first, second = (getattr(table, name) for name in shape.part)
            parts = session.execute(
                select(first, second).where(~table.is_merged).distinct().order_by(first, second)
            ).all()
        waiting = iter(parts)
        while some := list(islice(waiting, _PARTS_PER_TRANSACTION)):
            with database.writing(is_beside_books=True) as session:
                for part in some:
                    _merge(session, shape, part)


def _merge(session: Session, shape: _Shape, part: Sequence[Any]) -> None:
    table: Any = shape.table
    columns = table.__table__.columns
    taken = (
        delete(table)
        .where(*(columns[name] == value for name, value in zip(shape.part, part, strict=True)))
        .returning(*(columns[name] for name in shape.names))
        .cte("taken")
    )
    key = [taken.c[name] for name in shape.key]
    sums = shape.merged(taken.c, func.sum)
    put = (
        select(*key, *sums, true()).group_by(*key).having(or_(*(one != literal_column("0") for one in sums)))
    )
    session.execute(insert(table).from_select(shape.names, put))


def rebuild_rollups(session: Session) -> None:
    """Make all roll-ups again from the lines and device hours.

    Args:
        session: A writing transaction that has the books for itself.
    """
    for shape in _SHAPES:
        session.execute(delete(shape.table))
        columns = shape.columns_of(shape.of)
        rows = select(*columns, *shape.added_up(_adds(session)), literal(True)).group_by(*columns)
        session.execute(insert(shape.table).from_select(shape.names, rows))


def _adds(session: Session) -> Any:
    """What adds amounts up exactly."""
    return func.sum if session.get_bind().dialect.name == "postgresql" else func.exact_sum


def rollup_findings(
    session: Session, windows: Mapping[str, Interval], hours: Interval, *, progress: Progress = unseen
) -> Iterator[Finding]:
    """The first day of each account, and hour of each cluster, whose roll-up is not what it adds up.

    Args:
        session: A reading transaction.
        windows: By account: the days that are looked at.
        hours: The device hours that are looked at.
        progress: Who wants to know how far it is.
    """
    zones = {one.code: one.time_zone for one in session.scalars(select(BillingAccount))}
    progress("adding up roll-ups", 0, len(_SHAPES))
    for account, day_ms, detail in _firsts(session, _DAYS, lambda table: _of_days(table, windows)):
        yield Finding("rollup", f"{account} {local_date(day_ms, zones[account])}", detail)
    progress("adding up roll-ups", 1, len(_SHAPES))
    for cluster, hour_ms, detail in _firsts(
        session, _HOURS, lambda table: and_(table.hour_ms >= hours[0], table.hour_ms < hours[1])
    ):
        yield Finding("rollup", f"{cluster} {at_text(hour_ms)}", detail)


def _of_days(table: Any, windows: Mapping[str, Interval]) -> ColumnElement[bool]:
    return or_(
        false(),
        *(
            and_(table.account == code, table.day_ms >= start, table.day_ms < end)
            for code, (start, end) in windows.items()
        ),
    )


def _firsts(session: Session, shape: _Shape, where: Any) -> Iterator[tuple[str, int, str]]:
    """By the first column of a part: the first part that differs, and how."""
    table: Any = shape.table
    add = _adds(session)
    stands = _read(session, shape, shape.added_up(add), shape.of, where)
    kept = _read(session, shape, shape.merged(table, add), table, where)
    at = [shape.key.index(name) for name in shape.part]
    differing = sorted(
        {(key[at[0]], key[at[1]]) for key in stands.keys() | kept.keys() if stands.get(key) != kept.get(key)}
    )
    for whose, parts in groupby(differing, key=lambda part: part[0]):
        first = next(parts)[1]
        figures = [
            [sum(column) for column in zip(*_of_part(sums, at, (whose, first)), strict=True)]
            for sums in (stands, kept)
        ]
        names = [name for name in shape.names if name not in (*shape.key, "is_merged")]
        shown = [dict(zip(names, map(str, each), strict=False)) for each in figures]
        differs = f"{shape.of.__tablename__} comes to {shown[0]}, the roll-up says {shown[1]}"
        yield whose, first, f"{differs}; make it again with: slicemeter accounting migrate --rebuild-rollups"


def _of_part(sums: Mapping[tuple[Any, ...], _Sums], at: Sequence[int], part: tuple[Any, Any]) -> list[_Sums]:
    return [one for key, one in sums.items() if (key[at[0]], key[at[1]]) == part]


def _read(
    session: Session, shape: _Shape, sums: Sequence[ColumnElement[Any]], table: Any, where: Any
) -> dict[tuple[Any, ...], _Sums]:
    columns = shape.columns_of(table)
    found: dict[tuple[Any, ...], _Sums] = {}
    for row in session.execute(select(*columns, *sums).where(where(table)).group_by(*columns)):
        values = tuple(Decimal(value) for value in row[len(columns) :])
        if any(values):
            found[tuple(row[: len(columns)])] = values
    return found
