"""`slicemeter accounting adjust`: an amount that a person adds to a tenant's open month."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.access.viewer import COMMAND_LINE
from accounting.periods.adjust import adjust, parse_amount
from accounting.reports.seals import adjustment_document
from slicemeter.accounting.options import now_ms, opened, parser, print_json


def main(argv: Sequence[str]) -> int:
    """Add an adjustment line."""
    made = parser("adjust", "Add an amount to a tenant's month that is open now: a line of its own.")
    made.add_argument("--tenant", required=True, help="its path, or its code where only one tenant has it")
    made.add_argument(
        "--amount", required=True, help="in the account's currency; in the tenant's favour: --amount=-12.50"
    )
    made.add_argument("--reason", required=True, help="stands on the statement")
    made.add_argument("--account", help="only for a tenant with lines in several accounts")
    made.add_argument("--json", action="store_true", help="print a JSON object")
    arguments = made.parse_args(argv)
    with opened(arguments) as database, database.writing() as session:
        line = adjust(
            session,
            arguments.tenant,
            parse_amount(arguments.amount),
            reason=arguments.reason,
            by=COMMAND_LINE,
            now_ms=now_ms(),
            account_code=arguments.account,
        )
        document = adjustment_document(session, line)
    if arguments.json:
        print_json(document)
    else:
        print("{account} {period}: {amount} {currency} for {tenant}: {reason}".format(**document))
    return 0
