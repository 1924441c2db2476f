"""`slicemeter accounting cost PERIOD`: what a month cost, by tenant, model, day, cluster or SKU."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.access.viewer import COMMAND_LINE
from accounting.reports.cost import GROUPS, cost_document, report_cost
from accounting.reports.units import amount_text, hours
from slicemeter.accounting.options import opened, parser, print_json, print_table
from slicemeter.accounting.windows import month_from


def main(argv: Sequence[str]) -> int:
    """Print one row a group, and the total of each currency."""
    made = parser("cost", "What a month cost so far.")
    made.add_argument("period", help="a month, as 2026-10")
    made.add_argument("--by", choices=GROUPS, default="tenant", help="default: %(default)s")
    made.add_argument("--json", action="store_true", help="print a JSON object")
    arguments = made.parse_args(argv)
    with opened(arguments) as database, database.reading() as session:
        report = report_cost(session, COMMAND_LINE, month_from(arguments.period), arguments.by)
    if arguments.json:
        print_json(cost_document(report))
        return 0
    rows = [
        [
            row.key,
            hours(row.sums.own_ppm_ms),
            hours(row.sums.discount_ppm_ms),
            hours(row.sums.charged_ppm_ms),
            hours(row.sums.idle_ppm_ms),
            amount_text(row.shown),
            row.currency or "showback",
        ]
        for row in (*report.rows, *report.totals)
    ]
    print_table([arguments.by.upper(), "OWN", "DISCOUNT", "CHARGED", "IDLE", "AMOUNT", "CURRENCY"], rows)
    if report.unrated_models:
        print(f"unrated, without a price: {', '.join(report.unrated_models)}")
    return 0
