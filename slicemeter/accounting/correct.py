"""`slicemeter accounting correct PERIOD`: post what a closed month lacks into the open one."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.access.viewer import COMMAND_LINE
from accounting.periods.correct import Corrected, correct_period
from accounting.reports.documents import money
from accounting.reports.seals import corrected_document
from slicemeter.accounting.options import (
    accounts_of,
    add_account_option,
    now_ms,
    opened,
    parser,
    print_json,
    print_table,
)
from slicemeter.accounting.progress import Bar
from slicemeter.accounting.windows import month_from


def main(argv: Sequence[str]) -> int:
    """Compute a closed month again and post the differences."""
    made = parser("correct", "Compute a closed month again and post what it lacks into the open one.")
    made.add_argument("period", help="a closed month, as 2026-10")
    add_account_option(made)
    made.add_argument(
        "--with-prices",
        action="store_true",
        help="take up prices, policies and discounts recorded since the close; without it: only late facts",
    )
    made.add_argument("--reason", help="stands on every line that is posted")
    made.add_argument("--check", action="store_true", help="only show what would be posted; change nothing")
    made.add_argument("--json", action="store_true", help="one JSON object for each account")
    arguments = made.parse_args(argv)
    month = month_from(arguments.period)
    with opened(arguments) as database:
        for account in accounts_of(database, arguments, month, states=("closed",)):
            with Bar() as progress:
                corrected = correct_period(
                    database,
                    account,
                    month,
                    by=COMMAND_LINE,
                    now_ms=now_ms(),
                    with_versions=arguments.with_prices,
                    reason=arguments.reason,
                    is_dry=arguments.check,
                    progress=progress,
                )
            if arguments.json:
                print_json(corrected_document(corrected))
            else:
                _tell(corrected)
    return 0


def _tell(corrected: Corrected) -> None:
    name = f"{corrected.account} {corrected.period}"
    if not corrected.deltas:
        print(f"{name}: nothing to correct")
        return
    rows = [[one.day, one.tenant, one.kind, money(one.amount) or "", one.reason] for one in corrected.deltas]
    print_table(["DAY", "TENANT", "WHAT", "AMOUNT", "REASON"], rows)
    done = f"posted into {corrected.into}" if corrected.is_written else "not posted (--check)"
    amount = "" if corrected.currency is None else f", {money(corrected.amount)} {corrected.currency}"
    print(f"{name}: {len(corrected.deltas)} lines{amount}, {done}")
