"""`slicemeter accounting audit list`: who changed what, newest first."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.reports.seals import audit_document
from slicemeter.accounting.options import Parser, add_database_option, opened, print_json, print_table


def main(argv: Sequence[str]) -> int:
    """List the audit log."""
    made = Parser(
        prog="slicemeter accounting audit", description="Who changed what, and when.", allow_abbrev=False
    )
    actions = made.add_subparsers(title="commands", dest="action", required=True, metavar="COMMAND")
    show = actions.add_parser("list", help="show the newest entries")
    add_database_option(show)
    show.add_argument("--limit", type=int, default=50, help="how many; default: %(default)s")
    show.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = made.parse_args(argv)
    if arguments.limit < 1:
        made.error("--limit is 1 or more")
    with opened(arguments) as database, database.reading() as session:
        rows = audit_document(session, limit=arguments.limit)["rows"]
    assert isinstance(rows, list)
    if arguments.json:
        for row in rows:
            print_json(row)
        return 0
    names = ("seq", "at", "actor", "action", "object", "after")
    print_table([name.upper() for name in names], [[str(row[name]) for name in names] for row in rows])
    return 0
