"""An accounting that really listens on loopback, in the month that the test is in."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from accounting.access.tokens import create_token
from accounting.access.viewer import COMMAND_LINE
from accounting.api.money import Money
from accounting.api.serving import address_of, listen
from accounting.figures.book import FigureBook
from accounting.periods.rate import rate
from accounting.settings import Settings
from accounting.store.database import Database
from accounting.store.migrate import upgrade
from accounting.web.app import create_service
from lab.golden.batches import Answer, Batch, post, shuffled
from lab.golden.books import open_books
from lab.golden.facts import facts_until
from lab.golden.month import GOLDEN_MONTH, MONTH, NOW_MS
from lab.golden.world import at


@dataclass
class Accounting:
    """A running service with the golden month's books, whose clock the test sets."""

    database: Database
    settings: Settings = field(default_factory=lambda: Settings(are_metrics_open=True))
    now_ms: int = NOW_MS
    address: str = ""
    tokens: dict[str, str] = field(default_factory=dict)
    money: Money = field(default_factory=Money)

    def publish(self) -> None:
        """What the service does after each rating: figures for `/metrics`."""
        with self.database.reading() as session:
            self.money.publish(FigureBook().read(session, now_ms=self.now_ms))

    def take(self, batches: list[Batch]) -> Answer:
        return post(self.address, batches, self.tokens, sent_at_ms=self.now_ms)

    def rate(self) -> None:
        rate(self.database, as_of_ms=self.now_ms, grace_ms=self.settings.grace_ms)

    def bill(self) -> None:
        """Tell the whole month, shuffled and partly twice, with older tellings among it; rate it."""
        told = [*facts_until(GOLDEN_MONTH, at("2026-10-17T12:00Z")), *facts_until(GOLDEN_MONTH, NOW_MS)]
        assert self.take(shuffled(told, seed=20261031)).rejected == 0
        self.rate()

    def token(self, role: str, tenant_path: str | None = None) -> str:
        with self.database.writing() as session:
            return create_token(
                session, role=role, by=COMMAND_LINE, now_ms=0, tenant_path=tenant_path  # type: ignore[arg-type]
            )  # fmt: skip

    def get(self, path: str, token: str, **query: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.get(f"{self.address}{path}", params=query, headers=headers, timeout=60)

    def statement(self, tenant: str, **query: str) -> dict[str, Any]:
        """The statement as its own tenant reads it."""
        reader = self.token("tenant", tenant)
        response = self.get(f"/api/v1/statements/{MONTH}", reader, tenant=tenant, **query)
        assert response.status_code == 200, response.text
        document: dict[str, Any] = response.json()
        return document


@contextmanager
def listening(made: Accounting) -> Iterator[Accounting]:
    """The service of books that are there, on a port of its own, for as long as the block runs."""
    app = create_service(made.settings, database=made.database, clock=lambda: made.now_ms, money=made.money)
    own = listen("127.0.0.1:0")
    made.address = address_of(own)
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, access_log=False))
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [own]})
    thread.start()
    try:
        yield made
    finally:
        server.should_exit = True
        thread.join()
        own.close()


def serve(path: Path) -> Iterator[Accounting]:
    database = Database(f"sqlite:///{path}")
    upgrade(database)
    made = Accounting(database)
    made.tokens = open_books(database, now_ms=NOW_MS)
    with listening(made):
        yield made
    database.close()


@pytest.fixture
def accounting(tmp_path: Path) -> Iterator[Accounting]:
    yield from serve(tmp_path / "books.sqlite")


@pytest.fixture(scope="module")
def billed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounting]:
    """The whole month told at once, and rated."""
    for made in serve(tmp_path_factory.mktemp("billed") / "books.sqlite"):
        made.bill()
        yield made
