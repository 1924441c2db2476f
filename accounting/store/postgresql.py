"""PostgreSQL, the database of a company: how it is connected to, and which locks its writers take.

Invariant: a writer either has the books for itself, or only the facts and ledger of one cluster, and then
beside it work only writers of other clusters. The lock is taken by the first statement and let go by the
commit, so what a writer reads cannot have changed when it writes.
"""

from __future__ import annotations

import re
import zlib

from sqlalchemy import URL, Connection, Engine, Pool, create_engine, text
from sqlalchemy.orm import Session, SessionTransaction

_LOCK_TIMEOUT_MS = 30_000
_TABLE_LOCK_TIMEOUT_MS = 10_000
_MAX_CONNECTIONS = 40
"""As many as the service has threads for requests."""

_NAMESPACE = 0x534D
"""Our advisory locks are pairs (this, what); 0 is the whole of the books."""

_BOOKS = 0

_SNAPSHOT = re.compile(r"[0-9A-F-]+")


def open_engine(url: URL, *, poolclass: type[Pool] | None = None) -> Engine:
    """An engine whose connections live in UTC and wait no longer than half a minute for a lock."""
    arguments = {"application_name": "slicemeter"}
    if "options" not in url.query:
        # A plan that was made while a table was empty must not be kept until it holds a month.
        arguments["options"] = (
            f"-c timezone=UTC -c lock_timeout={_LOCK_TIMEOUT_MS} -c plan_cache_mode=force_custom_plan"
        )
    url = url.set(drivername="postgresql+psycopg")
    if poolclass is not None:
        return create_engine(url, connect_args=arguments, poolclass=poolclass)
    return create_engine(
        url, connect_args=arguments, pool_pre_ping=True, max_overflow=_MAX_CONNECTIONS - 5, pool_size=5
    )


def take_snapshot(
    name: str, _session: Session, _transaction: SessionTransaction, connection: Connection
) -> None:
    """See what another transaction sees; as the first thing in one's own, a listener of `after_begin`."""
    if _SNAPSHOT.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no snapshot's name")
    connection.exec_driver_sql(f"SET TRANSACTION SNAPSHOT '{name}'")


def lock_books(connection: Connection) -> None:
    """Have the books alone until the transaction ends."""
    connection.execute(_LOCK, {"namespace": _NAMESPACE, "what": _BOOKS})


def lock_cluster(connection: Connection, cluster: str, *, is_shared: bool = False) -> None:
    """Have one cluster alone until the transaction ends; writers of other clusters go on.

    Those that share it have it together, each for its own cards.
    """
    what = {"namespace": _NAMESPACE, "books": _BOOKS, "cluster": _number(f"cluster {cluster}")}
    connection.execute(_SHARE_CLUSTER if is_shared else _LOCK_CLUSTER, what)


def lock_making(connection: Connection) -> None:
    """Be the only one, until the transaction ends, who makes tenants and periods that are not there yet.

    Whoever has it looks again before making one: those who share a cluster may need the same. It is waited
    for as long as it takes: whoever holds it rates some cards, and waits for nobody who wants it.
    """
    if connection.dialect.name != "postgresql":
        return
    patience = connection.scalar(text("SELECT current_setting('lock_timeout')"))
    connection.execute(_BE_PATIENT, {"patience": "0"})
    connection.execute(_LOCK, {"namespace": _NAMESPACE, "what": _number("making")})
    connection.execute(_BE_PATIENT, {"patience": patience})


def wait_for_turn(connection: Connection, task: str) -> None:
    """Wait, as long as it takes, until no other connection does this task; ends with the connection."""
    connection.execute(text("SET lock_timeout = 0"))
    connection.execute(_TAKE_TURN, {"namespace": _NAMESPACE, "what": _number(f"task {task}")})


def prepare_migration(connection: Connection) -> None:
    """Wait until no other migration runs; wait for a table only briefly, since others queue behind."""
    wait_for_turn(connection, "migrate")
    connection.execute(text(f"SET lock_timeout = {_TABLE_LOCK_TIMEOUT_MS}"))
    connection.commit()


def sort_text_by_bytes(connection: Connection) -> None:
    """Make every text column sort as on SQLite, in whatever language the database sorts.

    Reports are ordered and paged by names; they must come out the same everywhere.
    """
    changes: dict[str, list[str]] = {}
    for table, column, kind in connection.execute(_SORTED_OTHERWISE):
        changes.setdefault(table, []).append(f'ALTER COLUMN {column} TYPE {kind} COLLATE "C"')
    for table, columns in changes.items():
        connection.execute(text(f"ALTER TABLE {table} {', '.join(columns)}"))


def _number(name: str) -> int:
    """A signed 32-bit number for a name: that two share one only makes them wait for each other."""
    return zlib.crc32(name.encode()) - 2**31


_LOCK = text("SELECT pg_advisory_xact_lock(:namespace, :what)")
_LOCK_CLUSTER = text(
    "SELECT pg_advisory_xact_lock_shared(:namespace, :books), pg_advisory_xact_lock(:namespace, :cluster)"
)
_BE_PATIENT = text("SELECT set_config('lock_timeout', :patience, true)")
_SHARE_CLUSTER = text(
    "SELECT pg_advisory_xact_lock_shared(:namespace, :books), "
    "pg_advisory_xact_lock_shared(:namespace, :cluster)"
)
_TAKE_TURN = text("SELECT pg_advisory_lock(:namespace, :what)")
_SORTED_OTHERWISE = text(
    """
    SELECT quote_ident(relname), quote_ident(attname), format_type(atttypid, atttypmod)
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
      AND attnum > 0 AND NOT attisdropped AND attcollation NOT IN (0, 'pg_catalog."C"'::regcollation)
    ORDER BY relname, attnum
    """
)
