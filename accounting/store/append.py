"""Rows that are new, many at once: COPY into a temporary table and one INSERT on PostgreSQL.

COPY straight into a table is refused where row-level security holds, and the triggers that check the rows
of a statement as one set want one statement. Values go as text: a driver that gives each its binary form
takes twice as long. Elsewhere one statement is executed with all rows.
Invariant: it is part of the caller's transaction; a row whose key is there already fails it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import psycopg
from sqlalchemy import Connection, Table, insert
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from accounting.store.base import Base

_DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]
_ROWS_PER_WRITE = 500
_ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
"""PostgreSQL's manual, COPY, text format."""

_FEW = 200
"""For fewer rows than these, making a temporary table costs more than it saves."""


def append_rows(
    session: Session, model: type[Base], names: tuple[str, ...], rows: Sequence[Sequence[Any]]
) -> None:
    """Insert rows that are not there yet.

    Args:
        session: A writing transaction.
        model: The class of the table.
        names: The columns that have values; the others get their defaults.
        rows: The values of these columns, as Python has them.
    """
    if not rows:
        return
    session.flush()
    table = model.__table__
    assert isinstance(table, Table)
    connection = session.connection()
    if connection.dialect.name == "postgresql" and len(rows) >= _FEW:
        _copy(connection, table, names, rows)
    else:
        connection.execute(insert(table), [dict(zip(names, row, strict=True)) for row in rows])


def _copy(
    connection: Connection, table: Table, names: tuple[str, ...], rows: Sequence[Sequence[Any]]
) -> None:
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    made, copied, inserted = _statements(table, names)
    with driver.cursor() as cursor:
        cursor.execute(made)
        with cursor.copy(copied) as copy:
            for start in range(0, len(rows), _ROWS_PER_WRITE):
                copy.write("".join(map(_as_text, rows[start : start + _ROWS_PER_WRITE])))
        cursor.execute(inserted)


def _as_text(row: Sequence[Any]) -> str:
    """A row as a line of COPY's text format."""
    text = "\t".join(["\\N" if value is None else str(value) for value in row])
    needs_escapes = text.count("\t") >= len(row) or text.count("\\") > row.count(None)
    if needs_escapes or "\n" in text or "\r" in text:
        escaped = (str(value).translate(_ESCAPED) for value in row)
        text = "\t".join("\\N" if value is None else each for value, each in zip(row, escaped, strict=True))
    return text + "\n"


@cache
def _statements(table: Table, names: tuple[str, ...]) -> tuple[bytes, bytes, bytes]:
    """Make the temporary table, fill it, add its rows to the other."""
    added, listed = f"added_{table.name}", ", ".join(names)
    columns = ", ".join(f"{name} {table.columns[name].type.compile(_DIALECT)}" for name in names)
    made = f"CREATE TEMPORARY TABLE IF NOT EXISTS {added} ({columns}) ON COMMIT DELETE ROWS; TRUNCATE {added}"
    copied = f"COPY {added} ({listed}) FROM STDIN"
    inserted = f"INSERT INTO {table.name} ({listed}) SELECT {listed} FROM {added}"  # noqa: S608 - names of ours
    return made.encode(), copied.encode(), inserted.encode()
