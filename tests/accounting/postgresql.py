"""The lab's PostgreSQL for tests: skipped where it is not installed, a failure in CI."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lab import postgresql
from lab.postgresql import MIGRATOR, OWNER, SERVICE, Server, ServerMissingError

__all__ = ["MIGRATOR", "OWNER", "SERVICE", "Server", "running_server"]


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
