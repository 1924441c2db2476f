"""A real Chromium before the real service of the golden month, and people who sit at it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from accounting.settings import Settings
from accounting.store.database import Database
from accounting.store.migrate import upgrade
from tests.browser.person import Person
from tests.lab.golden.conftest import Accounting, listening, serve

Seat = Callable[..., Person]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever is in this folder starts a browser."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium(need_tool: Callable[[str, str], str]) -> Iterator[Browser]:
    """Debian's Chromium, which reaches nothing but loopback."""
    program = need_tool("chromium", "chromium")
    arguments = ["--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def golden_books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden month in a file, told and rated."""
    path = tmp_path_factory.mktemp("golden") / "books.sqlite"
    for made in serve(path):
        made.bill()
    with closing(sqlite3.connect(path)) as books:
        books.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def _serving(books: Path | str) -> Iterator[Accounting]:
    database = Database(f"sqlite:///{books}")
    upgrade(database)
    with listening(Accounting(database, Settings(are_cookies_secure=False))) as made:
        yield made
    database.close()


@pytest.fixture(scope="session")
def month(golden_books: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounting]:
    """The service to read in; what a test changes there is a session at most."""
    yield from _serving(shutil.copy(golden_books, tmp_path_factory.mktemp("read")))


@pytest.fixture
def own_month(golden_books: Path, tmp_path: Path) -> Iterator[Accounting]:
    """The service with books of the test's own."""
    yield from _serving(shutil.copy(golden_books, tmp_path))


@pytest.fixture
def no_month(tmp_path: Path) -> Iterator[Accounting]:
    """The service with books in which nothing stands yet."""
    yield from _serving(tmp_path / "empty.sqlite")


@pytest.fixture
def seat(chromium: Browser) -> Iterator[Seat]:
    """Seat somebody at a browser of their own; at the end it must have had nothing to complain of."""
    seated: list[Person] = []

    def somebody(address: str, **how: object) -> Person:
        context = chromium.new_context(base_url=address, accept_downloads=True, **how)  # type: ignore[arg-type]
        person = Person(context, is_policy_passed_by=bool(how.get("bypass_csp")))
        seated.append(person)
        return person

    yield somebody
    complaints = [one for person in seated for one in person.complaints]
    for person in seated:
        person.leave()
    assert complaints == []
