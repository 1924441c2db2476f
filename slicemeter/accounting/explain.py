"""`slicemeter accounting explain LINE` or `--tenant T --day D`: why an amount is what it is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from accounting.access.viewer import COMMAND_LINE
from accounting.errors import InvalidError
from accounting.periods.explain import explain_day, explain_line
from accounting.reports.explanation import explanation_document, explanation_table
from slicemeter.accounting.options import opened, parser, print_json


def main(argv: Sequence[str]) -> int:
    """Print explanations; exit 1 when the steps of one are not its line."""
    made = parser("explain", "Why an amount is what it is: versions, shares, and the card's day in steps.")
    made.add_argument("line", nargs="?", type=int, help="a line's number, from a statement's JSON")
    made.add_argument("--tenant", help="all lines of a tenant: its path, or a code that only one has")
    made.add_argument("--day", metavar="DAY", help="of the tenant: a local day, as 2026-10-01")
    made.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = made.parse_args(argv)
    by_day = arguments.tenant is not None and arguments.day is not None
    if (arguments.line is None) != by_day or (arguments.line is not None and arguments.tenant is not None):
        raise InvalidError("name a line, or --tenant and --day")
    with opened(arguments) as database, database.reading() as session:
        if by_day:
            found = explain_day(session, COMMAND_LINE, arguments.tenant, _day(arguments.day))
        else:
            found = [explain_line(session, COMMAND_LINE, arguments.line)]
        for one in found:
            if arguments.json:
                print_json(explanation_document(one))
            else:
                print(explanation_table(one))
        is_whole = all(one.adds_up for one in found)
    return 0 if is_whole else 1


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidError(f'"{text}" is no day; write it like 2026-10-01') from None
