"""`slicemeter accounting statements`: the numbered statements and credit notes."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.access.viewer import COMMAND_LINE
from accounting.reports.seals import issued_list_document
from slicemeter.accounting.options import opened, parser, print_json, print_table
from slicemeter.accounting.windows import month_from


def main(argv: Sequence[str]) -> int:
    """List what was issued."""
    made = parser("statements", "The statements and credit notes that were issued, by number.")
    made.add_argument("--account", help="only of this account")
    made.add_argument("--period", help="only of this month, as 2026-10")
    made.add_argument("--json", action="store_true", help="print a JSON object")
    arguments = made.parse_args(argv)
    month = None if arguments.period is None else month_from(arguments.period)
    with opened(arguments) as database, database.reading() as session:
        document = issued_list_document(session, COMMAND_LINE, account=arguments.account, month=month)
    if arguments.json:
        print_json(document)
        return 0
    names = ("number", "kind", "state", "account", "period", "total", "currency", "issued_at", "reason")
    found = document["rows"]
    assert isinstance(found, list)
    rows = [["" if one[name] is None else str(one[name]) for name in names] for one in found]
    headings = ["NUMBER", "KIND", "STATE", "ACCOUNT", "PERIOD", "TOTAL", "CURRENCY", "ISSUED", "REASON"]
    print_table(headings, rows)
    return 0
