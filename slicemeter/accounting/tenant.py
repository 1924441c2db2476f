"""`slicemeter accounting tenant …`: the tree, rules and moves that lead to it, and what they would move."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from sqlalchemy.orm import Session

from accounting.access.viewer import COMMAND_LINE
from accounting.errors import InvalidError
from accounting.ledger.calendar import at_text
from accounting.ledger.tenancy import ANYTHING
from accounting.periods.months import find_account
from accounting.periods.whatif import foretell_tenancy
from accounting.prices.versioning import Recording, Validity
from accounting.reports.documents import Document
from accounting.reports.tenants import (
    foretold_document,
    move_document,
    rule_document,
    rules_document,
    tenant_document,
)
from accounting.store.database import Database
from accounting.tenants.moves import list_moves, move_tenant, rename_tenant, withdraw_move
from accounting.tenants.rules import Asked, add_rule, end_rule, list_rules, withdraw_rule
from accounting.tenants.touched import ChangedHands
from accounting.tenants.tree import KINDS, add_tenant, find_tenant, list_tenants
from slicemeter.accounting.options import Parser, add_database_option, now_ms, opened, print_json
from slicemeter.accounting.progress import Bar
from slicemeter.accounting.tenant_tables import print_foretold, print_moves, print_rules, print_tree
from slicemeter.accounting.windows import local_instant_of

_WHEN = "a day of the tenant's account, or an instant"


def _parser() -> Parser:
    made = Parser(
        prog="slicemeter accounting tenant",
        description="The tree of tenants, and the rules and moves that say whose a slice is.",
        allow_abbrev=False,
    )
    actions = made.add_subparsers(title="commands", dest="action", required=True, metavar="COMMAND")
    show = actions.add_parser("list", help="show the tree, and what nobody has mapped")
    add = actions.add_parser("add", help="add an organisation, team or project")
    add.add_argument("path", help="from its account down, as acme/vision/alpha")
    add.add_argument("--kind", required=True, choices=KINDS)
    add.add_argument("--account", help="put before the path, for one that does not begin with its account")
    move = actions.add_parser("move", help="put a tenant below another one from an instant on")
    move.add_argument("tenant", help="its path until then")
    move.add_argument("--below", required=True, metavar="PATH", help="what it is to stand below")
    rename = actions.add_parser("rename", help="give a tenant another last step from an instant on")
    rename.add_argument("tenant", help="its path until then")
    rename.add_argument("name", help="its new last step")
    moves = actions.add_parser("moves", help="show moves and renamings")
    undo = actions.add_parser("withdraw-move", help="take a move back, as if it had never been")
    undo.add_argument("move", type=int, help="its number, from: tenant moves")
    for change in (move, rename):
        change.add_argument("--from", dest="from_", required=True, metavar="WHEN", help=_WHEN)
        change.add_argument("--reason", help="why; needed to supersede a move over the same validity")
    undo.add_argument("--reason", required=True, help="why")
    rules = actions.add_parser(
        "rule", help="rules from cluster, tenant key, namespace and labels to a tenant"
    )
    of_rules = _rule_parsers(rules)
    for one in (move, rename, undo, *of_rules[:3]):
        one.add_argument("--dry-run", action="store_true", help="only say what it would move, in money too")
    for one in (moves, of_rules[-1]):
        one.add_argument("--all", action="store_true", help="superseded and withdrawn versions too")
    for one in (show, add, move, rename, moves, undo, *of_rules):
        add_database_option(one)
        one.add_argument("--json", action="store_true", help="print JSON")
    return made


def _rule_parsers(rules: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Those of `rule add`, `end`, `withdraw`, `preview` and `list`."""
    actions = rules.add_subparsers(title="commands", dest="rule_action", required=True, metavar="COMMAND")
    add = actions.add_parser("add", help="record a rule; the lowest priority number that matches wins")
    preview = actions.add_parser("preview", help="say what a rule would move; the same as add --dry-run")
    for one in (add, preview):
        one.add_argument("--priority", required=True, type=int, metavar="NUMBER", help="0 goes first")
        one.add_argument("--tenant", required=True, help="whose the slices are that match")
        one.add_argument("--cluster", default=ANYTHING, metavar="GLOB", help="default: every cluster")
        one.add_argument("--tenant-key", default=ANYTHING, metavar="GLOB", help="'': slices without a key")
        one.add_argument("--namespace", default=ANYTHING, metavar="GLOB", help="default: every namespace")
        one.add_argument(
            "--label", action="append", default=[], metavar="KEY=GLOB", help="may be given several times"
        )
        one.add_argument("--from", dest="from_", required=True, metavar="WHEN", help=_WHEN)
        one.add_argument("--to", metavar="WHEN", help="first instant it no longer holds; without it: open")
        one.add_argument("--reason", help="why; needed to supersede a rule over the same validity")
    end = actions.add_parser("end", help="let a rule hold no longer from an instant on")
    end.add_argument("priority", type=int)
    end.add_argument("--at", required=True, metavar="WHEN", help=_WHEN)
    end.add_argument("--reason", help="why")
    withdraw = actions.add_parser("withdraw", help="take a rule back, as if it had never been")
    withdraw.add_argument("rule", type=int, help="its number, from: tenant rule list")
    withdraw.add_argument("--reason", required=True, help="why")
    show = actions.add_parser("list", help="show the rules")
    return [add, end, withdraw, preview, show]


