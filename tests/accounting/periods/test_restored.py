"""Books restored from a backup are the books: amounts, walls, seals, and the way on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from accounting.store.backup import backup, restore
from accounting.store.database import Database
from accounting.store.roles import grant_service
from contract.facts import AllocationFact, Fact, PresenceFact
from tests.accounting.postgresql import MIGRATOR, SERVICE, Server, as_owner

if TYPE_CHECKING:
    from tests.accounting.periods.conftest import Ledger

At = Callable[..., int]
DAY = 24 * 3_600_000


@pytest.fixture
def closed(october: Ledger, at: At) -> Ledger:
    """A closed month."""
    for account in ("acme", "platform"):
        october.close(account, now_ms=at("23:00", 31) + 4 * DAY)
    return october


@contextmanager
def restored(books: Database, folder: Path, request: pytest.FixtureRequest) -> Iterator[Database]:
    """Other books, made from a backup of these in the way that docs/install.md shows."""
    if not books.is_postgresql:
        copy = folder / "backup.sqlite"
        backup(books, copy)
        other = Database(f"sqlite:///{folder / 'restored.sqlite'}")
        restore(other, copy, is_forced=False)
        yield other
        other.close()
        return
    server: Server = request.getfixturevalue("postgresql")
    name = str(books.engine.url.database)
    copy = folder / "backup.dump"
    run(server, {"PGOPTIONS": "-c slicemeter.viewer=everything"}, "pg_dump", "--enable-row-security",
        "--format=custom", f"--file={copy}", name)  # fmt: skip
    with server.database() as empty:
        run(server, {}, "pg_restore", "--no-owner", "--no-privileges", f"--dbname={empty}", str(copy))
        owned = Database(server.url(empty))
        grant_service(owned, SERVICE)
        owned.close()
        other = Database(server.url(empty, SERVICE))
        yield other
        other.close()


def run(server: Server, more: dict[str, str], *words: str) -> None:
    """A program of PostgreSQL, as the owner of the tables."""
    place = {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": MIGRATOR}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | place | more)
    assert done.returncode == 0, done.stderr


def amounts(ledger: Ledger) -> list[tuple[Any, ...]]:
    return [(path, line.id, line.amount, line.charge_from_ms) for path, line in ledger.lines()]


@pytest.fixture
def november(
    at: At, allocation: Callable[..., AllocationFact], presence: Callable[..., PresenceFact]
) -> list[Fact]:
    """Half a card for a day."""
    start = at("09:00", 31) + 2 * DAY
    held = allocation(
        pod_uid="november", bound_at_ms=start, started_at_ms=start, confirmed_at_ms=start + DAY,
        core_percent=50, ended_at_ms=start + DAY, end_kind="observed",
    )  # fmt: skip
    return [presence(start, start + DAY), held]


def test_a_closed_month_is_verified_after_a_restore_and_the_books_go_on(
    closed: Ledger, tmp_path: Path, request: pytest.FixtureRequest, at: At, november: list[Fact]
) -> None:
    before, said = amounts(closed), closed.statement("acme").amount
    with restored(closed.database, tmp_path, request) as database:
        again = type(closed)(database)
        verified = again.verify()
        assert (verified.findings, verified.late, verified.pending) == ([], [], [])
        assert (verified.statements, verified.lines) == (2, len(before))
        assert amounts(again) == before
        assert again.statement("acme").amount == said

        # What is sealed stays so, also for who owns the tables.
        with as_owner(database) as owned, pytest.raises(DatabaseError), owned.writing() as session:
            session.execute(text("UPDATE ledger_line SET quantity_ppm_ms = quantity_ppm_ms + 1"))
        if database.is_postgresql:
            with database.engine.connect() as connection:
                assert connection.execute(text("SELECT count(*) FROM ledger_line")).scalar() == 0, (
                    "a session that says of nobody who looks sees nothing"
                )

        # November is taken in and rated as if nothing had been.
        now_ms = at("09:00", 31) + 3 * DAY
        again.send(november, now_ms=now_ms)
        again.rate(now_ms)
        assert len(again.lines()) > len(before)
    assert amounts(closed) == before, "the books themselves are as they were"
