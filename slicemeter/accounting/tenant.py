"""`slicemeter accounting tenant list`: the tree of tenants."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.access.viewer import COMMAND_LINE
from accounting.tenants.tree import list_tenants
from slicemeter.accounting.options import Parser, add_database_option, opened, print_json, print_table


def main(argv: Sequence[str]) -> int:
    """List the tenants."""
    made = Parser(prog="slicemeter accounting tenant", description="The tree of tenants.", allow_abbrev=False)
    actions = made.add_subparsers(dest="action", required=True, metavar="list")
    show = actions.add_parser("list", help="show the tenants, those that nobody has mapped included")
    add_database_option(show)
    show.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = made.parse_args(argv)
    with opened(arguments) as database, database.reading() as session:
        tenants = [
            {
                "path": tenant.path,
                "code": tenant.code,
                "kind": tenant.kind,
                "account": tenant.account,
                "unmapped": tenant.is_unmapped,
            }
            for tenant in list_tenants(session, COMMAND_LINE)
        ]
    if arguments.json:
        for one in tenants:
            print_json(one)
    else:
        rows = [
            [one["path"], one["kind"], one["account"], "yes" if one["unmapped"] else ""] for one in tenants
        ]
        print_table(["TENANT", "KIND", "ACCOUNT", "UNMAPPED"], [[str(cell) for cell in row] for row in rows])
    return 0
