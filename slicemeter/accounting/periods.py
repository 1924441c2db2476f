"""`slicemeter accounting periods`: the months of the accounts and their state."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.access.viewer import COMMAND_LINE
from accounting.reports.books import periods_document
from slicemeter.accounting.options import opened, parser, print_json, print_table


def main(argv: Sequence[str]) -> int:
    """List the periods."""
    made = parser("periods", "The months of the accounts: open, closing or closed.")
    made.add_argument("--json", action="store_true", help="print a JSON object")
    arguments = made.parse_args(argv)
    with opened(arguments) as database, database.reading() as session:
        document = periods_document(session, COMMAND_LINE)
    if arguments.json:
        print_json(document)
        return 0
    names = ("account", "period", "state", "from", "to", "closed_at", "closed_by")
    found = document["rows"]
    assert isinstance(found, list)
    rows = [["" if one[name] is None else str(one[name]) for name in names] for one in found]
    print_table(["ACCOUNT", "PERIOD", "STATE", "FROM", "TO", "CLOSED", "BY"], rows)
    return 0
