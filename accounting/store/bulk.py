"""Many rows at once, by way of a temporary table: staged there, compared with what is known, merged.

Staging is a binary COPY on PostgreSQL and an `executemany` on SQLite; all else is one SQL on both.
Invariant: after a merge the table holds exactly the staged values under their primary keys, and every
other row is as it was. All of it is part of the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import psycopg
from psycopg import sql
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    MetaData,
    String,
    Table,
    TextClause,
    Uuid,
    and_,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateTable
from sqlalchemy.types import TypeDecorator, TypeEngine

from accounting.store.base import Base

Insert: TypeAlias = sqlite.Insert | postgresql.Insert

POSITION = "staged_at"
"""The column of a staged row that says where it stood among those that were staged, from 0."""


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
    session: Session, model: type[Base], within: tuple[str, int, int] | None = None
) -> list[tuple[int, tuple[Any, ...]]]:
    """The rows that the table holds under the keys of the staged ones, each with the position of that one.

    Args:
        session: The transaction that staged them.
        model: The class of the table.
        within: A column of the key and the least and largest value that it has among the staged rows: what
            a table is partitioned by leads to its parts only as a constant.

    Returns:
        Positions, and values in the order of the table's columns.
    """
    table = _table_of(model)
    staged = _staged(table)
    met = and_(*(column == staged.columns[column.name] for column in table.primary_key))
    query = select(staged.columns[POSITION], table).select_from(staged).join(table, met)
    if within is not None:
        name, least, largest = within
        query = query.where(table.columns[name].between(least, largest))
    return [(position, tuple(values)) for position, *values in session.connection().execute(query)]


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
    with driver.cursor() as cursor:
        cursor.execute(_emptied(staged))
        target = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(
            sql.Identifier(staged.name), sql.SQL(", ").join(map(sql.Identifier, names))
        )
        with cursor.copy(target) as copy:
            copy.set_types([_binary_type(staged.columns[name].type) for name in names])
            for row in rows:
                copy.write_row(row)


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
