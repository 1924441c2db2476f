"""Many rows at once, by way of a temporary table: staged there, compared with what is known, merged.

Staging is a binary COPY on PostgreSQL and an `executemany` on SQLite; all else is one SQL on both.
Invariant: after a merge the table holds exactly the staged values under their primary keys, and every
other row is as it was. All of it is part of the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, TypeAlias

import psycopg
from psycopg import sql
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    MetaData,
    Select,
    String,
    Table,
    TextClause,
    Uuid,
    and_,
    any_,
    bindparam,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateTable
from sqlalchemy.types import TypeDecorator, TypeEngine

from accounting.store.base import Base

Insert: TypeAlias = sqlite.Insert | postgresql.Insert

POSITION = "staged_at"
"""The column of a staged row that says where it stood among those that were staged, from 0."""

_NOT_SOUGHT = frozenset({"epoch", "witness"})
"""Parts of keys of which there are few for what stands before them in the key."""

_MAX_COMBINATIONS = 20_000


def insert_into(session: Session, model: type[Base]) -> Insert:
    """An INSERT that can say what happens on conflict, in the words of the session's database."""
    if session.connection().dialect.name == "postgresql":
        return postgresql.insert(model)
    return sqlite.insert(model)


def write_rows(session: Session, model: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, each in place of the one with its primary key.

    Args:
        session: A writing transaction.
        model: The class of the table.
        rows: All columns of each, by name; no primary key twice.
    """
    if rows:
        names = tuple(column.name for column in _table_of(model).columns)
        stage_rows(session, model, names, ([row[name] for name in names] for row in rows))
        merge_staged(session, model, names)


def stage_rows(
    session: Session, model: type[Base], names: tuple[str, ...], rows: Iterable[Sequence[Any]]
) -> None:
    """Put rows in place of those that are staged for a table.

    Args:
        session: A writing transaction.
        model: The class of the table.
        names: The columns that are staged, those of the primary key among them.
        rows: The values of these columns; no primary key twice.
    """
    session.flush()
    connection, staged = session.connection(), _staged(_table_of(model))
    numbered = ((position, *row) for position, row in enumerate(rows))
    if connection.dialect.name == "postgresql":
        _copy(connection, staged, (POSITION, *names), numbered)
    else:
        connection.execute(CreateTable(staged, if_not_exists=True))
        connection.execute(text(f"DELETE FROM {staged.name}"))  # noqa: S608 - a name of ours
        _insert_many(connection, staged, (POSITION, *names), numbered)


def known_rows(
    session: Session, model: type[Base], names: tuple[str, ...], keys: Mapping[tuple[Any, ...], int]
) -> Iterator[tuple[int, Sequence[Any]]]:
    """The rows that the table holds under the keys of the staged ones.

    Args:
        session: The transaction that staged them.
        model: The class of the table.
        names: The columns wanted.
        keys: The position of each staged row by its primary key.

    Yields:
        The position, and the values of the columns.
    """
    connection, table = session.connection(), _table_of(model)
    if connection.dialect.name == "postgresql":
        width = len(table.primary_key)
        for sought in _sought(table, list(keys)):
            for row in connection.execute(_lookup(table, names), sought):
                position = keys.get(tuple(row[:width]))
                if position is not None:
                    yield position, row[width:]
    else:
        for row in connection.execute(_known(table, names)):
            yield row[0], row[1:]


def merge_staged(
    session: Session, model: type[Base], names: tuple[str, ...], constants: Mapping[str, int] | None = None
) -> None:
    """Insert the staged rows, each in place of the one with its primary key.

    Args:
        session: The transaction that staged them.
        model: The class of the table.
        names: The columns that are staged.
        constants: The other columns, which have one value in all rows.
    """
    constants = constants or {}
    session.connection().execute(_merge(_table_of(model), names, tuple(constants)), dict(constants))


def _table_of(model: type[Base]) -> Table:
    table = model.__table__
    assert isinstance(table, Table)
    return table


@cache
def _staged(table: Table) -> Table:
    columns = (Column(column.name, column.type) for column in table.columns)
    position: Column[int] = Column(POSITION, BigInteger)
    return Table(f"staged_{table.name}", MetaData(), position, *columns, prefixes=["TEMPORARY"])


@cache
def _known(table: Table, names: tuple[str, ...]) -> Select[Any]:
    staged = _staged(table)
    met = and_(*(column == staged.columns[column.name] for column in table.primary_key))
    wanted = (table.columns[name] for name in names)
    return select(staged.columns[POSITION], *wanted).select_from(staged).join(table, met)


@cache
def _lookup(table: Table, names: tuple[str, ...]) -> Select[Any]:
    """Rows by lists of what their keys hold: a few more than those of the keys.

    Not a join: PostgreSQL has no statistics of a table that just begins to fill, and may then walk through
    all of it for each staged row. Through lists it walks once at worst.
    """
    wanted = (table.columns[name] for name in names)
    lists = (
        column == any_(bindparam(column.name, type_=postgresql.ARRAY(column.type)))
        for column in table.primary_key
        if column.name not in _NOT_SOUGHT
    )
    return select(*table.primary_key, *wanted).where(*lists)


def _sought(table: Table, keys: Sequence[tuple[Any, ...]]) -> Iterator[dict[str, list[Any]]]:
    """The lists for `_lookup`; one, as long as all hours times all other parts of keys are not too many."""
    columns = [column.name for column in table.primary_key]
    if "hour_ms" not in columns:
        yield _lists(columns, keys)
        return
    hour_at = columns.index("hour_ms")
    chunk: list[tuple[Any, ...]] = []
    hours: set[int] = set()
    for key in sorted(keys, key=itemgetter(hour_at)):
        if key[hour_at] not in hours and len(chunk) * (len(hours) + 1) > _MAX_COMBINATIONS:
            yield _lists(columns, chunk)
            chunk, hours = [], set()
        hours.add(key[hour_at])
        chunk.append(key)
    yield _lists(columns, chunk)


def _lists(columns: Sequence[str], keys: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    return {
        name: list(set(values))
        for name, values in zip(columns, zip(*keys, strict=True), strict=True)
        if name not in _NOT_SOUGHT
    }


@cache
def _merge(table: Table, names: tuple[str, ...], constants: tuple[str, ...]) -> TextClause:
    keys = [column.name for column in table.primary_key]
    changes = (f"{name} = excluded.{name}" for name in (*names, *constants) if name not in keys)
    # SQLite takes the ON of ON CONFLICT for that of a join, where no WHERE stands before it.
    return text(
        f"INSERT INTO {table.name} ({', '.join((*names, *constants))}) "  # noqa: S608 - names of ours
        f"SELECT {', '.join((*names, *(f':{name}' for name in constants)))} FROM staged_{table.name} "
        f"WHERE true ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {', '.join(changes)}"
    )


def _insert_many(
    connection: Connection, staged: Table, names: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    uuids = [place for place, name in enumerate(names) if isinstance(staged.columns[name].type, Uuid)]
    if uuids:
        rows = (_with_text(row, uuids) for row in rows)
    values = list(rows)
    if values:
        # Past SQLAlchemy's own binding, which costs more than the rows do.
        connection.exec_driver_sql(
            f"INSERT INTO {staged.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",  # noqa: S608
            values,
        )


def _with_text(row: Sequence[Any], uuids: Sequence[int]) -> tuple[Any, ...]:
    """A row with its UUIDs in SQLAlchemy's form for a database that has no type for them."""
    values = list(row)
    for place in uuids:
        values[place] = values[place].hex
    return tuple(values)


def _copy(connection: Connection, staged: Table, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    target = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(
        sql.Identifier(staged.name), sql.SQL(", ").join(map(sql.Identifier, names))
    )
    try:
        with driver.cursor() as cursor:
            cursor.execute(_emptied(staged))
            with cursor.copy(target) as copy:
                copy.set_types([_binary_type(staged.columns[name].type) for name in names])
                for row in rows:
                    copy.write_row(row)
    except psycopg.OperationalError as error:
        # A disk that is full, a server that went: the same to callers as from any other statement.
        raise OperationalError(f"COPY {staged.name}", None, error) from error


@cache
def _emptied(staged: Table) -> bytes:
    """Two statements in one message: the table is there, and holds nothing."""
    made = CreateTable(staged, if_not_exists=True).compile(dialect=postgresql.dialect())  # type: ignore[no-untyped-call]
    return f"{made}; TRUNCATE {staged.name}".encode()


def _binary_type(column_type: TypeEngine[Any]) -> str:
    """PostgreSQL's name of the type in whose binary form a value is sent."""
    if isinstance(column_type, TypeDecorator):
        return _binary_type(column_type.impl_instance)
    for known, name in ((BigInteger, "int8"), (String, "text"), (Boolean, "bool"), (Uuid, "uuid")):
        if isinstance(column_type, known):
            return name
    raise TypeError(f"a column of type {column_type!r} cannot be staged")
