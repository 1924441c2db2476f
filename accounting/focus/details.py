"""What the charges of a file must come to, read from a file of Invoice Detail.

Invariant: a void statement and the credit note that voids it may have no charges, for they cancel each
other; every other detail must have its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from accounting.focus.across import Totals
from accounting.focus.values import EXACT, number

_NEEDED = ("InvoiceId", "InvoiceDetailId", "BilledCost", "InvoiceIssueStatus", "ReferenceInvoiceId")


@dataclass(slots=True)
class DetailTotals:
    """Adds details up as they pass by."""

    header: Sequence[str]
    _invoices: dict[str, Decimal] = field(default_factory=dict)
    _details: dict[str, Decimal] = field(default_factory=dict)
    _invoice_of: dict[str, str] = field(default_factory=dict)
    _voided: set[str] = field(default_factory=set)
    _refers_to: dict[str, str] = field(default_factory=dict)

    def through(self, rows: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
        """The rows, each counted on its way."""
        places = {name: self.header.index(name) for name in _NEEDED if name in self.header}
        for cells in rows:
            if len(places) == len(_NEEDED) and len(cells) == len(self.header):
                self._add(*(cells[places[name]] for name in _NEEDED))
            yield cells

    def _add(self, *cells: str) -> None:
        invoice, detail, billed, status, refers_to = cells
        amount = number(billed)
        if amount is None:
            return
        self._invoices[invoice] = EXACT.add(self._invoices.get(invoice, Decimal(0)), amount)
        self._details[detail] = EXACT.add(self._details.get(detail, Decimal(0)), amount)
        self._invoice_of[detail] = invoice
        self._refers_to[invoice] = refers_to
        if status == "Voided":
            self._voided.add(invoice)

    def totals(self) -> Totals:
        """What was told."""
        cancelled = {
            invoice
            for invoice, refers_to in self._refers_to.items()
            if invoice in self._voided or refers_to in self._voided
        }
        of_details = {detail for detail, invoice in self._invoice_of.items() if invoice in cancelled}
        return Totals(self._invoices, self._details, frozenset(cancelled | of_details))
