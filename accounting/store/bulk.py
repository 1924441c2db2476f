"""Many rows at once: COPY into staging and a merge on PostgreSQL, a batched upsert on SQLite.

Invariant: whichever way rows take, afterwards the table holds exactly the given values under their
primary keys, and every other row is as it was. Both ways are part of the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import psycopg
from psycopg import sql
from sqlalchemy import Column, Connection, MetaData, Table, and_, delete, select, text
from sqlalchemy import insert as core_insert
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateTable

from accounting.store.base import Base

Insert: TypeAlias = sqlite.Insert | postgresql.Insert


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
    if not rows:
        return
    session.flush()
    table = _table_of(model)
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        _copy_and_merge(connection, table, rows)
    else:
        session.execute(_upsert(table), list(rows))


@cache
def _upsert(table: Table) -> sqlite.Insert:
    statement = sqlite.insert(table)
    keys = list(table.primary_key)
    return statement.on_conflict_do_update(
        index_elements=keys,
        set_={column.name: statement.excluded[column.name] for column in table.columns if column not in keys},
    )


def rows_of_keys(
    session: Session, model: type[Base], keys: Iterable[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """The rows of a table that have one of these primary keys, as tuples in the order of its columns.

    The keys are joined as a temporary table: for a list of row values SQLite would scan the whole table
    of facts, and a statement with thousands of values takes longer to write than to run.
    """
    table = _table_of(model)
    connection, wanted = session.connection(), _wanted_keys(table)
    names = [column.name for column in wanted.columns]
    connection.execute(CreateTable(wanted, if_not_exists=True))
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"TRUNCATE {wanted.name}"))
        _copy(connection, wanted.name, names, keys)
    else:
        connection.execute(delete(wanted))
        connection.execute(core_insert(wanted), [dict(zip(names, key, strict=True)) for key in keys])
    met = and_(*(column == wanted.columns[column.name] for column in table.primary_key))
    found = connection.execute(select(table).select_from(wanted).join(table, met))
    return [tuple(row) for row in found]


def _table_of(model: type[Base]) -> Table:
    table = model.__table__
    assert isinstance(table, Table)
    return table


@cache
def _wanted_keys(table: Table) -> Table:
    columns = (Column(column.name, column.type) for column in table.primary_key)
    return Table(f"wanted_{table.name}", MetaData(), *columns, prefixes=["TEMPORARY"])


def _copy_and_merge(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    names = [column.name for column in table.columns]
    cursor = _driver(connection).cursor()
    for statement in _empty_stage(table):
        cursor.execute(statement)
    _copy(connection, f"staged_{table.name}", names, ([row[name] for name in names] for row in rows))
    cursor.execute(_merge(table))


def _copy(connection: Connection, table: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    target = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, names))
    )
    with _driver(connection).cursor().copy(target) as copy:
        for row in rows:
            copy.write_row(row)


def _driver(connection: Connection) -> psycopg.Connection[Any]:
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver


@cache
def _empty_stage(table: Table) -> tuple[sql.Composed, sql.Composed]:
    staged = sql.Identifier(f"staged_{table.name}")
    return (
        sql.SQL("CREATE TEMPORARY TABLE IF NOT EXISTS {} (LIKE {})").format(
            staged, sql.Identifier(table.name)
        ),
        sql.SQL("TRUNCATE {}").format(staged),
    )


@cache
def _merge(table: Table) -> sql.Composed:
    keys = [column.name for column in table.primary_key]
    others = [column.name for column in table.columns if column.name not in keys]
    return sql.SQL(
        "INSERT INTO {table} ({columns}) SELECT {columns} FROM {staged} "
        "ON CONFLICT ({keys}) DO UPDATE SET {changes}"
    ).format(
        staged=sql.Identifier(f"staged_{table.name}"),
        table=sql.Identifier(table.name),
        columns=sql.SQL(", ").join(sql.Identifier(column.name) for column in table.columns),
        keys=sql.SQL(", ").join(map(sql.Identifier, keys)),
        changes=sql.SQL(", ").join(
            sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others
        ),
    )
