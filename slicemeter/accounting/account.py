"""`slicemeter accounting account add|issuer|list`: who gets a statement."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.access.viewer import COMMAND_LINE
from accounting.tenants.registry import add_account, list_accounts, set_issuer
from slicemeter.accounting.options import Parser, add_database_option, now_ms, opened, print_json, print_table

_PROGRAM = "slicemeter accounting account"


def _parser() -> Parser:
    made = Parser(prog=_PROGRAM, description="The accounts that get statements.", allow_abbrev=False)
    actions = made.add_subparsers(title="commands", dest="action", required=True, metavar="COMMAND")
    add = actions.add_parser("add", help="register an account")
    add.add_argument("code", help="lower-case letters, digits and dashes; it never changes")
    add.add_argument(
        "--kind", choices=("tenant", "platform"), default="tenant", help="platform bears idle capacity"
    )
    add.add_argument("--currency", help="ISO 4217, as EUR; without it: showback, statements in card-hours")
    add.add_argument("--time-zone", default="UTC", help="IANA name; cuts its days and months; default: UTC")
    add.add_argument(
        "--grace-days", type=int, default=3, help="how long a month waits for late facts; default: 3"
    )
    issuer = actions.add_parser("issuer", help="whose numbers its next statements bear")
    issuer.add_argument("code", help="the account")
    issuer.add_argument("issuer", help="capital letters, digits and dashes, as ACME for ACME-000001")
    show = actions.add_parser("list", help="show the accounts")
    for action in (add, issuer, show):
        add_database_option(action)
        action.add_argument("--json", action="store_true", help="one JSON object a line")
    return made


def main(argv: Sequence[str]) -> int:
    """Register accounts, name their issuers, or list them."""
    arguments = _parser().parse_args(argv)
    with opened(arguments) as database:
        if arguments.action == "add":
            with database.writing() as session:
                add_account(
                    session,
                    arguments.code,
                    kind=arguments.kind,
                    currency=arguments.currency,
                    time_zone=arguments.time_zone,
                    grace_days=arguments.grace_days,
                    by=COMMAND_LINE,
                    now_ms=now_ms(),
                )
        if arguments.action == "issuer":
            with database.writing() as session:
                set_issuer(session, arguments.code, arguments.issuer, by=COMMAND_LINE, now_ms=now_ms())
        with database.reading() as session:
            accounts = [
                {
                    "code": account.code,
                    "kind": account.kind,
                    "currency": account.currency,
                    "time_zone": account.time_zone,
                    "grace_days": account.grace_days,
                    "issuer": account.issuer,
                }
                for account in list_accounts(session)
                if arguments.action == "list" or account.code == arguments.code
            ]
    if arguments.json:
        for one in accounts:
            print_json(one)
    else:
        rows = [
            [str(value) if value is not None else "showback" for value in one.values()] for one in accounts
        ]
        print_table(["ACCOUNT", "KIND", "CURRENCY", "TIME ZONE", "GRACE DAYS", "ISSUER"], rows)
    return 0
