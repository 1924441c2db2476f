"""SQLite, the embedded database: how it is connected to, and how its transactions begin.

Invariant: a writing transaction holds the write lock from its first statement (`BEGIN IMMEDIATE`).
"""

from __future__ import annotations

import sqlite3

from sqlalchemy import URL, Connection, Engine, Pool, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry

WRITES = "slicemeter_writes"
"""The execution option that marks the engine of writers."""

_BUSY_TIMEOUT_MS = 30_000


def open_engine(url: URL, *, poolclass: type[Pool] | None = None, keeps_foreign_keys: bool = True) -> Engine:
    """An engine whose connections are durable and whose transactions begin where SQLAlchemy says."""
    engine = create_engine(url, poolclass=poolclass)
    event.listen(engine, "connect", _prepare_connection)
    if not keeps_foreign_keys:
        event.listen(engine, "connect", _foreign_keys_off)
    event.listen(engine, "begin", _begin)
    return engine


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
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
