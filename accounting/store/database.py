"""The database and its two kinds of transaction: one that reads, one that writes.

Invariant: what a writing transaction read cannot have changed when it writes, and two writers wait for
each other instead of failing. On SQLite there is one writer at a time; on PostgreSQL one for the whole of
the books, or one for each cluster.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from accounting.store import postgresql, sqlite
from accounting.store.errors import StoreError
from accounting.store.walls import EVERYTHING, Scope, declare, scope_info, see_everything

DEFAULT_URL = "sqlite:///slicemeter.sqlite"

_WAY_OUT = "write for example sqlite:///slicemeter.sqlite or postgresql://user@host/slicemeter"


class Database:
    """One database, reached by `reading()` and `writing()`.

    Args:
        url: A SQLAlchemy URL: `sqlite:///relative/path`, `sqlite:////absolute/path` or
            `postgresql://user:password@host:port/name`.

    Attributes:
        url: The URL as it may be shown: without a password.

    Raises:
        StoreError: The URL is not one, or names a database that is not supported.
    """

    def __init__(self, url: str = DEFAULT_URL) -> None:
        parsed = _parse(url)
        self._scope = EVERYTHING
        self.is_postgresql = parsed.get_backend_name() == "postgresql"
        self._url = parsed
        if self.is_postgresql:
            self.url = parsed.render_as_string(hide_password=True)
            self.engine = postgresql.open_engine(parsed)
            self._reader: Engine = self.engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
            self._writer = self.engine.execution_options(isolation_level="READ COMMITTED")
        else:
            self.url = url
            self.engine = sqlite.open_engine(parsed)
            self._reader = self.engine
            self._writer = self.engine.execution_options(**{sqlite.WRITES: True})

    def seen_as(self, scope: Scope) -> Database:
        """The same database, connections included, whose transactions see only what is in a scope."""
        seen = copy.copy(self)
        seen._scope = scope  # noqa: SLF001 - its own
        return seen

    def _session(self, engine: Engine, *, snapshot: str | None = None) -> Session:
        session = Session(engine, info=scope_info(self._scope))
        if snapshot is not None:
            event.listen(session, "after_begin", partial(postgresql.take_snapshot, snapshot))
        if self.is_postgresql:
            event.listen(session, "after_begin", declare)
        return session

    @contextmanager
    def reading(self, *, snapshot: str | None = None) -> Iterator[Session]:
        """A transaction that sees one state of the database and changes nothing.

        Args:
            snapshot: On PostgreSQL: the state that another transaction, still open, exported under this name.
        """
        with self._session(self._reader, snapshot=snapshot) as session:
            yield session
            session.rollback()

    @contextmanager
    def writing(
        self,
        *,
        cluster: str | None = None,
        is_shared: bool = False,
        is_beside_books: bool = False,
        before: Callable[[Session], None] | None = None,
    ) -> Iterator[Session]:
        """A transaction that is committed when the block ends, and rolled back when it raises.

        Args:
            cluster: The one cluster whose facts and ledger it touches, besides rows that it alone makes;
                others may then write for other clusters meanwhile. None: it has the books for itself.
            is_shared: Others that share the cluster too may write for it meanwhile, each for its own cards
                whose marks it has locked; whoever does not share it waits.
            is_beside_books: It touches no fact, no ledger and no version, so it waits for nobody who has the
                books (PostgreSQL; SQLite has one writer for all).
            before: What it does before it waits for its turn, with temporary tables alone.
        """
        with self._session(self._writer) as session, session.begin():
            connection = session.connection()  # takes SQLite's lock now, not at the first statement
            if before is not None:
                before(session)
            if self.is_postgresql and not is_beside_books:
                if cluster is None:
                    postgresql.lock_books(connection)
                else:
                    postgresql.lock_cluster(connection, cluster, is_shared=is_shared)
            yield session

    def missing_file(self) -> str | None:
        """The path of an SQLite database that is not there; connecting would make an empty one."""
        path = self._url.database or ""
        if self.is_postgresql or self._url.query or Path(path).exists():
            return None
        return path

    def reopened_at(self) -> str:
        """The URL with its password, for a process of ours that opens the same database."""
        return self._url.render_as_string(hide_password=False)

    @contextmanager
    def turn(self, task: str) -> Iterator[None]:
        """A time in which no other process does this long task of many transactions.

        SQLite has one service and one writer, so there every time is such a time.
        """
        if not self.is_postgresql:
            yield
            return
        engine = postgresql.open_engine(self._url, poolclass=NullPool)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            postgresql.wait_for_turn(connection, task)
            yield

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """A connection of its own for alembic; the caller begins and ends its transaction.

        SQLite's has foreign keys off: a table that is rebuilt is dropped on the way, and SQLite would take
        the rows that point at it along; the switch has no effect inside a transaction.
        """
        if self.is_postgresql:
            engine = postgresql.open_engine(self._url, poolclass=NullPool)
        else:
            engine = sqlite.open_engine(self._url, poolclass=NullPool, keeps_foreign_keys=False)
            engine = engine.execution_options(**{sqlite.WRITES: True})
        with engine.connect() as connection:
            if self.is_postgresql:
                postgresql.prepare_migration(connection)
                see_everything(connection)
                connection.commit()
            yield connection

    def close(self) -> None:
        """Let every pooled connection go."""
        self.engine.dispose()


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        shown = re.sub(r"//.*@", "//…@", url)  # there may be a password
        raise StoreError(f'database "{shown}" is no URL; {_WAY_OUT}') from None
    backend = parsed.get_backend_name()
    if backend == "postgresql" and parsed.database:
        return parsed
    if backend == "sqlite" and parsed.database not in {None, "", ":memory:"}:
        return parsed
    raise StoreError(
        f'database "{parsed.render_as_string()}": only SQLite files and named PostgreSQL databases are '
        f"supported; {_WAY_OUT}"
    )
