"""SQLite, the embedded database: how it is connected to, and how its transactions begin.

Invariant: a writing transaction holds the write lock from its first statement (`BEGIN IMMEDIATE`).
SQLite cannot add amounts exactly, so every connection brings `exact_add` and `exact_sum`; the triggers that
keep the roll-ups use the first.
"""

from __future__ import annotations

import sqlite3
from decimal import ROUND_HALF_EVEN, Context, Decimal

from sqlalchemy import URL, Connection, Engine, Pool, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry

WRITES = "slicemeter_writes"
"""The execution option that marks the engine of writers."""

_BUSY_TIMEOUT_MS = 30_000

_WIDE = Context(prec=50, rounding=ROUND_HALF_EVEN)
"""No sum of amounts has more digits."""


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
    connection.create_function("exact_add", 3, _exact_add, deterministic=True)
    connection.create_aggregate("exact_sum", 1, _ExactSum)  # type: ignore[arg-type] # its stub knows whole numbers only


def _exact_add(amount: str, change: str | None, sign: int) -> str:
    """An amount, with another counted for (1) or against it (-1); an absent one changes nothing."""
    if change is None:
        return amount
    add = _WIDE.add if sign > 0 else _WIDE.subtract
    return f"{add(Decimal(amount), Decimal(change)):f}"


class _ExactSum:
    """SQLite's SUM of amounts: null over none."""

    def __init__(self) -> None:
        self._sum: Decimal | None = None

    def step(self, amount: str | None) -> None:
        if amount is not None:
            self._sum = _WIDE.add(self._sum or Decimal(0), Decimal(amount))

    def finalize(self) -> str | None:
        return None if self._sum is None else f"{self._sum:f}"


def _foreign_keys_off(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    connection.execute("PRAGMA foreign_keys = OFF")


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
