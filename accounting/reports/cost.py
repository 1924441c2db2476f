"""What it cost: ledger lines of a month, added up by one thing.

Invariant: one table and only group-by, so children add up to their parents; amounts are added exactly and
rounded once per row and once for the total of a currency.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, TypeAlias

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer, tenant_is_visible
from accounting.ledger.calendar import Month, local_date, month_bounds_ms
from accounting.ledger.rounding import exact_sum, to_currency
from accounting.periods.statement import Coverage, Sums, coverage_of, rated_as_of_ms, sums_of, unrated_models
from accounting.reports.documents import Document, coverage_document, instant, money, shown, sums_document
from accounting.store.models import BillingAccount, LedgerLine, Tenant

GroupBy: TypeAlias = Literal["tenant", "model", "day", "cluster", "sku"]

GROUPS: tuple[GroupBy, ...] = ("tenant", "model", "day", "cluster", "sku")


@dataclass(frozen=True, slots=True)
class CostRow:
    """The lines of one key and currency (None: showback)."""

    key: str
    currency: str | None
    lines: int
    sums: Sums
    amount: Decimal | None
    shown: Decimal | None


@dataclass(frozen=True, slots=True)
class CostReport:
    """A month of every account, as far as a viewer may see it."""

    period: str
    group_by: GroupBy
    as_of_ms: int | None
    rows: Sequence[CostRow]
    totals: Sequence[CostRow]
    """One for each currency."""
    unrated_models: Sequence[str]
    coverage: Coverage


@dataclass(frozen=True, slots=True)
class _Entry:
    line: LedgerLine
    tenant: str
    time_zone: str


_KEYS: dict[GroupBy, Callable[[_Entry], str]] = {
    "tenant": lambda entry: entry.tenant,
    "model": lambda entry: entry.line.model,
    "day": lambda entry: local_date(entry.line.day_ms, entry.time_zone).isoformat(),
    "cluster": lambda entry: entry.line.cluster,
    "sku": lambda entry: entry.line.sku,
}


def report_cost(session: Session, viewer: Viewer, month: Month, group_by: GroupBy) -> CostReport:
    """Add up the lines of a month; each account's month is that of its own zone."""
    entries: list[_Entry] = []
    coverage = Coverage(0, 0)
    for account in session.scalars(select(BillingAccount).order_by(BillingAccount.code)):
        window = month_bounds_ms(month, account.time_zone)
        rows = session.execute(
            select(LedgerLine, Tenant.path)
            .join(Tenant, Tenant.id == LedgerLine.tenant_id)
            .where(
                tenant_is_visible(viewer),
                LedgerLine.account == account.code,
                LedgerLine.day_ms >= window[0],
                LedgerLine.day_ms < window[1],
            )
        ).all()
        of_account = [_Entry(line, path, account.time_zone) for line, path in rows]
        part = coverage_of(session, [entry.line for entry in of_account], window)
        coverage = Coverage(coverage.confirmed_ms + part.confirmed_ms, coverage.present_ms + part.present_ms)
        entries += of_account
    lines = [entry.line for entry in entries]
    return CostReport(
        period=str(month),
        group_by=group_by,
        as_of_ms=rated_as_of_ms(session),
        rows=_grouped(entries, _KEYS[group_by]),
        totals=_grouped(entries, lambda _: "total"),
        unrated_models=unrated_models(lines),
        coverage=coverage,
    )


def _grouped(entries: Sequence[_Entry], key_of: Callable[[_Entry], str]) -> list[CostRow]:
    groups: dict[tuple[str, str], list[LedgerLine]] = {}
    for entry in entries:
        groups.setdefault((key_of(entry), entry.line.currency or ""), []).append(entry.line)
    rows = []
    for (key, currency), lines in sorted(groups.items()):
        amount = exact_sum(line.amount for line in lines if line.amount is not None) if currency else None
        rows.append(
            CostRow(
                key=key,
                currency=currency or None,
                lines=len(lines),
                sums=sums_of(lines),
                amount=amount,
                shown=None if amount is None else to_currency(amount, currency),
            )
        )
    return rows


def _row(row: CostRow, name: str) -> Document:
    return {
        name: row.key,
        "currency": row.currency,
        "lines": row.lines,
        "amount": money(row.amount),
        "shown": shown(row.shown),
        **sums_document(row.sums),
    }


def cost_document(report: CostReport) -> Document:
    """The report as JSON."""
    return {
        "period": report.period,
        "group_by": report.group_by,
        "as_of": instant(report.as_of_ms),
        "rows": [_row(row, report.group_by) for row in report.rows],
        "totals": [
            {name: value for name, value in _row(row, "key").items() if name != "key"}
            for row in report.totals
        ],
        "reconciliation": {
            "lines": sum(row.lines for row in report.rows),
            "unrated_models": list(report.unrated_models),
            "coverage": coverage_document(report.coverage),
        },
    }
