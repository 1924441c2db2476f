"""A statement for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.ledger.rounding import plain
from accounting.periods.statement import Statement
from accounting.reports.documents import money
from accounting.reports.statement_groups import group_lines
from accounting.reports.units import (
    amount_text,
    coverage_text,
    energy_text,
    hours,
    kwh,
    peak_text,
    price_of,
    quantity,
    sm_text,
    what,
    when,
)

_RIGHT = frozenset({"OWN", "DISCOUNT", "CARD-HOURS", "PRICE", "AMOUNT", "SM HOURS", "PEAK"})


def statement_table(statement: Statement) -> str:
    """Heading, lines, rounding line, total, and what the figures rest on."""
    has_money = statement.currency is not None
    headings = ["DAY", "WHAT", "MODEL", "OWN", "DISCOUNT", "CARD-HOURS"]
    headings += ["PRICE", "AMOUNT"] if has_money else []
    headings += ["SM HOURS", "PEAK"]
    rows = []
    for line in statement.lines:
        price = price_of(line, statement.currency)
        cells = [line.day, what(line), line.model]
        shares = ["", ""] if line.energy_mj else [hours(line.own_ppm_ms), hours(line.discount_ppm_ms)]
        cells += [*shares, quantity(line)]
        cells += [price, amount_text(line.shown)] if has_money else []
        cells += ["", ""] if line.kind != "usage" else [sm_text(line.use), peak_text(line.use)]
        rows.append(cells)
    if has_money:
        blank = [""] * 7
        rows.append(["rounding", *blank[1:], amount_text(statement.rounding), "", ""])
        total = amount_text(statement.total)
        sums = statement.sums
        own = hours(sums.own_ppm_ms + sums.idle_ppm_ms)
        charged = hours(sums.charged_ppm_ms + sums.idle_ppm_ms)
        rows.append(["total", "", "", own, hours(sums.discount_ppm_ms), charged, "", total, "", ""])
    table = columns(headings, rows)
    return "\n".join([*_heading(statement), "", *table, "", *_groups(statement), *_footing(statement), ""])


def _groups(statement: Statement) -> list[str]:
    """Of several tenants or models, what each comes to."""
    groups = group_lines(statement)
    if len(groups) < 2:
        return []
    rows = [
        [group.tenant, group.model, hours(group.charged_ppm_ms), amount_text(group.shown)] for group in groups
    ]
    return [*columns(["TENANT", "MODEL", "CARD-HOURS", "AMOUNT"], rows), ""]


def _heading(statement: Statement) -> list[str]:
    zone = statement.time_zone
    currency = statement.currency or "in card-hours (showback)"
    span = f"{when(statement.starts_at_ms, zone)} to {when(statement.ends_at_ms, zone)} ({zone})"
    provisional = ", provisional" if statement.is_provisional else ""
    as_of = when(statement.as_of_ms, zone)
    return [
        f"Statement of {statement.tenant} for {statement.period}",
        f"account {statement.account}, {currency}, {span}",
        f"period {statement.state}{provisional}, rated as of {as_of}",
    ]


def _footing(statement: Statement) -> list[str]:
    sums = statement.sums
    own, discount = hours(sums.own_ppm_ms), hours(sums.discount_ppm_ms)
    notes = [
        f"own share {own} − sharing discount {discount} = charged {hours(sums.charged_ppm_ms)} card-hours"
    ]
    if sums.held_not_running_ppm_ms:
        notes.append(f"of it held but not running {hours(sums.held_not_running_ppm_ms)} card-hours")
    if sums.degraded_ppm_ms:
        notes.append(f"of it degraded (worked while the device was down) {hours(sums.degraded_ppm_ms)}")
    if sums.unallocated_ppm_ms:
        notes.append(f"charged without an allocation {hours(sums.unallocated_ppm_ms)} card-hours")
    if sums.handed_on_ppm_ms:
        notes.append(f"idle capacity handed on {hours(sums.handed_on_ppm_ms)} card-hours")
    for share in statement.idle_shares:
        amount = "" if share.amount is None else f", {money(share.amount)} {statement.currency}"
        part = f"{hours(share.quantity_ppm_ms)} card-hours of {share.model} in {share.cluster}{amount}"
        notes.append(f"idle capacity to be handed on ({share.policy}), provisional, in no sum: {part}")
    notes += sorted({line.reason for line in statement.lines if line.kind == "idle" and line.reason})
    if sums.energy_mj:
        notes.append(f"energy {kwh(sums.energy_mj)}")
    discounts = sorted({line.discount_percent for line in statement.lines if line.discount_percent})
    if discounts:
        notes.append(f"amounts are after {', '.join(map(plain, discounts))} % discount")
    use = statement.use
    if use is not None:
        notes.append(f"measured: {sm_text(use)} SM hours, peak {peak_text(use)}, {energy_text(use)}")
    notes.append(f"coverage {coverage_text(statement.coverage)} of the devices' presence is confirmed")
    if statement.unrated_models:
        notes.append(f"unrated, without a price: {', '.join(statement.unrated_models)}")
    for one in statement.unallocated:
        pod = f"{one.namespace}/{one.pod} · {one.container}"
        billed = "billed" if sums.unallocated_ppm_ms else "not billed"
        notes.append(f"unallocated use, {billed}: {pod}, {sm_text(one.use)} SM hours")
    return notes


def columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell; figures stand to the right."""
    table = [list(headings), *(list(row) for row in rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(headings))]
    return [
        "  ".join(
            cell.rjust(width) if heading in _RIGHT else cell.ljust(width)
            for cell, width, heading in zip(row, widths, headings, strict=True)
        ).rstrip()
        for row in table
    ]
