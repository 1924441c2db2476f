"""`slicemeter accounting close PERIOD`: seal a month; exit 1 with all that keeps it open.

`last` as the period is for a clock: each account's own last month, which may still wait for late facts.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from decimal import Decimal

from accounting.access.viewer import COMMAND_LINE
from accounting.errors import InvalidError
from accounting.ledger.calendar import Month, local_date, midnight_ms, month_of
from accounting.periods.close import Closed, close_period
from accounting.periods.months import find_account, find_period
from accounting.periods.preflight import MIN_COVERAGE, Preflight, parse_ratio, preflight
from accounting.reports.documents import Document
from accounting.reports.seals import closed_document, preflight_document
from accounting.reports.units import amount_text
from accounting.settings import Settings
from accounting.store.database import Database
from accounting.tenants.registry import list_accounts
from slicemeter.accounting.options import (
    accounts_of,
    add_account_option,
    add_grace_option,
    add_jobs_option,
    now_ms,
    opened,
    parser,
    print_json,
)
from slicemeter.accounting.progress import Bar
from slicemeter.accounting.windows import month_from

LAST = "last"


def main(argv: Sequence[str]) -> int:
    """Close a month of one account or of all, or only say what would keep it open."""
    made = parser("close", "Close a month: rate what is due, seal it, issue its statement.")
    made.add_argument(
        "period", help="a month, as 2026-10; or `last`: of each account the month before this one"
    )
    add_account_option(made)
    add_grace_option(made)
    add_jobs_option(made)
    made.add_argument("--check", action="store_true", help="only list what keeps it open; change nothing")
    made.add_argument(
        "--override", action="store_true", help="pass over what may be passed over; needs --reason"
    )
    made.add_argument("--reason", help="why to pass over it; kept with the period")
    made.add_argument(
        "--min-coverage",
        metavar="RATIO",
        default=str(MIN_COVERAGE),
        help="of the devices' presence that witnesses must have confirmed; default: %(default)s",
    )
    made.add_argument("--json", action="store_true", help="one JSON object for each account")
    arguments = made.parse_args(argv)
    if arguments.override != (arguments.reason is not None):
        raise InvalidError("--override and --reason go together: --override --reason TEXT")
    min_coverage = parse_ratio(arguments.min_coverage)
    settings = Settings(grace_ms=round(arguments.grace_seconds * 1000))
    are_closed = []
    with opened(arguments) as database:
        for account, month in _months(database, arguments):
            if arguments.check:
                found: Closed | Preflight = _check(database, account, month, min_coverage)
            else:
                with Bar() as progress:
                    found = close_period(
                        database,
                        account,
                        month,
                        by=COMMAND_LINE,
                        now_ms=now_ms(),
                        grace_ms=settings.grace_ms,
                        jobs=arguments.jobs,
                        min_coverage=min_coverage,
                        override_reason=arguments.reason,
                        progress=progress,
                    )
            _tell(found, arguments)
            are_closed.append(isinstance(found, Closed) or found.is_clear or _only_waits(found, arguments))
    return 0 if all(are_closed) else 1


def _months(database: Database, arguments: argparse.Namespace) -> list[tuple[str, Month]]:
    """Which month of which account; of `last` those that have one."""
    if arguments.period != LAST:
        month = month_from(arguments.period)
        return [(account, month) for account in accounts_of(database, arguments, month)]
    found = []
    with database.reading() as session:
        wanted = arguments.account and find_account(session, arguments.account).code
        for account in list_accounts(session):
            first = local_date(now_ms(), account.time_zone).replace(day=1)
            month = month_of(midnight_ms(first, account.time_zone) - 1, account.time_zone)
            if wanted in {None, account.code} and find_period(session, account, month) is not None:
                found.append((account.code, month))
    return found


def _only_waits(found: Preflight, arguments: argparse.Namespace) -> bool:
    """Whether a month that a clock asked for has only its days of grace before it."""
    return arguments.period == LAST and {one.check for one in found.blockers} == {"close_grace"}


def _check(database: Database, account_code: str, month: Month, min_coverage: Decimal) -> Preflight:
    with database.reading() as session:
        account = find_account(session, account_code)
        return preflight(session, account, month, now_ms=now_ms(), min_coverage=min_coverage)


def _tell(found: Closed | Preflight, arguments: argparse.Namespace) -> None:
    if arguments.json:
        document: Document = (
            closed_document(found) if isinstance(found, Closed) else preflight_document(found)
        )
        print_json(document)
    elif isinstance(found, Closed):
        total = "in card-hours" if found.total is None else f"{amount_text(found.total)} {found.currency}"
        before = " before" if found.was_closed else ""
        print(f"{found.account} {found.period} was closed{before}: statement {found.number}, {total}")
        print(f"  sha256 {found.sha256}")
    elif found.is_clear:
        print(f"{found.account} {found.period}: nothing keeps it open (it is {found.state})")
    else:
        print(f"{found.account} {found.period} stays open:")
        for one in found.blockers:
            can = "; or --override --reason TEXT" if one.can_override else ""
            print(f"  {one.check}: {one.detail}")
            print(f"    way out: {one.way_out}{can}")
