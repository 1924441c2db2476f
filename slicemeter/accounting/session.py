"""`slicemeter accounting session list|end`: who is signed in at the page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from accounting.access.sessions import end_sessions_of, list_sessions
from accounting.access.viewer import COMMAND_LINE
from accounting.store.database import Database
from slicemeter.accounting.options import Parser, add_database_option, now_ms, opened, print_json, print_table


def main(argv: Sequence[str]) -> int:
    """List sessions, or end those of somebody."""
    made = Parser(
        prog="slicemeter accounting session", description="Who is signed in at the page.", allow_abbrev=False
    )
    actions = made.add_subparsers(title="commands", dest="action", required=True, metavar="COMMAND")
    show = actions.add_parser("list", help="show who is signed in")
    end = actions.add_parser("end", help="sign somebody out at once, wherever they are signed in")
    end.add_argument("who", help="as session list names them: token:PREFIX, or oidc:NAME (SUBJECT)")
    for action in (show, end):
        add_database_option(action)
        action.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = made.parse_args(argv)
    with opened(arguments) as database:
        if arguments.action == "list":
            _list(database, as_json=arguments.json)
            return 0
        with database.writing() as session:
            count = end_sessions_of(session, arguments.who, by=COMMAND_LINE, now_ms=now_ms())
    if arguments.json:
        print_json({"ended": count})
    else:
        print(f"{count} sessions of {arguments.who} are ended")
    return 0


def _list(database: Database, *, as_json: bool) -> None:
    with database.reading() as session:
        found = list_sessions(session, now_ms=now_ms())
    rows = [
        {
            "who": one.who,
            "role": one.role,
            "tenant": one.tenant_path,
            "began": _instant(one.began_at_ms),
            "seen": _instant(one.seen_at_ms),
            "ends": _instant(one.expires_at_ms),
        }
        for one in found
    ]
    if as_json:
        for row in rows:
            print_json(row)
    else:
        headings = ["WHO", "ROLE", "TENANT", "BEGAN", "SEEN", "ENDS"]
        print_table(headings, [[value or "-" for value in row.values()] for row in rows])


def _instant(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
