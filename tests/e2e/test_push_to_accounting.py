"""The exporter's outbox and accounting's facts route, the real ones of both, over loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from prometheus_client import CollectorRegistry
from sqlalchemy import func, select

from accounting.access.service_accounts import Trust
from accounting.access.tokens import revoke_token
from accounting.access.trust import trust_cluster
from accounting.access.viewer import COMMAND_LINE
from accounting.api.app import create_app
from accounting.api.serving import address_of, listen
from accounting.settings import Settings
from accounting.store.database import Database
from accounting.store.migrate import upgrade
from accounting.store.models import Cluster, ExporterSource, Quarantine, UsageFact
from contract.facts import Fact, NodeStateFact, SliceUsageFact
from contract.ids import EpochId
from exporter.delivery.metrics import DeliveryMetrics
from exporter.delivery.push import Pusher, Sender
from exporter.delivery.state import StateFile
from exporter.settings import AccountingAccess
from lab.golden.books import open_books
from lab.golden.facts import facts_until
from lab.golden.month import ALPHA_2, GOLDEN_MONTH, NOW_MS
from tests.accounting.access.projected import AUDIENCE, CLUSTER, ISSUER, NODE, Issuer


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'books.sqlite'}")
    upgrade(database)
    yield database
    database.close()


@pytest.fixture
def token_file(books: Database, tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(open_books(books, now_ms=0)["alpha"])
    return path


@contextmanager
def listening(books: Database) -> Iterator[str]:
    with listen("127.0.0.1:0") as sock:
        app = create_app(Settings(), database=books, clock=lambda: NOW_MS)
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        yield address_of(sock)
        server.should_exit = True
        thread.join()


class Exporter:
    """The delivery half of gpu-2's exporter: its state file, its outbox, its push."""

    def __init__(self, folder: Path, token_file: Path) -> None:
        self.registry = CollectorRegistry()
        self._metrics = DeliveryMetrics(self.registry)
        self._token_file = token_file
        self.state = StateFile.open(folder / "state.sqlite", "boot-1", self._metrics)

    def push(self, url: str, *, kube_system_uid: str = "kube-system-of-alpha") -> None:
        """Push until nothing waits or accounting takes no more."""
        sender = Sender("node", EpochId("run-1"), kube_system_uid, ALPHA_2.name, ALPHA_2.uid)
        access = AccountingAccess(url, self._token_file)
        pusher = Pusher(self.state, access, self._metrics, sender=lambda: sender, wall_ms=lambda: NOW_MS)
        while self.state.pending().count and pusher.push_once() == 0:
            pass

    def pushes(self, result: str) -> float | None:
        return self.registry.get_sample_value("slicemeter_push_total", {"result": result})


@pytest.fixture
def exporter(tmp_path: Path, token_file: Path) -> Iterator[Exporter]:
    made = Exporter(tmp_path, token_file)
    yield made
    made.state.close()


@pytest.fixture(scope="module")
def told() -> list[Fact]:
    """What the exporter of gpu-2 measured in the golden month."""
    facts = facts_until(GOLDEN_MONTH, NOW_MS)
    return [fact for fact in facts if fact.node_uid == ALPHA_2.uid and not isinstance(fact, NodeStateFact)]


def counts(books: Database) -> tuple[int | None, int | None]:
    with books.reading() as session:
        return session.scalar(select(func.count()).select_from(UsageFact)), session.scalar(
            select(func.count()).select_from(Quarantine)
        )


def test_an_outbox_filled_while_accounting_was_away_arrives_once(
    books: Database, exporter: Exporter, told: list[Fact]
) -> None:
    exporter.state.commit(b"", told[: len(told) // 2])
    with listening(books) as url:
        pass
    exporter.push(url)
    assert exporter.pushes("unreachable") == 1
    exporter.state.commit(b"", told)
    with listening(books) as url:
        exporter.push(url)
        assert exporter.state.pending().count == 0
        exporter.state.commit(b"", told)
        exporter.push(url)
    assert exporter.state.pending().count == 0
    assert counts(books) == (sum(isinstance(fact, SliceUsageFact) for fact in told), 0)
    with books.reading() as session:
        source = session.scalars(select(ExporterSource)).one()
        assert (source.node, source.facts_sent, source.facts_stored) == ("gpu-2", 2 * len(told), len(told))


def test_a_bad_fact_blocks_nothing(books: Database, exporter: Exporter, told: list[Fact]) -> None:
    bad = next(fact for fact in facts_until(GOLDEN_MONTH, NOW_MS) if fact.cluster == "beta")
    exporter.state.commit(b"", [bad, *told[:10]])
    with listening(books) as url:
        exporter.push(url)
    assert exporter.state.pending().count == 0
    assert counts(books)[1] == 1


def test_facts_wait_while_the_token_is_refused(
    books: Database, exporter: Exporter, token_file: Path, told: list[Fact]
) -> None:
    exporter.state.commit(b"", told[:10])
    with books.writing() as session:
        revoke_token(session, token_file.read_text(), by=COMMAND_LINE, now_ms=0)
    with listening(books) as url:
        exporter.push(url)
    assert (exporter.pushes("refused"), exporter.state.pending().count) == (1, 10)


def test_facts_wait_when_another_cluster_goes_by_this_code(
    books: Database, exporter: Exporter, told: list[Fact]
) -> None:
    exporter.state.commit(b"", told[:10])
    with books.writing() as session:
        session.get_one(Cluster, "alpha").kube_system_uid = "kube-system-of-alpha"
    with listening(books) as url:
        exporter.push(url, kube_system_uid="kube-system-of-a-stranger")
        assert (exporter.pushes("refused"), exporter.state.pending().count) == (1, 10)
        exporter.push(url)
    assert exporter.state.pending().count == 0


def test_a_projected_token_is_read_anew_and_speaks_for_its_node(
    books: Database, exporter: Exporter, token_file: Path, told: list[Fact]
) -> None:
    issuer = Issuer()
    trust = Trust("alpha", ISSUER, AUDIENCE, issuer.jwks(), NODE, CLUSTER)
    with books.writing() as session:
        trust_cluster(session, trust, by=COMMAND_LINE, now_ms=0)
    old = issuer.token(issuer.claims(now_ms=NOW_MS - 3_600_000, node_uid=ALPHA_2.uid))
    # The kubelet puts a new file in the place of the old one, which ends with a newline or not.
    token_file.write_text(old)
    own = [fact for fact in told if getattr(fact, "witness", "node") == "node"]
    exporter.state.commit(b"", own[:10])
    with listening(books) as url:
        exporter.push(url)
        assert exporter.pushes("refused") == 1
        renewed = token_file.with_name("renewed")
        renewed.write_text(issuer.token(issuer.claims(now_ms=NOW_MS, node_uid=ALPHA_2.uid)) + "\n")
        renewed.replace(token_file)
        exporter.push(url)
    assert exporter.state.pending().count == 0
    assert counts(books)[1] == 0
