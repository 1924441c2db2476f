"""Monthly partitions of the tables of hours on PostgreSQL: made ahead, drained into, retired.

Each of the tables is cut by `hour_ms` at the UTC months and has a DEFAULT partition, which takes what no
month's partition is there for. Invariant: an hour is found through its table wherever it lies; no fact is
refused because nobody made a partition in time. SQLite has the same tables in one piece.

Source: `reference/ledger.md §7` (PostgreSQL partitions).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, text
from sqlalchemy.orm import Session

from accounting.ledger.calendar import Month, month_bounds_ms, month_of
from accounting.store.errors import StoreError
from accounting.store.walls import wall_like
from contract.units import MS_PER_DAY

PARTITIONED = ("usage_fact", "unallocated_fact", "device_fact")
MONTHS_AHEAD = 3
MAX_AGE_DAYS = 400
"""As long as facts may come late, their month stays where they are looked for."""

UTC = "UTC"
"""Partitions are cut at UTC midnights, whatever zones the accounts are in."""

_NAME = re.compile(rf"(?:{'|'.join(PARTITIONED)})_(?:p(\d{{4}})(\d{{2}})|default)(?:_retired)?")


@dataclass(frozen=True, slots=True)
class Stray:
    """Hours of one month that lie in a DEFAULT partition."""

    table: str
    month: Month
    rows: int


def is_partition(name: str) -> bool:
    """Whether a table is, or was, part of another."""
    return _NAME.fullmatch(name) is not None


def make_ahead(session: Session, *, now_ms: int, months: int = MONTHS_AHEAD) -> list[str]:
    """Make the partitions of this month and the next ones; returns those that were missing.

    A month with hours in a DEFAULT partition gets none here: `drain` moves them.
    """
    if session.connection().dialect.name != "postgresql":
        return []
    wanted = [month_of(now_ms, UTC)]
    for _ in range(months):
        wanted.append(wanted[-1].next())
    connection = session.connection()
    stray = {(one.table, one.month) for one in strays(session)}
    made = []
    for table in PARTITIONED:
        there = {name for name, _ in _partitions(connection, table)}
        for month in wanted:
            name = _part(table, month)
            if name not in there and (table, month) not in stray:
                connection.execute(
                    text(f"CREATE TABLE {name} PARTITION OF {table} {_bounds(month)}")  # names of ours
                )
                wall_like(connection, name, table)
                made.append(name)
    return made


def strays(session: Session) -> list[Stray]:
    """What lies in the DEFAULT partitions, by table and month: nothing, when partitions are made in time."""
    connection = session.connection()
    if connection.dialect.name != "postgresql":
        return []
    return [stray for table in PARTITIONED for stray in _strays(connection, table)]


def _strays(connection: Connection, table: str) -> Iterator[Stray]:
    hours = connection.execute(
        text(f"SELECT hour_ms, count(*) FROM {table}_default GROUP BY hour_ms")  # noqa: S608 - a name of ours
    )
    counts: dict[Month, int] = {}
    for hour_ms, count in hours:
        month = month_of(hour_ms, UTC)
        counts[month] = counts.get(month, 0) + count
    for month, count in sorted(counts.items(), key=lambda item: item[0].first_day):
        yield Stray(table, month, count)


def drain(session: Session) -> list[Stray]:
    """Give every month in a DEFAULT partition its own one, and move its hours there; returns what moved."""
    connection = session.connection()
    found = strays(session)
    for one in found:
        name = _part(one.table, one.month)
        from_ms, to_ms = month_bounds_ms(one.month, UTC)
        connection.execute(
            text(f"CREATE TABLE {name} (LIKE {one.table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)")
        )
        moved = text(
            f"WITH moved AS (DELETE FROM {one.table}_default "  # noqa: S608 - names of ours
            "WHERE hour_ms >= :from_ms AND hour_ms < :to_ms RETURNING *) "
            f"INSERT INTO {name} SELECT * FROM moved"
        )
        connection.execute(moved, {"from_ms": from_ms, "to_ms": to_ms})
        wall_like(connection, name, one.table)
        connection.execute(text(f"ALTER TABLE {one.table} ATTACH PARTITION {name} {_bounds(one.month)}"))
    return found


def retire(session: Session, before: Month, *, now_ms: int) -> list[str]:
    """Take the months before this one out of their tables; returns the tables that they are from now on.

    What happens to them, an export or a deletion, is for a person to decide: nothing is dropped here.

    Raises:
        StoreError: Facts of these months may still come.
    """
    first_kept_ms = now_ms - MAX_AGE_DAYS * MS_PER_DAY
    if month_bounds_ms(before, UTC)[0] > first_kept_ms:
        raise StoreError(
            f"cannot retire the months before {before}: facts up to {MAX_AGE_DAYS} days old are accepted; "
            f"name {month_of(first_kept_ms, UTC)} or an earlier month"
        )
    connection = session.connection()
    retired = []
    for table in PARTITIONED:
        for name, month in _partitions(connection, table):
            if month is not None and month.first_day < before.first_day:
                # Not CONCURRENTLY: PostgreSQL does not do that beside a DEFAULT partition.
                connection.execute(text(f"ALTER TABLE {table} DETACH PARTITION {name}"))
                connection.execute(text(f"ALTER TABLE {name} RENAME TO {name}_retired"))
                retired.append(f"{name}_retired")
    return retired


def _partitions(connection: Connection, table: str) -> list[tuple[str, Month | None]]:
    """Names of the partitions and their months; None for DEFAULT."""
    names = connection.scalars(
        text(
            "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
            "WHERE inhparent = to_regclass(:parent) ORDER BY relname"
        ),
        {"parent": table},
    )
    found: list[tuple[str, Month | None]] = []
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None:
            month = None if match[1] is None else Month(int(match[1]), int(match[2]))
            found.append((name, month))
    return found


def _part(table: str, month: Month) -> str:
    return f"{table}_p{month.year:04}{month.month:02}"


def _bounds(month: Month) -> str:
    from_ms, to_ms = month_bounds_ms(month, UTC)
    return f"FOR VALUES FROM ({from_ms}) TO ({to_ms})"
