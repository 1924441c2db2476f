"""The rules that only several rows together can break.

What is kept grows with the prices, services, invoices and invoice details of a file, not with its rows.
Invariant: sums are exact; an invoice is compared only with a total that somebody told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol

from accounting.focus.checks import Problem, Row, allocated_ratio
from accounting.focus.repeats import Repeats
from accounting.focus.values import EXACT

_KEY = (
    "InvoiceId",
    "SkuId",
    "SkuPriceId",
    "ResourceId",
    "ChargePeriodStart",
    "SubAccountId",
    "ChargeClass",
    "AllocatedResourceId",
    "x_LineKind",
    "x_PolicyVersion",
    "x_DiscountPercent",
    "x_UsageRevision",
)
"""What one charge of ours is told apart by. In a file without x_UsageRevision a whole row is the key."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What the charges of a file must come to.

    Attributes:
        invoices: By InvoiceId.
        details: By InvoiceDetailId.
        cancelled: Names of both that may have no charge at all.
    """

    invoices: Mapping[str, Decimal] = field(default_factory=dict)
    details: Mapping[str, Decimal] = field(default_factory=dict)
    cancelled: frozenset[str] = frozenset()


class Across(Protocol):
    """Looks at all rows of a dataset."""

    def add(self, number: int, row: Row) -> Iterator[Problem]:
        """Take a row; what it breaks together with those before."""

    def finish(self) -> Iterator[tuple[int, Problem]]:
        """What all rows break together; row 0 stands for all of them."""


class Charges:
    """All rows of Cost and Usage."""

    def __init__(self, repeats: Repeats, totals: Totals) -> None:
        self._repeats = repeats
        self._totals = totals
        self._sku_of: dict[str, str] = {}
        self._meter_of: dict[str, str] = {}
        self._category_of: dict[str, tuple[str, str]] = {}
        self._currency_of: dict[str, str] = {}
        self._invoices: dict[str, Decimal] = {}
        self._details: dict[str, Decimal] = {}
        self._ratios: dict[tuple[str, ...], Decimal] = {}

    def add(self, number: int, row: Row) -> Iterator[Problem]:
        """Take a charge."""
        key = [row.text(name) for name in _KEY] if row.has("x_UsageRevision") else list(row.texts.values())
        self._repeats.add(number, key)
        yield from _same(self._sku_of, row, "SkuPriceId", "SkuId", "sku-price-shared")
        yield from _same(self._meter_of, row, "SkuId", "SkuMeter", "sku-meter-changed")
        yield from _same(self._currency_of, row, "InvoiceId", "BillingCurrency", "invoice-currency")
        service = (row.text("ServiceCategory"), row.text("ServiceSubcategory"))
        if self._category_of.setdefault(row.text("ServiceName"), service) != service:
            yield Problem("service-category-changed", "ServiceCategory", f"it is {' / '.join(service)}")
        billed = row.numbers.get("BilledCost")
        if billed is not None:
            for column, sums in (("InvoiceId", self._invoices), ("InvoiceDetailId", self._details)):
                name = row.text(column)
                if name:
                    sums[name] = EXACT.add(sums.get(name, Decimal(0)), billed)
        if row.text("AllocatedMethodId"):
            origin = tuple(row.text(name) for name in ("ResourceId", "SkuPriceId", "ChargePeriodStart"))
            ratio = allocated_ratio(row)
            if ratio is not None:
                self._ratios[origin] = EXACT.add(self._ratios.get(origin, Decimal(0)), ratio)

    def finish(self) -> Iterator[tuple[int, Problem]]:
        """What the charges come to, and which stand twice."""
        for first, number in self._repeats.found():
            yield number, Problem("row-repeated", "", f"it is row {first} again")
        for rule, column, found, told in (
            ("invoice-total", "InvoiceId", self._invoices, self._totals.invoices),
            ("invoice-detail-total", "InvoiceDetailId", self._details, self._totals.details),
        ):
            for name in sorted(told.keys() | found.keys()) if told else ():
                if name not in found and name in self._totals.cancelled:
                    continue
                of_file = found.get(name, Decimal(0))
                if name not in told:
                    yield 0, Problem(rule, column, f"{name}: nobody told its total")
                elif of_file != told[name]:
                    yield 0, Problem(rule, column, f"{name}: {of_file:f} is not {told[name]:f}")
        for origin, ratio in self._ratios.items():
            if ratio != 1:
                yield 0, Problem("allocated-ratio", "AllocatedMethodDetails", f"{origin[0]}: {ratio:f}")


def _same(known: dict[str, str], row: Row, of: str, what: str, rule: str) -> Iterator[Problem]:
    """One value of a column for each value of another."""
    key, value = row.text(of), row.text(what)
    if key and row.has(what) and known.setdefault(key, value) != value:
        yield Problem(rule, what, f'"{value}", but "{known[key]}" before, of {key}')


class InvoiceDetails:
    """All rows of Invoice Detail."""

    def __init__(self, repeats: Repeats) -> None:
        self._repeats = repeats
        self._currency_of: dict[str, str] = {}

    def add(self, number: int, row: Row) -> Iterator[Problem]:
        """Take a detail."""
        self._repeats.add(number, [row.text("InvoiceDetailId")])
        yield from _same(self._currency_of, row, "InvoiceId", "BillingCurrency", "invoice-currency")

    def finish(self) -> Iterator[tuple[int, Problem]]:
        """Which stand twice."""
        for first, number in self._repeats.found():
            yield number, Problem("invoice-detail-repeated", "InvoiceDetailId", f"it is that of row {first}")


class Periods:
    """All rows of Billing Period: nothing binds them."""

    def add(self, number: int, row: Row) -> Iterator[Problem]:
        """Take a period."""
        del number, row
        yield from ()

    def finish(self) -> Iterator[tuple[int, Problem]]:
        """Nothing."""
        yield from ()
