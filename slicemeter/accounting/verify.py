"""`slicemeter accounting verify PERIOD`: does the month hold? Exit 1 with named findings if not."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.periods.verify import verify_month
from accounting.reports.books import verified_document
from slicemeter.accounting.options import add_jobs_option, opened, parser, print_json
from slicemeter.accounting.progress import Bar
from slicemeter.accounting.windows import month_from


def main(argv: Sequence[str]) -> int:
    """Check identities, sums, and what is stored against what the facts give again."""
    made = parser("verify", "Check a month: identities, sums, recomputed against stored.")
    made.add_argument("period", help="a month, as 2026-10")
    add_jobs_option(made)
    made.add_argument("--json", action="store_true", help="print a JSON object")
    arguments = made.parse_args(argv)
    with opened(arguments) as database, Bar() as progress:
        verified = verify_month(
            database, month_from(arguments.period), jobs=arguments.jobs, progress=progress
        )
    if arguments.json:
        print_json(verified_document(verified))
        return 0 if verified.holds else 1
    for finding in verified.findings:
        print(f"failed {finding.check}: {finding.subject}: {finding.detail}")
    for name in verified.pending:
        print(f"pending: {name} has changed since it was rated; run: slicemeter accounting rate")
    for name in verified.late:
        print(f"pending: {name}: facts came after it was closed; run: slicemeter accounting correct")
    if verified.unrated_models:
        print(f"unrated, without a price: {', '.join(verified.unrated_models)}")
    if verified.is_empty and verified.holds:
        print(f"{verified.period}: nothing to check, the books hold no device hour and no line of that month")
        return 0
    print(
        f"{verified.period} {'holds' if verified.holds else 'does not hold'}: {verified.device_hours} device "
        f"hours, {verified.lines} lines, {verified.statements} statements, "
        f"{verified.days_recomputed} days of cards recomputed; {len(verified.findings)} findings"
    )
    return 0 if verified.holds else 1
