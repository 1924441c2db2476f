"""Backups that are whole, and restores that replace nothing by accident."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from accounting.access.viewer import COMMAND_LINE
from accounting.store.backup import backup, restore
from accounting.store.database import Database
from accounting.store.errors import StoreError
from accounting.store.migrate import newest_revision
from accounting.tenants.registry import add_account, list_accounts


@pytest.fixture
def books(migrated_file: Path, tmp_path: Path) -> Database:
    path = tmp_path / "books.sqlite"
    path.write_bytes(migrated_file.read_bytes())
    made = Database(f"sqlite:///{path}")
    add(made, "acme")
    return made


def add(database: Database, code: str) -> None:
    with database.writing() as session:
        add_account(
            session, code, kind="tenant", currency="EUR", time_zone="UTC", grace_days=3,
            by=COMMAND_LINE, now_ms=0,
        )  # fmt: skip


def accounts(database: Database) -> list[str]:
    with database.reading() as session:
        return [account.code for account in list_accounts(session)]


def test_a_backup_of_books_in_use_is_restored_as_they_were(books: Database, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    with books.writing():
        # A transaction is open and what it writes is no part of the copy.
        assert backup(books, copy) == copy.stat().st_size > 0
    add(books, "later")
    other = Database(f"sqlite:///{tmp_path / 'other.sqlite'}")
    assert restore(other, copy, is_forced=False) == newest_revision()
    assert accounts(other) == ["acme"]
    for database in (books, other):
        database.close()


def test_a_restore_replaces_books_only_when_told_to(books: Database, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    backup(books, copy)
    add(books, "later")
    with pytest.raises(StoreError, match="say --replace"):
        restore(books, copy, is_forced=False)
    assert accounts(books) == ["acme", "later"]
    restore(books, copy, is_forced=True)
    assert accounts(books) == ["acme"]
    books.close()


def test_books_in_use_are_not_replaced(books: Database, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    backup(books, copy)
    service = Database(books.url)
    with service.writing(), pytest.raises(StoreError, match="is in use"):
        restore(books, copy, is_forced=True)
    assert accounts(service) == ["acme"]
    for database in (books, service):
        database.close()


def test_no_backup_is_overwritten(books: Database, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    copy.write_text("last month")
    with pytest.raises(StoreError, match="so that no backup is overwritten"):
        backup(books, copy)
    assert copy.read_text() == "last month"
    books.close()


def test_a_damaged_file_is_not_restored_and_leaves_nothing_behind(books: Database, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    backup(books, copy)
    content = bytearray(copy.read_bytes())
    page = len(content) // 4_096 // 2 * 4_096
    content[page : page + 200] = b"\xff" * 200
    copy.write_bytes(content)
    with pytest.raises(StoreError, match=r"is damaged|cannot copy"):
        restore(books, copy, is_forced=True)
    assert accounts(books) == ["acme"]
    assert not list(tmp_path.glob("*.part-*"))
    books.close()


@pytest.mark.parametrize("content", [b"", b"Dear Sir or Madam, " * 100])
def test_what_is_no_backup_is_not_restored(books: Database, tmp_path: Path, content: bytes) -> None:
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(content)
    with pytest.raises(StoreError, match="holds no books"):
        restore(books, copy, is_forced=True)
    with pytest.raises(StoreError, match="is no file"):
        restore(books, tmp_path / "nowhere.sqlite", is_forced=True)
    with sqlite3.connect(tmp_path / "books.sqlite") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    books.close()


def test_postgresql_is_left_to_its_own_tools(tmp_path: Path) -> None:
    database = Database("postgresql://nobody@127.0.0.1:1/books")
    with pytest.raises(StoreError, match="pg_dump"):
        backup(database, tmp_path / "copy")
    with pytest.raises(StoreError, match="pg_restore"):
        restore(database, tmp_path / "copy", is_forced=True)
    database.close()
