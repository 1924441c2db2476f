"""The datasets Billing Period and Invoice Detail of FOCUS 1.4.

Invariant: the charges of a file of Cost and Usage add up to the details made of the same lines, for each
InvoiceDetailId; a void statement stands beside the credit note that voids it.
Source: `reference/focus-mapping.md §5`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from accounting.exports.columns import Column
from accounting.exports.focus_charges import Charge, Charges, file_column
from accounting.focus.model import Dataset, columns_of
from accounting.ledger.rounding import EXACT
from accounting.periods.ledger_stream import Document, Frame, Streamed

_NOT_EMITTED = frozenset(
    {"PaymentCurrency", "PaymentCurrencyBilledCost", "PaymentCurrencyInvoiceDetailId", "PurchaseOrderNumber"}
)

TERMS = "Internal chargeback, no payment"


def document_columns(dataset: Dataset) -> list[Column]:
    """The columns of one of these datasets."""
    return [
        file_column(column) for name, column in columns_of(dataset, "1.4").items() if name not in _NOT_EMITTED
    ]


def _seconds(at_ms: int) -> int:
    return at_ms // 1_000 * 1_000


def billing_period(frame: Frame) -> Charge:
    """The one row of the month."""
    updated_ms = frame.closed_at_ms or max(frame.as_of_ms or 0, frame.starts_at_ms)
    return {
        "BillingPeriodCreated": frame.starts_at_ms,
        "BillingPeriodLastUpdated": _seconds(max(updated_ms, frame.starts_at_ms)),
        "BillingPeriodStart": frame.starts_at_ms,
        "BillingPeriodEnd": frame.ends_at_ms,
        "BillingPeriodStatus": "Closed" if frame.is_closed else "Open",
        "InvoiceIssuerName": frame.issuer,
    }


@dataclass(slots=True)
class _Detail:
    """Charges of one tenant, kind and SKU, added up."""

    category: str
    tenant: str
    kind: str
    sku: str
    invoice: str
    amount: Decimal = Decimal(0)


def invoice_details(charges: Charges, lines: Iterable[Streamed]) -> Iterator[Charge]:
    """A row for each tenant, kind of line and SKU of each statement of the month."""
    details: dict[str, _Detail] = {}
    for charge in charges.of(lines):
        name = str(charge["InvoiceDetailId"])
        detail = details.get(name)
        if detail is None:
            detail = details[name] = _Detail(
                str(charge["ChargeCategory"]),
                str(charge["SubAccountId"]),
                _kind(charge),
                str(charge.get("SkuId") or ""),
                str(charge["InvoiceId"]),
            )
        billed = charge["BilledCost"]
        assert isinstance(billed, Decimal)
        detail.amount = EXACT.add(detail.amount, billed)
    frame, newest = charges.frame, charges.invoice
    own = [detail for detail in details.values() if detail.invoice == newest]
    for document in frame.documents[:-1]:
        yield from _voided(charges, document, own)
    last = frame.documents[-1] if frame.documents else None
    for detail in own:
        yield _row(charges, detail, newest, last)
    if last is not None and last.note is not None:
        yield _credit(charges, last)


def _kind(charge: Charge) -> str:
    kind = str(charge["x_LineKind"])
    return f"correction-{kind}" if charge.get("ChargeClass") else kind


def _voided(charges: Charges, document: Document, own: Iterable[_Detail]) -> Iterator[Charge]:
    for detail in own:
        yield _row(charges, detail, document.number, document)
    yield _credit(charges, document)


def _row(charges: Charges, detail: _Detail, invoice: str, document: Document | None) -> Charge:
    frame = charges.frame
    parts = (invoice, detail.tenant, detail.kind, detail.sku)
    grain = {"SubAccountId": detail.tenant} | ({"SkuId": detail.sku} if detail.sku else {})
    created_ms = frame.starts_at_ms if document is None else document.issued_at_ms
    updated_ms = max(frame.as_of_ms or 0, frame.starts_at_ms)
    status = "Open"
    if document is not None:
        updated_ms = document.note_issued_at_ms or document.issued_at_ms
        status = "Issued" if document.note is None else "Voided"
    return _document(charges) | {
        "BilledCost": detail.amount,
        "ChargeCategory": detail.category,
        "InvoiceDetailCreated": _seconds(created_ms),
        "InvoiceDetailDescription": f"{detail.tenant}: {detail.kind.replace('-', ' ')} {detail.sku}".strip(),
        "InvoiceDetailGrain": json.dumps(grain, sort_keys=True, ensure_ascii=False, separators=(",", ":")),
        "InvoiceDetailId": ":".join(part for part in parts if part),
        "InvoiceDetailLastUpdated": _seconds(updated_ms),
        "InvoiceId": invoice,
        "InvoiceIssueDate": None if document is None else _seconds(document.issued_at_ms),
        "InvoiceIssueStatus": status,
        "ReferenceInvoiceId": invoice,
    }


def _credit(charges: Charges, document: Document) -> Charge:
    """The credit note of a void statement."""
    assert document.note is not None
    assert document.note_issued_at_ms is not None
    root, issued_ms = charges.frame.root, _seconds(document.note_issued_at_ms)
    return _document(charges) | {
        "BilledCost": EXACT.minus(charges.total),
        "ChargeCategory": "Credit",
        "InvoiceDetailCreated": issued_ms,
        "InvoiceDetailDescription": f"{root}: credit note {document.note} voids {document.number}",
        "InvoiceDetailGrain": json.dumps({"SubAccountId": root}, ensure_ascii=False, separators=(",", ":")),
        "InvoiceDetailId": f"{document.note}:{root}:credit-note",
        "InvoiceDetailLastUpdated": issued_ms,
        "InvoiceId": document.note,
        "InvoiceIssueDate": issued_ms,
        "InvoiceIssueStatus": "Issued",
        "ReferenceInvoiceId": document.number,
    }


def _document(charges: Charges) -> Charge:
    frame = charges.frame
    return {
        "BillingAccountId": frame.account,
        "BillingCurrency": frame.currency,
        "BillingPeriodStart": frame.starts_at_ms,
        "BillingPeriodEnd": frame.ends_at_ms,
        "InvoiceIssuerName": frame.issuer,
        "PaymentTerms": TERMS,
    }
