"""Online backup and restore of a SQLite database, each checked before it counts.

Invariant: a file that is named is either a whole, checked copy or not there; a restore replaces nothing
that it was not told to. PostgreSQL has tools of its own for this.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from accounting.progress import Progress, unseen
from accounting.store.database import Database
from accounting.store.errors import StoreError

_PAGES_AT_A_TIME = 1_000


def backup(database: Database, target: Path, *, progress: Progress = unseen) -> int:
    """Copy the books into a new file while they are in use.

    Args:
        database: The books.
        target: A file that does not exist.
        progress: Who wants to know how far it is.

    Returns:
        The size of the copy in bytes.

    Raises:
        StoreError: Not SQLite, the file exists, cannot be written, or the copy is not whole.
    """
    source = _file_of(database, "pg_dump --enable-row-security, as docs/install.md shows")
    if target.exists():
        raise StoreError(f"{target} exists; name a file that does not, so that no backup is overwritten")
    _copy(source, target, progress)
    return target.stat().st_size


def restore(database: Database, source: Path, *, is_forced: bool, progress: Progress = unseen) -> str:
    """Put a backup in the place of the books; no service may be running on them.

    Args:
        database: Where the books shall be.
        source: What `backup` made.
        is_forced: Whether books that are there may be replaced.
        progress: Who wants to know how far it is.

    Returns:
        The schema of the restored books.

    Raises:
        StoreError: Not SQLite, no whole backup, books are there already, or are in use.
    """
    target = _file_of(database, "pg_restore, as docs/install.md shows")
    if not source.is_file():
        raise StoreError(f"{source} is no file; name one that was made by: slicemeter accounting backup")
    schema = _schema(source)
    if schema is None:
        raise StoreError(f"{source} holds no books; name a file made by: slicemeter accounting backup")
    if target.exists() and not is_forced:
        raise StoreError(f"{target} exists; to put the backup in its place say --replace")
    database.close()
    if target.exists():
        _require_unused(target)
    _copy(source, target, progress)
    return schema


def _file_of(database: Database, instead: str) -> Path:
    if database.is_postgresql:
        raise StoreError(f"PostgreSQL is backed up and restored by its own tools; use: {instead}")
    return Path(str(database.engine.url.database))


def _copy(source: Path, target: Path, progress: Progress) -> None:
    """Copy page by page into a file beside the target, check it, then give it the name."""
    part = target.with_name(f"{target.name}.part-{os.getpid()}")

    def told(_status: int, remaining: int, total: int) -> None:
        progress("copying", total - remaining, total)

    try:
        with _connected(source) as there, _connected(part) as here:
            there.backup(here, pages=_PAGES_AT_A_TIME, progress=told)
            here.execute("PRAGMA journal_mode = DELETE")
            _check(here, source)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        for suffix in ("-wal", "-shm"):
            # A log that is left from the books before would be played onto the new ones.
            target.with_name(target.name + suffix).unlink(missing_ok=True)
        part.replace(target)
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StoreError(f"cannot copy {source} to {target}: {reason}") from None
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, timeout=30, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def _check(connection: sqlite3.Connection, source: Path) -> None:
    found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(5)")]
    broken = connection.execute("PRAGMA foreign_key_check").fetchone()
    if found != ["ok"] or broken is not None:
        what = "; ".join(found) if found != ["ok"] else f"a row of {broken[0]} points nowhere"
        raise StoreError(f"{source} is damaged: {what}; nothing was written")


def _require_unused(path: Path) -> None:
    try:
        with _connected(path) as connection:
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        raise StoreError(f"{path} is in use ({error}); stop the service first") from None
    except sqlite3.DatabaseError:
        return  # what is damaged is what a backup is for


def _schema(path: Path) -> str | None:
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    except Exception:  # noqa: BLE001 - whatever it is, it is no backup of ours
        return None
    finally:
        engine.dispose()
