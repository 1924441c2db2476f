"""`slicemeter accounting price set|list`: prices by SKU and GPU model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from accounting.access.viewer import COMMAND_LINE
from accounting.prices.book import SKUS, list_versions, parse_currency, parse_unit_price, set_price
from accounting.reports.books import price_document
from accounting.store.models import PriceVersion
from slicemeter.accounting.options import Parser, add_database_option, now_ms, opened, print_json, print_table
from slicemeter.accounting.windows import instant_of


def _parser() -> Parser:
    made = Parser(
        prog="slicemeter accounting price", description="Prices by SKU and GPU model.", allow_abbrev=False
    )
    actions = made.add_subparsers(dest="action", required=True, metavar="set|list")
    change = actions.add_parser("set", help="record a price; never edits one, supersedes it with a reason")
    change.add_argument("--sku", choices=SKUS, default=SKUS[0], help="default: %(default)s")
    change.add_argument("--model", default="", help="GPU model as registered; without it: every model")
    change.add_argument("--price", required=True, metavar="AMOUNT", help="per card-hour, as 2.40")
    change.add_argument("--currency", required=True, help="ISO 4217, as EUR")
    change.add_argument(
        "--from", dest="from_", required=True, metavar="WHEN", help="first instant, or day in UTC"
    )
    change.add_argument("--to", metavar="WHEN", help="first instant it no longer holds; without it: open")
    change.add_argument("--reason", help="why; needed to supersede a price over the same validity")
    show = actions.add_parser("list", help="show the prices that hold or held")
    show.add_argument("--all", action="store_true", help="superseded versions too")
    for action in (change, show):
        add_database_option(action)
        action.add_argument("--json", action="store_true", help="one JSON object a line")
    return made


def main(argv: Sequence[str]) -> int:
    """Set or list prices."""
    arguments = _parser().parse_args(argv)
    with opened(arguments) as database:
        if arguments.action == "set":
            with database.writing() as session:
                version = set_price(
                    session,
                    sku=arguments.sku,
                    model=arguments.model,
                    currency=parse_currency(arguments.currency),
                    unit_price=parse_unit_price(arguments.price),
                    valid_from_ms=instant_of(arguments.from_),
                    valid_to_ms=None if arguments.to is None else instant_of(arguments.to),
                    reason=arguments.reason,
                    by=COMMAND_LINE,
                    now_ms=now_ms(),
                )
                _print([version], arguments)
        else:
            with database.reading() as session:
                versions = list_versions(session)
                live = [version for version in versions if version.superseded_at_ms is None]
                _print(versions if arguments.all else live, arguments)
    return 0


def _print(versions: Sequence[PriceVersion], arguments: argparse.Namespace) -> None:
    documents = [price_document(version) for version in versions]
    if arguments.json:
        for document in documents:
            print_json(document)
        return
    names = ("version", "sku", "model", "unit_price", "currency", "from", "to", "superseded_at", "reason")
    rows = [["" if one[name] is None else str(one[name]) for name in names] for one in documents]
    headings = ["VERSION", "SKU", "MODEL", "PRICE", "CURRENCY", "FROM", "TO", "SUPERSEDED", "REASON"]
    print_table(headings, rows)
