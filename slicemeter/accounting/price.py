"""`slicemeter accounting price set|list|discount|discounts`: prices by SKU and model, and discounts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sqlalchemy.orm import Session

from accounting.access.viewer import COMMAND_LINE
from accounting.ledger.pricing import EVERY_MODEL, plain_model
from accounting.prices.book import SKUS, list_versions, parse_currency, parse_unit_price, set_price
from accounting.prices.discounts import list_discounts, parse_percent, set_discount
from accounting.prices.models import reported_models
from accounting.reports.books import discount_document, price_document
from accounting.reports.documents import Document
from accounting.store.models import PriceVersion
from accounting.tenants.tree import find_tenant
from slicemeter.accounting.dry_run import add_dry_run_option, print_dry_run
from slicemeter.accounting.options import Parser, add_database_option, now_ms, opened, print_json, print_table
from slicemeter.accounting.windows import instant_of


def _parser() -> Parser:
    made = Parser(
        prog="slicemeter accounting price", description="Prices by SKU and GPU model.", allow_abbrev=False
    )
    actions = made.add_subparsers(title="commands", dest="action", required=True, metavar="COMMAND")
    change = actions.add_parser("set", help="record a price; never edits one, supersedes it with a reason")
    change.add_argument("--sku", choices=SKUS, default=SKUS[0], help="default: %(default)s")
    change.add_argument("--model", default="", help="GPU model as registered; without it: every model")
    change.add_argument(
        "--price", required=True, metavar="AMOUNT", help="per card-hour, as 2.40; of gpu-energy: per kWh"
    )
    change.add_argument("--currency", required=True, help="ISO 4217, as EUR")
    change.add_argument(
        "--from", dest="from_", required=True, metavar="WHEN", help="first instant, or day in UTC"
    )
    change.add_argument("--to", metavar="WHEN", help="first instant it no longer holds; without it: open")
    change.add_argument("--reason", help="why; needed to supersede a price over the same validity")
    show = actions.add_parser("list", help="show the prices that hold or held")
    show.add_argument("--all", action="store_true", help="superseded versions too")
    less = actions.add_parser("discount", help="record what a tenant, and all below it, pays less")
    less.add_argument("--tenant", required=True, help="its path, or its code where only one tenant has it")
    less.add_argument("--percent", required=True, metavar="NUMBER", help="of the list price, as 12.5")
    less.add_argument(
        "--from", dest="from_", required=True, metavar="WHEN", help="first instant, or day in UTC"
    )
    less.add_argument("--to", metavar="WHEN", help="first instant it no longer holds; without it: open")
    less.add_argument("--reason", help="why; needed to supersede a discount over the same validity")
    all_less = actions.add_parser("discounts", help="show the discounts that hold or held")
    all_less.add_argument("--all", action="store_true", help="superseded versions too")
    for action in (change, less):
        add_dry_run_option(action)
    for action in (change, show, less, all_less):
        add_database_option(action)
        action.add_argument("--json", action="store_true", help="one JSON object a line")
    return made


def main(argv: Sequence[str]) -> int:
    """Set or list prices and discounts."""
    arguments = _parser().parse_args(argv)
    if arguments.action in {"discount", "discounts"}:
        return _discounts(arguments)
    with opened(arguments) as database:
        if arguments.action == "set" and arguments.dry_run:
            print_dry_run(database, lambda session: _set_price(session, arguments), arguments)
        elif arguments.action == "set":
            with database.writing() as session:
                _print([_set_price(session, arguments)], arguments)
                known = reported_models(session)
            _note_unknown_model(arguments.model, known)
        else:
            with database.reading() as session:
                versions = list_versions(session)
                live = [version for version in versions if version.superseded_at_ms is None]
                _print(versions if arguments.all else live, arguments)
    return 0


def _note_unknown_model(model: str, known: Sequence[str]) -> None:
    """A price may be set before the first card comes; but a model that is misspelt never will."""
    if known and plain_model(model) not in {*known, EVERY_MODEL}:
        note = f'note: no card of model "{plain_model(model)}" was reported; there are {", ".join(known)}'
        print(note, file=sys.stderr)


def _set_price(session: Session, arguments: argparse.Namespace) -> PriceVersion:
    return set_price(
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


def _set_discount(session: Session, arguments: argparse.Namespace) -> Document:
    tenant = find_tenant(session, COMMAND_LINE, arguments.tenant)
    version = set_discount(
        session,
        tenant,
        percent=parse_percent(arguments.percent),
        valid_from_ms=instant_of(arguments.from_),
        valid_to_ms=None if arguments.to is None else instant_of(arguments.to),
        reason=arguments.reason,
        by=COMMAND_LINE,
        now_ms=now_ms(),
    )
    return discount_document(tenant.path, version)


def _discounts(arguments: argparse.Namespace) -> int:
    with opened(arguments) as database:
        if arguments.action == "discount" and arguments.dry_run:
            print_dry_run(database, lambda session: _set_discount(session, arguments), arguments)
            return 0
        if arguments.action == "discount":
            with database.writing() as session:
                documents = [_set_discount(session, arguments)]
        else:
            with database.reading() as session:
                documents = [
                    discount_document(path, version)
                    for path, version in list_discounts(session)
                    if arguments.all or version.superseded_at_ms is None
                ]
    if arguments.json:
        for document in documents:
            print_json(document)
        return 0
    names = ("version", "tenant", "percent", "from", "to", "superseded_at", "reason")
    rows = [["" if one[name] is None else str(one[name]) for name in names] for one in documents]
    print_table(["VERSION", "TENANT", "PERCENT", "FROM", "TO", "SUPERSEDED", "REASON"], rows)
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
