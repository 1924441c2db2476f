"""Costs so far, as accounting states them: fetched again and again beside the live table.

The tenants' statements are also kept as HTML files that a browser opens without a token. Invariant: an
answer that does not come leaves the last one standing; costs and files only ever come whole.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from lab.bookkeeping import Bookkeeping, Document
from lab.live.view import Address, Cost, Costs, PodKey
from lab.scenarios.plan import ClusterPlan, Scenario


def costs_of(statements: Sequence[Document]) -> Costs:
    """What each pod has cost, from the lines of its tenant's statements."""
    amounts: dict[PodKey, Cost] = {}
    for statement in statements:
        for line in statement["lines"]:
            if line["amount"] is None or line["pod"] is None:
                continue
            key = PodKey(line["cluster"], line["namespace"], line["pod"])
            before = amounts[key].amount if key in amounts else Decimal(0)
            amounts[key] = Cost(before + Decimal(line["amount"]), statement["currency"])
    return amounts


class CostWatcher:
    """Asks accounting for every tenant's statement, in a thread of its own.

    Args:
        books: Whom to ask.
        scenario: Whose tenants.
        folder: Where the statements' files go.
        interval_s: From one round to the next.
    """

    def __init__(self, books: Bookkeeping, scenario: Scenario, folder: Path, interval_s: float) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._books = books
        self._scenario = scenario
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="costs", daemon=True)
        self.costs: Costs = {}

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the present round."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def address(self) -> Address:
        """The folder with the statements; they appear with the first cost."""
        return Address("statements", self._folder.as_uri())

    def _file(self, cluster: ClusterPlan) -> Path:
        return self._folder / f"{cluster.tenant}.html"

    def _write(self, cluster: ClusterPlan) -> None:
        page = self._books.statement_html(cluster)
        if page is not None:
            draft = self._file(cluster).with_suffix(".new")
            draft.write_text(page, "utf-8")
            draft.replace(self._file(cluster))

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            statements = [
                found for cluster in self._scenario.clusters for found in self._books.statements(cluster)
            ]
            if statements:
                self.costs = costs_of(statements)
            for cluster in self._scenario.clusters:
                self._write(cluster)
