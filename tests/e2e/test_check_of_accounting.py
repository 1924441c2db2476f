"""`exporter check` against the real accounting: what it says of tokens, codes and clocks; nothing changes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvicorn
from sqlalchemy import func, select

from accounting.access.tokens import create_token
from accounting.access.viewer import COMMAND_LINE
from accounting.api.app import create_app
from accounting.api.serving import address_of, listen
from accounting.settings import Settings
from accounting.store.database import Database
from accounting.store.migrate import upgrade
from accounting.store.models import Cluster, ExporterSource
from accounting.tenants.registry import add_account, add_cluster
from exporter.checkup.accounting import look_at_accounting
from exporter.checkup.finding import Line
from exporter.settings import AccountingAccess

NOW_MS = 1_790_812_800_000
UID = "ks-uid"

Ask = Callable[..., dict[str, Line]]
Token = Callable[..., None]


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'books.sqlite'}")
    upgrade(database)
    with database.writing() as session:
        for code, kind in (("acme", "tenant"), ("platform", "platform")):
            add_account(
                session, code, kind=kind, currency="EUR", time_zone="Europe/Berlin", grace_days=3,  # type: ignore[arg-type]
                by=COMMAND_LINE, now_ms=0,
            )  # fmt: skip
        add_cluster(session, "c1", account="acme", platform_account="platform", by=COMMAND_LINE, now_ms=0)
    yield database
    database.close()


@pytest.fixture
def token(books: Database, tmp_path: Path) -> Token:
    """Put a token of this scope into the exporter's file."""

    def make(role: str = "reporter", **scope: str) -> None:
        with books.writing() as session:
            made = create_token(session, role=role, by=COMMAND_LINE, now_ms=0, **scope)  # type: ignore[arg-type]
        (tmp_path / "token").write_text(made + "\n")

    return make


@pytest.fixture
def ask(books: Database, tmp_path: Path) -> Iterator[Ask]:
    with listen("127.0.0.1:0") as sock:
        app = create_app(Settings(), database=books, clock=lambda: NOW_MS)
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()

        def look(*, cluster: str = "c1", node_uid: str = "node-1", now_ms: int = NOW_MS) -> dict[str, Line]:
            looked = look_at_accounting(
                AccountingAccess(address_of(sock), tmp_path / "token"),
                cluster=cluster, node_uid=node_uid, kube_system_uid=UID, wall_ms=lambda: now_ms,
            )  # fmt: skip
            return {line.check: line for line in looked.lines}

        yield look
        server.should_exit = True
        thread.join()


def test_a_good_token_is_ok_and_asking_binds_and_notes_nothing(
    ask: Ask, token: Token, books: Database
) -> None:
    token(cluster="c1", node_uid="node-1")
    lines = ask()
    assert {line.verdict for line in lines.values()} == {"ok"}
    assert set(lines) == {"accounting", "accounting cluster", "accounting clock"}
    with books.reading() as session:
        assert session.get_one(Cluster, "c1").kube_system_uid is None
        assert session.scalar(select(func.count()).select_from(ExporterSource)) == 0


def test_a_token_of_another_role_is_a_finding(ask: Ask, token: Token) -> None:
    token("operator")
    (line,) = ask().values()
    assert (line.verdict, "not a reporter's" in line.way_out) == ("finding", True)


def test_a_token_that_nobody_made_is_a_finding(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("smt_0123456789ab_" + "0" * 64)
    (line,) = ask().values()
    assert (line.verdict, "token create --role reporter" in line.way_out) == ("finding", True)


def test_a_token_file_that_is_not_there_is_named(ask: Ask, tmp_path: Path) -> None:
    (line,) = ask().values()
    assert (line.verdict, str(tmp_path / "token") in line.detail) == ("finding", True)


def test_another_cluster_code_is_a_finding(ask: Ask, token: Token) -> None:
    token(cluster="c1")
    line = ask(cluster="berlin")["accounting cluster"]
    assert (line.verdict, "--cluster c1" in line.way_out) == ("finding", True)


def test_another_nodes_token_is_a_finding(ask: Ask, token: Token) -> None:
    token(cluster="c1", node_uid="node-2")
    assert ask()["accounting cluster"].verdict == "finding"


@pytest.mark.parametrize(("bound", "verdict"), [(UID, "ok"), ("another", "finding")])
def test_a_code_that_is_bound_to_another_cluster_is_a_finding(
    ask: Ask, token: Token, books: Database, bound: str, verdict: str
) -> None:
    token(cluster="c1")
    with books.writing() as session:
        session.get_one(Cluster, "c1").kube_system_uid = bound
    assert ask()["accounting cluster"].verdict == verdict


@pytest.mark.parametrize(
    ("offset_ms", "verdict", "words"),
    [
        (300_001, "finding", "300.0 s ahead of"),
        (-300_001, "finding", "300.0 s behind"),
        (300_000, "note", "300.0 s ahead of"),
        (-5_001, "note", "5.0 s behind"),
        (5_000, "ok", "5.0 s ahead of"),
    ],
)
def test_clocks_that_differ_too_much_are_told_in_seconds(
    ask: Ask, token: Token, offset_ms: int, verdict: str, words: str
) -> None:
    token(cluster="c1")
    line = ask(now_ms=NOW_MS + offset_ms)["accounting clock"]
    assert (line.verdict, words in line.detail) == (verdict, True)


def test_an_accounting_that_is_not_there_is_a_finding() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    looked = look_at_accounting(
        AccountingAccess(f"http://127.0.0.1:{port}"),
        cluster="c1", node_uid=None, kube_system_uid=None, wall_ms=lambda: NOW_MS,
    )  # fmt: skip
    (line,) = looked.lines
    assert (line.verdict, "--accounting-url" in line.way_out) == ("finding", True)


def test_an_accounting_that_is_older_than_the_exporter_is_a_finding(
    ask: Ask, token: Token, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.checkup.accounting.SCHEMA", 2)
    token(cluster="c1", node_uid="node-1")
    line = ask()["accounting"]
    assert line.verdict == "finding"
    assert "reads facts up to schema 1, this exporter writes 2" in line.detail
    assert line.way_out == "upgrade accounting; facts wait in the outbox until then"
