"""`slicemeter accounting policy set|list`: shares, idle capacity, energy, unallocated use."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from sqlalchemy.orm import Session

from accounting.access.viewer import COMMAND_LINE
from accounting.ledger.policies import KINDS, VALUES
from accounting.prices.policies import list_policies, set_policy
from accounting.reports.books import policy_document
from accounting.store.models import PolicyVersion
from slicemeter.accounting.dry_run import add_dry_run_option, print_dry_run
from slicemeter.accounting.options import Parser, add_database_option, now_ms, opened, print_json, print_table
from slicemeter.accounting.windows import instant_of


def _parser() -> Parser:
    made = Parser(
        prog="slicemeter accounting policy",
        description="How shares, idle capacity, energy and unallocated use are treated.",
        allow_abbrev=False,
    )
    actions = made.add_subparsers(title="commands", dest="action", required=True, metavar="COMMAND")
    change = actions.add_parser("set", help="record a policy; never edits one, supersedes it with a reason")
    change.add_argument("kind", choices=KINDS)
    values = "; ".join(f"{kind}: {', '.join(known)}" for kind, known in VALUES.items())
    change.add_argument("value", help=f"the first of each is the default; {values}")
    change.add_argument(
        "--from", dest="from_", required=True, metavar="WHEN", help="first instant, or day in UTC"
    )
    change.add_argument("--to", metavar="WHEN", help="first instant it is no longer in force; else: open")
    change.add_argument("--reason", help="why; needed to supersede a policy over the same validity")
    add_dry_run_option(change)
    show = actions.add_parser("list", help="show the policies that are or were in force")
    show.add_argument("--all", action="store_true", help="superseded versions too")
    for action in (change, show):
        add_database_option(action)
        action.add_argument("--json", action="store_true", help="one JSON object a line")
    return made


def main(argv: Sequence[str]) -> int:
    """Set or list policies."""
    arguments = _parser().parse_args(argv)
    with opened(arguments) as database:
        if arguments.action == "set" and arguments.dry_run:
            print_dry_run(database, lambda session: _set(session, arguments), arguments)
        elif arguments.action == "set":
            with database.writing() as session:
                _print([_set(session, arguments)], arguments)
        else:
            with database.reading() as session:
                versions = list_policies(session)
                live = [version for version in versions if version.superseded_at_ms is None]
                _print(versions if arguments.all else live, arguments)
    return 0


def _set(session: Session, arguments: argparse.Namespace) -> PolicyVersion:
    return set_policy(
        session,
        kind=arguments.kind,
        value=arguments.value,
        valid_from_ms=instant_of(arguments.from_),
        valid_to_ms=None if arguments.to is None else instant_of(arguments.to),
        reason=arguments.reason,
        by=COMMAND_LINE,
        now_ms=now_ms(),
    )


def _print(versions: Sequence[PolicyVersion], arguments: argparse.Namespace) -> None:
    documents = [policy_document(version) for version in versions]
    if arguments.json:
        for document in documents:
            print_json(document)
        return
    names = ("version", "kind", "value", "from", "to", "superseded_at", "reason")
    rows = [["" if one[name] is None else str(one[name]) for name in names] for one in documents]
    print_table(["VERSION", "POLICY", "VALUE", "FROM", "TO", "SUPERSEDED", "REASON"], rows)
