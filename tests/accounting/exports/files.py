"""Exports of a test's ledger, as bytes and as rows of text."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import TYPE_CHECKING

from accounting.access.viewer import COMMAND_LINE, Viewer
from accounting.exports.making import FORMATS, Format, Wanted, write_export
from accounting.focus.model import DATASETS, Dataset, Version
from accounting.ledger.calendar import parse_month

if TYPE_CHECKING:
    from tests.accounting.periods.conftest import Ledger


def exported(
    ledger: Ledger,
    form: Format,
    *,
    month: str = "2026-10",
    tenant: str | None = None,
    account: str | None = "acme",
    version: Version = "1.4",
    dataset: Dataset = "cost-and-usage",
    viewer: Viewer = COMMAND_LINE,
) -> bytes:
    file = io.BytesIO()
    wanted = Wanted(parse_month(month), form, tenant, account, version, dataset)
    with ledger.database.reading() as session:
        write_export(session, viewer, wanted, file)
    return file.getvalue()


def rows(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def total(charges: list[dict[str, str]], column: str = "BilledCost") -> Decimal:
    return sum((Decimal(row[column]) for row in charges), Decimal(0))


def everything(ledger: Ledger, month: str = "2026-10") -> dict[tuple[str, ...], bytes]:
    """Every file that can be made of both accounts of a month."""
    made: dict[tuple[str, ...], bytes] = {}
    for account in ("acme", "platform"):
        for form in FORMATS:
            if not form.startswith("focus"):
                made[account, form] = exported(ledger, form, month=month, account=account)
                continue
            for dataset in DATASETS:
                made[account, form, dataset] = exported(
                    ledger, form, month=month, account=account, dataset=dataset
                )
            made[account, form, "1.2"] = exported(ledger, form, month=month, account=account, version="1.2")
    return made
