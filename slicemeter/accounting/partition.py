"""`slicemeter accounting partition`: look after the monthly partitions of a PostgreSQL database."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from accounting.store.partitions import MONTHS_AHEAD, drain, make_ahead, retire, strays
from slicemeter.accounting.options import now_ms, opened, parser, print_json
from slicemeter.accounting.windows import month_from


def main(argv: Sequence[str]) -> int:
    """Make partitions ahead; exit 1 while a DEFAULT partition holds hours that belong elsewhere."""
    arguments = _arguments(argv)
    with opened(arguments) as database:
        if not database.is_postgresql:
            nothing = "a SQLite database has no partitions; there is nothing to do"
            if arguments.json:
                print_json({"made": [], "moved": [], "retired": [], "in_default": []})
            else:
                print(nothing)
            return 0
        with database.writing() as session:
            moved = drain(session) if arguments.drain else []
            made = make_ahead(session, now_ms=now_ms(), months=arguments.ahead)
            retired = retire(session, arguments.retire, now_ms=now_ms()) if arguments.retire else []
            left = strays(session)
    if arguments.json:
        moves, rest = (
            [{"table": one.table, "month": str(one.month), "rows": one.rows} for one in some]
            for some in (moved, left)
        )
        print_json({"made": made, "moved": moves, "retired": retired, "in_default": rest})
        return 1 if left else 0
    for name in made:
        print(f"made {name}")
    for one in moved:
        print(f"moved {one.rows} rows of {one.month} from {one.table}_default to their own partition")
    for name in retired:
        print(f"retired {name}: a table of its own now; export it, then drop it")
    for one in left:
        print(f"{one.table}_default holds {one.rows} rows of {one.month}; move them with --drain")
    if not (made or moved or retired or left):
        print("every partition is there")
    return 1 if left else 0


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    made = parser("partition", "Make the monthly partitions of a PostgreSQL database; run it once a month.")
    made.add_argument(
        "--ahead",
        metavar="MONTHS",
        type=int,
        choices=range(1, 37),
        default=MONTHS_AHEAD,
        help="how many months after this one; default: %(default)s",
    )
    made.add_argument(
        "--drain", action="store_true", help="give hours in DEFAULT partitions a partition of their own"
    )
    made.add_argument(
        "--retire",
        metavar="YYYY-MM",
        type=month_from,
        help="take the months before this one out of their tables, into tables of their own; drops nothing",
    )
    made.add_argument("--json", action="store_true", help="print a JSON object")
    return made.parse_args(argv)
