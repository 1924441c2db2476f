"""A statement as CSV: one row a line, then the rounding line, so that a spreadsheet's sum is the total.

Invariant: the column `shown` adds up to the total. Cells that a spreadsheet would run as a formula are
quoted with an apostrophe, since pod names come from tenants.
"""

from __future__ import annotations

import csv
import io
from decimal import Decimal

from accounting.ledger.rounding import card_factor, card_hours
from accounting.periods.statement import Statement, StatementLine
from accounting.reports.documents import money, shown
from accounting.reports.units import exactly

COLUMNS = (
    "account",
    "tenant",
    "period",
    "day",
    "kind",
    "sku",
    "cluster",
    "node",
    "device_uuid",
    "model",
    "namespace",
    "pod",
    "container",
    "from",
    "to",
    "own_card_hours",
    "discount_card_hours",
    "card_hours",
    "card_factor",
    "own_ppm_ms",
    "charged_ppm_ms",
    "held_not_running_ppm_ms",
    "degraded_ppm_ms",
    "unit_price",
    "currency",
    "amount",
    "shown",
    "sm_ppm_ms",
    "mem_peak_mib",
    "covered_ms",
    "energy_active_mj",
    "energy_mj",
    "discount_percent",
    "corrects_period",
    "corrects_day",
    "reason",
)

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def statement_csv(statement: Statement) -> str:
    """The statement, RFC 4180, with a heading."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for line in statement.lines:
        writer.writerow([cell(values) for values in _cells(statement, line)])
    if statement.rounding is not None:
        rounding = dict.fromkeys(COLUMNS, "")
        rounding |= {
            "account": statement.account,
            "tenant": statement.tenant,
            "period": statement.period,
            "kind": "rounding",
            "currency": statement.currency or "",
            "shown": shown(statement.rounding) or "",
        }
        writer.writerow(rounding.values())
    return out.getvalue()


def cell(value: str | int | Decimal | None) -> str:
    """A value as a cell; null is empty."""
    if value is None:
        return ""
    text = str(value)
    is_text = isinstance(value, str) and not _is_number(text)
    return f"'{text}" if is_text and text.startswith(_FORMULA_STARTS) else text


def _is_number(text: str) -> bool:
    return text.removeprefix("-").replace(".", "", 1).isdecimal()


def _cells(statement: Statement, line: StatementLine) -> list[str | int | Decimal | None]:
    use = line.use
    return [
        statement.account,
        line.tenant,
        statement.period,
        line.day,
        line.kind,
        line.sku,
        line.cluster,
        line.node,
        line.device_uuid,
        line.model,
        line.namespace,
        line.pod,
        line.container,
        exactly(line.charge_from_ms),
        exactly(line.charge_to_ms),
        str(card_hours(line.own_ppm_ms)),
        str(card_hours(line.discount_ppm_ms)),
        str(card_hours(line.charged_ppm_ms)),
        money(card_factor(line.own_ppm_ms, line.charged_ppm_ms)),
        line.own_ppm_ms,
        line.charged_ppm_ms,
        line.held_not_running_ppm_ms,
        line.degraded_ppm_ms,
        money(line.unit_price),
        statement.currency,
        money(line.amount),
        shown(line.shown),
        None if use is None else use.sm_ppm_ms,
        None if use is None else use.mem_peak_mib,
        None if use is None else use.covered_ms,
        None if use is None else use.energy_active_mj,
        line.energy_mj or None,
        money(line.discount_percent),
        line.corrects_period,
        line.corrects_day,
        line.reason,
    ]
