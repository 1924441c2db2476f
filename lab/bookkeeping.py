"""Accounting in the demo: made by the shipped commands, served by the shipped program, read over HTTP.

Invariant: every token is random, lives in a file that only this user may read, or in memory, and is
good for this run's books alone.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import time
import urllib.parse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

from lab.exporters import Target, clean_environ
from lab.pages import fetch
from lab.processes import Household, Program, free_port
from lab.scenarios.plan import ClusterPlan, Scenario

GRACE_S = 6
RATE_INTERVAL_S = 2
PLATFORM_ACCOUNT = "platform"

Command: TypeAlias = Callable[[Sequence[str]], str]
"""Runs `slicemeter accounting` with these arguments and returns what it printed."""

Document: TypeAlias = dict[str, Any]
"""An answer of the API: foreign JSON, read field by field where it is used."""


def months_between(from_s: float, to_s: float, time_zone: str) -> list[str]:
    """The local months of a half-open stretch of Unix seconds that is shorter than a month."""
    zone = ZoneInfo(time_zone)
    edges = (dt.datetime.fromtimestamp(edge_s, zone) for edge_s in (from_s, max(from_s, to_s - 1)))
    return sorted({f"{edge:%Y-%m}" for edge in edges})


class Bookkeeping:
    """One accounting service with its books.

    Args:
        scenario: Whose accounts, clusters and prices.
        folder: For database and tokens.
        logs: For the service's log.
        household: Where the service runs.
        command: How `slicemeter accounting` commands are run.
    """

    def __init__(
        self, scenario: Scenario, folder: Path, logs: Path, household: Household, command: Command
    ) -> None:
        self._scenario = scenario
        self._folder = folder
        self._logs = logs
        self._household = household
        self._command = command
        self._database = f"sqlite:///{folder / 'books.db'}"
        self.target = Target("accounting", f"http://127.0.0.1:{free_port()}")
        self.operator_token = ""
        self.start_s: int | None = None
        """The scenario's start, once it is known."""

    def open(self) -> None:
        """Make the books and serve them."""
        self._folder.mkdir(mode=0o700, parents=True)
        self._run("migrate")
        self._accounts()
        self._prices()
        self._budgets()
        for cluster in self._scenario.clusters:
            self._reporter_token(cluster, "node", "--node-uid", cluster.node_uid)
            self._reporter_token(cluster, "cluster")
        self.operator_token = self._token("--role", "operator", "--note", "demo")
        self._keep(self.operator_token_file, self.operator_token)
        for cluster in self._scenario.clusters:
            token = self._token("--role", "tenant", "--tenant", cluster.tenant_path, "--note", "demo")
            self._keep(self.tenant_token_file(cluster), token)
        argv = [sys.executable, "-m", "slicemeter", "accounting", "serve", "--database", self._database]
        argv += ["--listen", self.target.url.removeprefix("http://"), "--grace-seconds", str(GRACE_S)]
        argv += ["--rate-interval", str(RATE_INTERVAL_S), "--open-metrics"]
        log = self._logs / "accounting.log"
        self._household.add(Program(self.target.name, argv, log, clean_environ()))

    def reporter_token_file(self, cluster: ClusterPlan, role: str) -> Path:
        """The token of a cluster's exporter of one role."""
        return self._folder / f"{cluster.code}-{role}.token"

    @property
    def operator_token_file(self) -> Path:
        """The token that reads everything, for a person who wants to ask the API."""
        return self._folder / "operator.token"

    def tenant_token_file(self, cluster: ClusterPlan) -> Path:
        """The token that reads one tenant's part of the books, for a person who asks as that tenant."""
        return self._folder / f"{cluster.tenant}.token"

    def tenant_token(self, cluster: ClusterPlan) -> str:
        """What is in a tenant's token file."""
        return self.tenant_token_file(cluster).read_text("ascii").strip()

    @property
    def costs_url(self) -> str:
        """What the newest month has cost so far, by tenant: of everybody, or of the one who asks."""
        return f"{self.target.url}/api/v1/costs?period={self.periods()[-1]}&group_by=tenant"

    def text(self, path: str, token: str) -> str | None:
        """An answer of the API as it came, or None while there is none."""
        return fetch(f"{self.target.url}{path}", token)

    def document(self, path: str, token: str | None = None) -> Document | None:
        """An answer of the API, or None while there is none; the operator asks unless told otherwise."""
        text = self.text(path, self.operator_token if token is None else token)
        return None if text is None else json.loads(text)

    def periods(self) -> list[str]:
        """The months, in the accounts' zone, in which the scenario's pods have held something so far."""
        start_s = time.time() if self.start_s is None else self.start_s
        ends_s = time.time() if self._scenario.ends_s is None else start_s + self._scenario.ends_s
        replayed_s = max(cluster.replay.before_s for cluster in self._scenario.clusters)
        return months_between(start_s - replayed_s, ends_s, self._scenario.time_zone)

    def statement_html(self, cluster: ClusterPlan) -> str | None:
        """The newest month's statement of a cluster's tenant, for a browser."""
        tenant = urllib.parse.quote(cluster.tenant_path, safe="")
        path = f"/api/v1/statements/{self.periods()[-1]}?tenant={tenant}&format=html"
        return self.text(path, self.operator_token)

    def statements(self, cluster: ClusterPlan, token: str | None = None) -> list[Document]:
        """The statements of a cluster's tenant, for every month touched that has one."""
        tenant = urllib.parse.quote(cluster.tenant_path, safe="")
        paths = [f"/api/v1/statements/{period}?tenant={tenant}" for period in self.periods()]
        return [found for path in paths if (found := self.document(path, token)) is not None]

    def _accounts(self) -> None:
        currency, zone = self._scenario.currency, self._scenario.time_zone
        named = ["--currency", currency, "--time-zone", zone]
        self._run("account", "add", PLATFORM_ACCOUNT, "--kind", "platform", *named)
        for cluster in self._scenario.clusters:
            self._run("account", "add", cluster.account, *named)
            accounts = ["--account", cluster.account, "--platform-account", PLATFORM_ACCOUNT]
            self._run("cluster", "add", cluster.code, *accounts)

    def _prices(self) -> None:
        # From the beginning of last year: before whatever the scenario replays.
        since = f"{dt.datetime.now(dt.UTC).year - 1}-01-01"
        cards = {card.registered_model: card for cluster in self._scenario.clusters for card in cluster.cards}
        for model, card in cards.items():
            price = ["--sku", "gpu-slice", "--model", model, "--price", card.card_hour_price]
            self._run("price", "set", *price, "--currency", self._scenario.currency, "--from", since)

    def _budgets(self) -> None:
        for path, amount in self._scenario.budgets:
            self._run("tenant", "add", "--kind", "team", path)
            budget = ["--tenant", path, "--amount", amount, "--from", self.periods()[0]]
            self._run("budget", "set", *budget)

    def _reporter_token(self, cluster: ClusterPlan, role: str, *scope: str) -> None:
        token = self._token("--role", "reporter", "--cluster", cluster.code, *scope)
        self._keep(self.reporter_token_file(cluster, role), token)

    @staticmethod
    def _keep(path: Path, token: str) -> None:
        path.touch(mode=0o600)
        path.write_text(f"{token}\n", "ascii")

    def _token(self, *arguments: str) -> str:
        return self._run("token", "create", *arguments).strip()

    def _run(self, *arguments: str) -> str:
        return self._command([*arguments, "--database", self._database])
