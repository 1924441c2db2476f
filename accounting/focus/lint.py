"""`focus lint` without files: told a heading and rows, it answers findings.

Invariant: it reads each row once, in order; findings name row, column, rule and the way out. Rows are
counted from 1, without the heading; row 0 is the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from accounting.focus.across import Across, Charges, InvoiceDetails, Periods, Totals
from accounting.focus.checks import CHECKS, Known, Problem, read_row, row_problems
from accounting.focus.model import Dataset, Version, columns_of
from accounting.focus.repeats import Repeats
from accounting.focus.rules import RULES


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a file breaks.

    Attributes:
        row: From 1; 0: the file as a whole.
        column: Empty where it is about no single one.
        rule: Its name in `rules.RULES`.
        detail: What is there.
        way_out: What to do.
    """

    row: int
    column: str
    rule: str
    detail: str
    way_out: str


def dataset_of(header: Sequence[str]) -> Dataset:
    """Which dataset columns make up."""
    if "InvoiceDetailGrain" in header or "InvoiceIssueStatus" in header:
        return "invoice-detail"
    return "billing-period" if "BillingPeriodStatus" in header else "cost-and-usage"


def version_of(header: Sequence[str]) -> Version:
    """Which version columns make up: 1.2 where a provider is named as it was until then."""
    return "1.2" if "ProviderName" in header and "ServiceProviderName" not in header else "1.4"


class Linter:
    """One file. A context manager, since it may need a temporary file of its own.

    Args:
        header: The names of its columns, in order.
        dataset: Which it is.
        version: Of FOCUS.
        totals: What the charges must come to, where somebody knows.
    """

    def __init__(
        self, header: Sequence[str], dataset: Dataset, version: Version, totals: Totals | None = None
    ) -> None:
        self.dataset = dataset
        self.version = version
        self.rows = 0
        self._header = list(header)
        self._columns = columns_of(dataset, version)
        self._known: Known = {}
        self._repeats = Repeats()
        self._across: Across
        match dataset:
            case "cost-and-usage":
                self._across = Charges(self._repeats, totals or Totals())
            case "invoice-detail":
                self._across = InvoiceDetails(self._repeats)
            case "billing-period":
                self._across = Periods()

    def __enter__(self) -> Self:
        self._repeats.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._repeats.__exit__(kind, error, trace)

    def heading(self) -> Iterator[Finding]:
        """What the heading breaks."""
        seen: set[str] = set()
        own_began = ""
        for name in self._header:
            if name in seen:
                yield _finding(0, Problem("column-repeated", name, "it stands twice"))
            seen.add(name)
            if name.startswith("x_"):
                own_began = own_began or name
            elif name not in self._columns:
                detail = f"it is no column of {self.dataset} in FOCUS {self.version}"
                yield _finding(0, Problem("column-unknown", name, detail))
            elif own_began:
                yield _finding(0, Problem("column-order", name, f"it stands after {own_began}"))
        for name, column in self._columns.items():
            if column.level == "mandatory" and name not in seen:
                yield _finding(0, Problem("column-missing", name, "it is not there"))

    def row(self, cells: Sequence[str]) -> Iterator[Finding]:
        """What the next row breaks."""
        self.rows += 1
        if len(cells) != len(self._header):
            detail = f"{len(cells)} cells for {len(self._header)} columns"
            yield _finding(self.rows, Problem("row-width", "", detail))
            return
        texts: Mapping[str, str] = dict(zip(self._header, cells, strict=True))
        row, problems = read_row(texts, self._columns, self.version, self._known)
        problems += row_problems(row, CHECKS[self.dataset])
        problems += self._across.add(self.rows, row)
        for problem in problems:
            yield _finding(self.rows, problem)

    def finish(self) -> Iterator[Finding]:
        """What all rows break together."""
        if not self.rows:
            yield _finding(0, Problem("no-rows", "", "there is only a heading"))
        for number, problem in self._across.finish():
            yield _finding(number, problem)


def finding_of_types(column: str, detail: str) -> Finding:
    """A column of a Parquet file of a type that its values must not have."""
    return _finding(0, Problem("parquet-type", column, detail))


def _finding(row: int, problem: Problem) -> Finding:
    return Finding(row, problem.column, problem.rule, problem.detail, RULES[problem.rule].way_out)