def main(argv: Sequence[str]) -> int:
    """Show or change the tree, the rules and the moves."""
    arguments = _parser().parse_args(argv)
    action = arguments.action if arguments.action != "rule" else f"rule {arguments.rule_action}"
    with opened(arguments) as database:
        if action in _SHOWN:
            _SHOWN[action](database, arguments)
        elif action == "add":
            _add(database, arguments)
        else:
            _change(database, arguments, _CHANGES[action])
    return 0


def _list(database: Database, arguments: argparse.Namespace) -> None:
    with database.reading() as session:
        documents = [tenant_document(tenant) for tenant in list_tenants(session, COMMAND_LINE)]
    if arguments.json:
        for one in documents:
            print_json(one)
    else:
        print_tree(documents)


def _rules(database: Database, arguments: argparse.Namespace) -> None:
    with database.reading() as session:
        document = rules_document(session)
    print_rules(document, arguments)


def _moves(database: Database, arguments: argparse.Namespace) -> None:
    with database.reading() as session:
        documents = [move_document(*one) for one in list_moves(session)]
    print_moves(documents, arguments)


def _add(database: Database, arguments: argparse.Namespace) -> None:
    path = arguments.path.strip("/")
    if arguments.account is not None:
        path = f"{arguments.account}/{path}"
    with database.writing() as session:
        tenant = add_tenant(session, path, kind=arguments.kind, by=COMMAND_LINE, now_ms=now_ms())
        document = tenant_document(tenant)
    if arguments.json:
        print_json(document)
    else:
        print(f"{document['kind']} {document['path']}, billed to account {document['account']}")


_Saved = tuple[Document, ChangedHands]


def _save_rule(session: Session, arguments: argparse.Namespace) -> _Saved:
    labels = []
    for text in arguments.label:
        key, equals, glob = text.partition("=")
        if not equals:
            raise InvalidError(f'label "{text}": write KEY=GLOB, as app=train-*')
        labels.append((key, glob))
    tenant, zone = arguments.tenant, _zone(session, arguments.tenant)
    asked = Asked(
        arguments.priority,
        tenant,
        arguments.cluster,
        arguments.tenant_key,
        arguments.namespace,
        tuple(sorted(labels)),
    )
    to_ms = None if arguments.to is None else local_instant_of(arguments.to, zone)
    validity = Validity(local_instant_of(arguments.from_, zone), to_ms)
    row, changed = add_rule(session, asked, validity, _recording(arguments))
    return rule_document(row, tenant), changed


def _end_rule(session: Session, arguments: argparse.Namespace) -> _Saved:
    leads_to = [
        path for row, path in list_rules(session) if row.priority == arguments.priority and path is not None
    ]
    at_ms = local_instant_of(arguments.at, _zone(session, leads_to[-1]) if leads_to else "UTC")
    row, changed = end_rule(session, arguments.priority, at_ms, _recording(arguments))
    return {"rule": row.id, "priority": row.priority, "to": at_text(at_ms)}, changed


def _withdraw_rule(session: Session, arguments: argparse.Namespace) -> _Saved:
    changed = withdraw_rule(session, arguments.rule, _recording(arguments))
    return {"rule": arguments.rule, "withdrawn": True}, changed


def _withdraw_move(session: Session, arguments: argparse.Namespace) -> _Saved:
    changed = withdraw_move(session, arguments.move, _recording(arguments))
    return {"move": arguments.move, "withdrawn": True}, changed


def _move(session: Session, arguments: argparse.Namespace) -> _Saved:
    from_ms = local_instant_of(arguments.from_, _zone(session, arguments.tenant))
    recording = _recording(arguments)
    if arguments.action == "rename":
        row, changed = rename_tenant(session, arguments.tenant, arguments.name, from_ms, recording)
    else:
        row, changed = move_tenant(session, arguments.tenant, arguments.below, from_ms, recording)
    named = {version.id: (start, end) for version, start, end in list_moves(session)}
    return move_document(row, *named[row.id]), changed


def _zone(session: Session, tenant: str) -> str:
    """The zone in which a day that was named begins."""
    if tenant.strip("/") == "platform/shared":
        return "UTC"
    account = find_tenant(session, COMMAND_LINE, tenant).account
    return find_account(session, account).time_zone


def _recording(arguments: argparse.Namespace) -> Recording:
    return Recording(COMMAND_LINE, now_ms(), arguments.reason)


_SHOWN: dict[str, Callable[[Database, argparse.Namespace], None]] = {
    "list": _list,
    "rule list": _rules,
    "moves": _moves,
}
_CHANGES: dict[str, Callable[[Session, argparse.Namespace], _Saved]] = {
    "move": _move,
    "rename": _move,
    "withdraw-move": _withdraw_move,
    "rule add": _save_rule,
    "rule preview": _save_rule,
    "rule end": _end_rule,
    "rule withdraw": _withdraw_rule,
}


def _change(
    database: Database, arguments: argparse.Namespace, save: Callable[[Session, argparse.Namespace], _Saved]
) -> None:
    is_preview = arguments.action == "rule" and arguments.rule_action == "preview"
    if is_preview or arguments.dry_run:
        with Bar() as progress:
            told = foretell_tenancy(database, lambda session: save(session, arguments)[1], progress=progress)
        if arguments.json:
            print_json(foretold_document(told))
        else:
            print_foretold(told)
        return
    with database.writing() as session:
        document, changed = save(session, arguments)
    if arguments.json:
        print_json({"saved": True, **document, "cards": len(changed.cards)})
        return
    words = ", ".join(f"{name} {value}" for name, value in document.items() if value not in (None, {}, False))
    print(f"saved: {words}")
    print(
        f"{len(changed.cards)} cards are due; the service rates them within a minute, or: "
        "slicemeter accounting rate"
        if changed.cards
        else "no slice changes hands"
    )
