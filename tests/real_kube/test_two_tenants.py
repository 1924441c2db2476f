"""Two tenants' clusters with equal names everywhere, as on Kamaji, push to one accounting and never merge."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.exporter.node.program import free_port
from tests.real_kube.chart import account, install
from tests.real_kube.roles import CARD, NODE, Exporter, Role, running
from tests.real_kube.servers import Process, RealCluster, wait_until

pytestmark = pytest.mark.real_kube
CODES = ("alpha", "beta")
ROLES: tuple[Role, ...] = ("node", "cluster")


def command(books: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "slicemeter", "accounting", *words, "--database", f"sqlite:///{books}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """An account for each tenant, a cluster in each, and a token of each cluster beside them."""
    path = tmp_path / "books.sqlite"
    command(path, "migrate")
    command(
        path, "account", "add", "platform", "--kind", "platform", "--currency", "EUR", "--time-zone", "UTC"
    )
    for code in CODES:
        command(
            path,
            "account",
            "add",
            f"{code}-ltd",
            "--kind",
            "tenant",
            "--currency",
            "EUR",
            "--time-zone",
            "UTC",
        )
        command(path, "cluster", "add", code, "--account", f"{code}-ltd", "--platform-account", "platform")
        token = command(path, "token", "create", "--role", "reporter", "--cluster", code)
        (tmp_path / f"{code}.token").write_text(token.splitlines()[-1])
    return path


@pytest.fixture
def service(books: Path) -> Iterator[str]:
    port = free_port()
    words = ["serve", "--listen", f"127.0.0.1:{port}", "--database", f"sqlite:///{books}"]
    process = Process(books.with_suffix(".log"), [sys.executable, "-m", "slicemeter", "accounting", *words])
    process.start()
    yield f"http://127.0.0.1:{port}"
    process.stop()


def rows(books: Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"file:{books}?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def test_equal_names_nodes_and_cards_in_two_clusters_never_merge(
    tmp_path: Path, books: Path, service: str
) -> None:
    with ExitStack() as stack:
        exporters: list[Exporter] = []
        clusters: dict[str, RealCluster] = {}
        for number, code in enumerate(CODES):
            cluster = clusters[code] = RealCluster(tmp_path / code)
            stack.callback(cluster.stop)
            cluster.start()
            install(cluster)
            cluster.add_pod("team", "job", NODE, CARD, memory_mib=2_000 * (number + 1))
            for role in ROLES:
                folder = tmp_path / f"{code}-{role}"
                folder.mkdir()
                token = folder / "token"
                token.write_text(cluster.token_of(account(role)))
                exporter = running(
                    cluster, role, folder, token,
                    cluster=code, accounting_url=service, push_interval_seconds="1",
                    accounting_token_file=str(tmp_path / f"{code}.token"),
                )  # fmt: skip
                exporters.append(stack.enter_context(exporter))

        columns = "cluster, witness, namespace, pod, node, device_uuid, mem_mib"
        reports = f"SELECT {columns} FROM allocation_report ORDER BY 1, 2"
        same = ("team", "job", NODE, CARD)
        expected = [
            ("alpha", "cluster", *same, 2_000),
            ("alpha", "node", *same, 2_000),
            ("beta", "cluster", *same, 4_000),
            ("beta", "node", *same, 4_000),
        ]
        wait_until(lambda: rows(books, reports) == expected, f"both witnesses of both: {expected}")
        wait_until(
            lambda: (
                rows(books, "SELECT cluster, count(DISTINCT node_uid) FROM presence_report GROUP BY 1")
                == [("alpha", 1), ("beta", 1)]
            ),
            "each cluster's card is there once",
        )
        uids = dict(rows(books, "SELECT code, kube_system_uid FROM cluster"))
        assert uids["alpha"] != uids["beta"]
        for code, cluster in clusters.items():
            found = cluster.ask("GET", "/api/v1/namespaces/kube-system").body
            assert uids[code] == found["metadata"]["uid"]
        assert len(set(rows(books, "SELECT node_uid FROM allocation_report"))) == 2
        assert rows(books, "SELECT count(*) FROM quarantine") == [(0,)]

        # An exporter that goes by the other's code and token is refused, and its facts wait.
        folder = tmp_path / "stranger"
        folder.mkdir()
        token = folder / "token"
        token.write_text(clusters["alpha"].token_of(account("cluster")))
        with running(
            clusters["alpha"], "cluster", folder, token,
            cluster="beta", accounting_url=service, push_interval_seconds="1",
            accounting_token_file=str(tmp_path / "beta.token"),
        ) as stranger:  # fmt: skip
            page = stranger.wait_for(
                lambda page: (page.one("push_total", result="refused") or 0) > 0, "it is refused"
            )
            assert (page.one("outbox_facts") or 0) > 0
            assert "bound to another kube-system UID" in stranger.log()
        assert rows(books, reports) == expected

    found = json.loads(command(books, "usage", "--json"))["rows"]
    assert sorted((each["cluster"], each["pod"]) for each in found) == [(code, "job") for code in CODES]
