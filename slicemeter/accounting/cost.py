"""`slicemeter accounting cost [PERIOD]`: what a window cost, added up by what is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.access.viewer import COMMAND_LINE
from accounting.reports.cost import IDLE, CostRow, cost_document, report_cost
from accounting.reports.grouping import COST_KEYS, parse_keys
from accounting.reports.spans import month_span
from accounting.reports.units import amount_text, hours
from slicemeter.accounting.narrowing import (
    add_filter_options,
    add_form_options,
    add_group_option,
    filters_of,
    print_csv,
)
from slicemeter.accounting.options import now_ms, opened, parser, print_json, print_table
from slicemeter.accounting.windows import add_window_options, month_from, span_of


def main(argv: Sequence[str]) -> int:
    """Print one row a group, and the total of each currency."""
    made = parser("cost", "What a month, or the days that begin in a window, cost so far.")
    made.add_argument("period", nargs="?", help="a month, as 2026-10; default: this month so far")
    add_window_options(made)
    add_group_option(made, COST_KEYS, default="tenant", also="--by")
    add_filter_options(made, "tenant", "account", "cluster", "namespace", "node", "model", "sku")
    made.add_argument(
        "--idle",
        choices=IDLE,
        default=IDLE[0],
        help="idle capacity: as billed, all at platform/idle, handed on by the policy (also provisionally), "
        "or left out; default: %(default)s",
    )
    add_form_options(made)
    arguments = made.parse_args(argv)
    keys = parse_keys(arguments.group_by, COST_KEYS) or ("tenant",)
    with opened(arguments) as database, database.reading() as session:
        if arguments.period is None:
            span = span_of(arguments, now_ms())
        else:
            span = month_span(month_from(arguments.period), arguments.tz)
        report = report_cost(
            session, COMMAND_LINE, span, keys, filters=filters_of(arguments), idle=arguments.idle
        )
    if arguments.json:
        print_json(cost_document(report))
    elif arguments.csv:
        print_csv(cost_document(report))
    else:
        blank = ("total", *[""] * (len(keys) - 1))
        rows = [_cells(row.keys, row) for row in report.rows] + [_cells(blank, row) for row in report.totals]
        headings = [
            *(key.upper() for key in keys),
            "OWN",
            "DISCOUNT",
            "CHARGED",
            "IDLE",
            "AMOUNT",
            "CURRENCY",
        ]
        print_table(headings, rows)
        if report.unrated_models:
            print(f"unrated, without a price: {', '.join(report.unrated_models)}")
        if report.provisional_lines:
            print("idle capacity of open months is handed on provisionally: it is posted when they close")
    return 0


def _cells(keys: Sequence[str], row: CostRow) -> list[str]:
    sums = row.sums
    quantities = (sums.own_ppm_ms, sums.discount_ppm_ms, sums.charged_ppm_ms)
    idle = hours(sums.idle_ppm_ms + sums.handed_on_ppm_ms)
    return [*keys, *map(hours, quantities), idle, amount_text(row.shown), row.currency or "showback"]
