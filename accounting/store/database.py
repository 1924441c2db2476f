"""The engine and its two kinds of transaction: one that reads, one that writes.

Invariant: a writing transaction holds the write lock from its beginning (`BEGIN IMMEDIATE`), so what it
read cannot have changed when it writes, and two writers wait for each other instead of failing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from accounting.store.errors import StoreError

DEFAULT_URL = "sqlite:///slicemeter.sqlite"

_WRITES = "slicemeter_writes"
_BUSY_TIMEOUT_MS = 30_000


class Database:
    """One database, reached by `reading()` and `writing()`.

    Args:
        url: A SQLAlchemy URL: `sqlite:///relative/path` or `sqlite:////absolute/path`.

    Raises:
        StoreError: The URL is not one, or names a database that is not supported.
    """

    def __init__(self, url: str = DEFAULT_URL) -> None:
        self.url = url
        try:
            parsed = make_url(url)
        except ArgumentError:
            raise StoreError(
                f'database "{url}" is no URL; write for example sqlite:///slicemeter.sqlite'
            ) from None
        if parsed.get_backend_name() != "sqlite" or parsed.database in {None, "", ":memory:"}:
            raise StoreError(
                f'database "{parsed.render_as_string()}": only SQLite files are supported; '
                "write for example sqlite:///slicemeter.sqlite"
            )
        self.engine = create_engine(parsed)
        self._writer = self.engine.execution_options(**{_WRITES: True})
        event.listen(self.engine, "connect", _prepare_connection)
        event.listen(self.engine, "begin", _begin)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A transaction that sees one state of the database and changes nothing."""
        with Session(self.engine) as session:
            yield session
            session.rollback()

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A transaction that is committed when the block ends, and rolled back when it raises."""
        with Session(self._writer) as session, session.begin():
            session.connection()  # takes the lock now, not at the first statement
            yield session

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """A connection of its own for alembic, with foreign keys off.

        A table that is rebuilt is dropped on the way, and SQLite would take the rows that point at it
        along; the switch has no effect inside a transaction, so it is thrown when connecting.
        """
        engine = create_engine(self.engine.url, poolclass=NullPool, execution_options={_WRITES: True})
        event.listen(engine, "connect", _prepare_connection)
        event.listen(engine, "connect", _foreign_keys_off)
        event.listen(engine, "begin", _begin)
        with engine.connect() as connection:
            yield connection

    def close(self) -> None:
        """Let every pooled connection go."""
        self.engine.dispose()


def _prepare_connection(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    # The driver's own transactions begin too late (at the first INSERT); `_begin` begins them.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _foreign_keys_off(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    connection.execute("PRAGMA foreign_keys = OFF")


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
