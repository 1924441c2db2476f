"""Costs so far, as accounting states them: fetched again and again beside the live table.

The tenants' statements are also kept as HTML files that a browser opens without a token, with a page in
front that links them. Invariant: an answer that does not come leaves the last one standing; costs and
files only ever come whole.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from lab.bookkeeping import Bookkeeping, Document
from lab.live.front_page import FILE_NAME, Question, StatementLink, front_page
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
        pages: What the front page links besides.
        interval_s: From one round to the next.
    """

    def __init__(
        self,
        books: Bookkeeping,
        scenario: Scenario,
        folder: Path,
        pages: Sequence[Address],
        interval_s: float,
    ) -> None:
        folder.mkdir(parents=True)
        self._pages = pages
        self._totals: dict[str, str] = {}
        self._folder = folder
        self._books = books
        self._scenario = scenario
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="costs", daemon=True)
        self.costs: Costs = {}

    def start(self) -> None:
        """Begin; the front page is there at once."""
        self._write_front_page()
        self._thread.start()

    def stop(self) -> None:
        """End after the present round."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def address(self) -> Address:
        """The front page; the statements appear on it with the first cost."""
        return Address("start here", (self._folder / FILE_NAME).as_uri())

    @property
    def questions(self) -> list[Question]:
        """What one may ask, first as the operator, then as each tenant."""
        books, url = self._books, self._books.costs_url
        tenants = [
            Question(f"as {cluster.tenant}", books.tenant_token_file(cluster), url)
            for cluster in self._scenario.clusters
        ]
        return [Question("as the operator", books.operator_token_file, url), *tenants]

    def _file(self, cluster: ClusterPlan) -> Path:
        return self._folder / f"{cluster.tenant}.html"

    def _write(self, cluster: ClusterPlan) -> None:
        page = self._books.statement_html(cluster)
        if page is not None:
            _replace(self._file(cluster), page)

    def _write_front_page(self) -> None:
        links = [
            StatementLink(
                cluster.tenant,
                cluster.account,
                cluster.title,
                self._totals.get(cluster.code),
                self._file(cluster).name,
            )
            for cluster in self._scenario.clusters
        ]
        _replace(self._folder / FILE_NAME, front_page(links, self.questions, self._pages))

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            found = {cluster.code: self._books.statements(cluster) for cluster in self._scenario.clusters}
            statements = [one for of_cluster in found.values() for one in of_cluster]
            if statements:
                self.costs = costs_of(statements)
            for cluster in self._scenario.clusters:
                self._write(cluster)
                newest = found[cluster.code][-1:]
                if newest and newest[0]["total"] is not None and self._file(cluster).exists():
                    self._totals[cluster.code] = f"{newest[0]['total']} {newest[0]['currency']}"
            self._write_front_page()


def _replace(file: Path, page: str) -> None:
    draft = file.with_suffix(".new")
    draft.write_text(page, "utf-8")
    draft.replace(file)
