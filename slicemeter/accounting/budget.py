"""`slicemeter accounting budget set|list`: what tenants' months may cost, and how they stand."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from accounting.access.viewer import COMMAND_LINE
from accounting.budgets.book import DEFAULT_THRESHOLDS, Wish, list_budgets, parse_budget, set_budget
from accounting.budgets.standing import OpenAt, Standing, standings
from accounting.prices.versioning import Recording
from accounting.reports.budgets import budget_document, standing_document
from accounting.reports.documents import Document
from accounting.tenants.tree import find_tenant
from slicemeter.accounting.options import Parser, add_database_option, now_ms, opened, print_json, print_table
from slicemeter.accounting.windows import month_from


def _parser() -> Parser:
    made = Parser(
        prog="slicemeter accounting budget",
        description="What a tenant, and all below it, may cost in a month.",
        allow_abbrev=False,
    )
    actions = made.add_subparsers(dest="action", required=True, metavar="set|list|versions")
    change = actions.add_parser("set", help="record a budget; never edits one, supersedes it with a reason")
    change.add_argument("--tenant", required=True, help="its path, or its code where only one tenant has it")
    change.add_argument(
        "--amount", required=True, help="for each month, in the account's currency; 0 takes the budget away"
    )
    change.add_argument("--from", dest="first", required=True, metavar="MONTH", help="first, as 2026-10")
    change.add_argument("--to", dest="last", metavar="MONTH", help="last; without it: until further notice")
    change.add_argument(
        "--threshold",
        dest="thresholds",
        metavar="PERCENT",
        type=int,
        action="append",
        help=f"told once a month when crossed; may be repeated; default: {_words(DEFAULT_THRESHOLDS)}",
    )
    change.add_argument("--reason", help="why; needed to supersede a budget over the same months")
    show = actions.add_parser("list", help="how the budgets of a month stand")
    show.add_argument("--period", metavar="MONTH", help="a month, as 2026-10; default: the open one")
    versions = actions.add_parser("versions", help="every version, superseded ones too")
    for action in (change, show, versions):
        add_database_option(action)
        action.add_argument("--json", action="store_true", help="one JSON object a line")
    return made


def main(argv: Sequence[str]) -> int:
    """Set or show budgets."""
    arguments = _parser().parse_args(argv)
    if arguments.action == "set":
        _print_versions([_set(arguments)], arguments)
        return 0
    with opened(arguments) as database, database.reading() as session:
        if arguments.action == "versions":
            rows = [budget_document(budget, path) for budget, path in list_budgets(session, COMMAND_LINE)]
            _print_versions(rows, arguments)
            return 0
        which = month_from(arguments.period) if arguments.period else OpenAt(now_ms())
        found = standings(session, COMMAND_LINE, which)
    if arguments.json:
        for each in found:
            print_json(standing_document(each))
    else:
        _print_standings(found)
    return 0


def _set(arguments: argparse.Namespace) -> Document:
    wish = Wish(
        amount=parse_budget(arguments.amount),
        first=month_from(arguments.first),
        last=None if arguments.last is None else month_from(arguments.last),
        percents=arguments.thresholds or DEFAULT_THRESHOLDS,
    )
    with opened(arguments) as database, database.writing() as session:
        tenant = find_tenant(session, COMMAND_LINE, arguments.tenant)
        recording = Recording(COMMAND_LINE, now_ms(), arguments.reason)
        return budget_document(set_budget(session, tenant, wish, recording), tenant.path)


def _print_versions(documents: Sequence[Document], arguments: argparse.Namespace) -> None:
    if arguments.json:
        for document in documents:
            print_json(document)
        return
    names = ("budget", "tenant", "amount", "currency", "from", "to", "superseded_at", "reason")
    rows = [["" if one[name] is None else str(one[name]) for name in names] for one in documents]
    print_table(["BUDGET", "TENANT", "AMOUNT", "CURRENCY", "FROM", "TO", "SUPERSEDED", "REASON"], rows)


def _print_standings(found: Sequence[Standing]) -> None:
    if not found:
        print("no budget holds in that month; set one with: slicemeter accounting budget set --tenant …")
        return
    headings = ["TENANT", "PERIOD", "BUDGET", "SPENT", "USED", "LEFT", "FORECAST", "CURRENCY", "CROSSED"]
    print_table(
        headings,
        [
            [
                each.tenant,
                each.period,
                f"{each.amount:.2f}",
                str(each.spent),
                f"{each.used_ratio:.0%}",
                str(each.left),
                str(each.forecast),
                each.currency,
                _words([one.percent for one in each.crossings if one.crossed_at_ms is not None]) or "-",
            ]
            for each in found
        ],
    )


def _words(percents: Sequence[int]) -> str:
    return ", ".join(map(str, percents))
