"""`slicemeter accounting forecast [PERIOD]`: what the month will have cost when it is over."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.access.viewer import COMMAND_LINE
from accounting.budgets.standing import OpenAt, outlooks
from accounting.reports.budgets import outlook_document, outlook_totals
from slicemeter.accounting.options import now_ms, opened, parser, print_json, print_table
from slicemeter.accounting.windows import month_from


def main(argv: Sequence[str]) -> int:
    """Print one row a tenant, and the total of each currency."""
    made = parser("forecast", "What each tenant's month costs so far, and at the rate of its last full days.")
    made.add_argument("period", nargs="?", help="a month, as 2026-10; default: the open one")
    made.add_argument("--json", action="store_true", help="print a JSON object")
    arguments = made.parse_args(argv)
    with opened(arguments) as database, database.reading() as session:
        which = month_from(arguments.period) if arguments.period else OpenAt(now_ms())
        found = outlooks(session, COMMAND_LINE, which)
    totals = outlook_totals(found)
    if arguments.json:
        print_json({"rows": [outlook_document(each) for each in found], "totals": totals})
        return 0
    if not found:
        print("nothing has a price in that month yet")
        return 0
    rows = [[each.tenant, each.period, str(each.spent), str(each.forecast), each.currency] for each in found]
    rows += [["total", "", str(one["spent"]), str(one["forecast"]), str(one["currency"])] for one in totals]
    print_table(["TENANT", "PERIOD", "SPENT", "FORECAST", "CURRENCY"], rows)
    return 0
