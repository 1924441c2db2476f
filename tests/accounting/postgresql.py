"""The lab's PostgreSQL for tests: skipped where it is not installed, a failure in CI."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from accounting.store.database import Database
from lab import postgresql
from lab.postgresql import MIGRATOR, OWNER, SERVICE, Server, ServerMissingError

__all__ = ["MIGRATOR", "OWNER", "SERVICE", "Server", "as_owner", "running_server"]


@contextmanager
def as_owner(database: Database) -> Iterator[Database]:
    """A database as who may change its schema reaches it; on SQLite that is everybody."""
    if not database.is_postgresql:
        yield database
        return
    url = database.engine.url.set(drivername="postgresql", username=MIGRATOR)
    owned = Database(url.render_as_string(hide_password=False))
    try:
        yield owned
    finally:
        owned.close()


@contextmanager
def running_server() -> Iterator[Server]:
    """A server for as long as the block runs."""
    started = postgresql.running_server()
    try:
        server = started.__enter__()
    except ServerMissingError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    try:
        yield server
    finally:
        started.__exit__(None, None, None)
