"""`slicemeter accounting statement PERIOD --tenant T`: a tenant's month."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from accounting.access.viewer import COMMAND_LINE
from accounting.errors import InvalidError
from accounting.exports.publishing import published
from accounting.periods.statement import state_statement
from accounting.reports.rendering import FORMATS, render_statement
from accounting.reports.statement_pdf import statement_pdf
from slicemeter.accounting.options import opened, parser
from slicemeter.accounting.windows import month_from


def main(argv: Sequence[str]) -> int:
    """Print a statement, or write it to a file."""
    made = parser("statement", "A tenant's month, with all that lies below it.")
    made.add_argument("period", help="a month, as 2026-10")
    made.add_argument("--tenant", help="its path, or its code where only one tenant has it")
    made.add_argument("--account", help="all its tenants; or, with --tenant, where a tenant has several")
    made.add_argument(
        "--format",
        choices=(*FORMATS, "pdf"),
        default="table",
        help="default: %(default)s; pdf needs slicemeter[pdf]",
    )
    made.add_argument("--json", dest="format", action="store_const", const="json", help="as --format json")
    made.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write there instead of printing; - for a pipe"
    )
    made.add_argument("--force", action="store_true", help="replace the file if it is there")
    arguments = made.parse_args(argv)
    with opened(arguments) as database, database.reading() as session:
        statement = state_statement(
            session,
            COMMAND_LINE,
            month_from(arguments.period),
            arguments.tenant,
            account_code=arguments.account,
        )
    if arguments.format == "pdf":
        if arguments.output is None:
            raise InvalidError("a PDF is nothing for a terminal; name a file with -o")
        document = statement_pdf(statement)
    else:
        text = render_statement(statement, arguments.format)
        if arguments.output is None:
            print(text, end="" if text.endswith("\n") else "\n")
            return 0
        document = text.encode()
    if str(arguments.output) == "-":
        sys.stdout.buffer.write(document)
        return 0
    with published(arguments.output, is_forced=arguments.force) as file:
        file.write(document)
    return 0
