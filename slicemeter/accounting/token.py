"""`slicemeter accounting token create|list|revoke`: who may report and who may read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from accounting.access.tokens import create_token, list_tokens, revoke_token
from accounting.access.viewer import COMMAND_LINE, ROLES
from accounting.store.database import Database
from accounting.tenants.tree import is_tenant, scope_path
from contract.units import MS_PER_DAY
from slicemeter.accounting.options import Parser, add_database_option, now_ms, opened, print_json, print_table


def _parser() -> Parser:
    made = Parser(
        prog="slicemeter accounting token", description="Who may report and who may read.", allow_abbrev=False
    )
    actions = made.add_subparsers(title="commands", dest="action", required=True, metavar="COMMAND")
    create = actions.add_parser("create", help="make a token and print it, this once")
    create.add_argument("--role", required=True, choices=ROLES)
    create.add_argument("--cluster", help="a reporter's cluster")
    create.add_argument("--node-uid", help="a reporter that speaks only of this node (metadata.uid)")
    create.add_argument(
        "--tenant", metavar="PATH", help="the tenant whose subtree may be read, as acme/team-a"
    )
    create.add_argument("--days", type=int, help="days until it expires; without it: never")
    create.add_argument("--note", default="", help="what it is for, for the list")
    show = actions.add_parser("list", help="show the tokens, without their secrets")
    revoke = actions.add_parser("revoke", help="make a token useless from now on")
    revoke.add_argument("prefix", help="the part between smt_ and the next _")
    for action in (create, show, revoke):
        add_database_option(action)
        action.add_argument("--json", action="store_true", help="one JSON object a line")
    return made


def main(argv: Sequence[str]) -> int:
    """Make, list or revoke tokens."""
    arguments = _parser().parse_args(argv)
    with opened(arguments) as database:
        if arguments.action == "create":
            _create(database, arguments)
        elif arguments.action == "list":
            _list(database, as_json=arguments.json)
        else:
            with database.writing() as session:
                revoke_token(session, arguments.prefix, by=COMMAND_LINE, now_ms=now_ms())
            if arguments.json:
                print_json({"revoked": arguments.prefix})
            else:
                print(f"token {arguments.prefix} is revoked")
    return 0


def _create(database: Database, arguments: argparse.Namespace) -> None:
    now = now_ms()
    with database.writing() as session:
        path = None if arguments.tenant is None else scope_path(session, COMMAND_LINE, arguments.tenant)
        is_known = path is None or is_tenant(session, path)
        token = create_token(
            session,
            role=arguments.role,
            by=COMMAND_LINE,
            now_ms=now,
            cluster=arguments.cluster,
            node_uid=arguments.node_uid,
            tenant_path=path,
            note=arguments.note,
            expires_at_ms=None if arguments.days is None else now + arguments.days * MS_PER_DAY,
        )
    if not is_known:
        print(
            f'note: no tenant "{path}" has reported yet; the token reads nothing until then', file=sys.stderr
        )
    if arguments.json:
        print_json({"token": token, "prefix": token.split("_")[1], "role": arguments.role})
    else:
        print(token)


def _list(database: Database, *, as_json: bool) -> None:
    with database.reading() as session:
        tokens = [
            {
                "prefix": token.prefix,
                "role": token.role,
                "scope": token.tenant_path or token.cluster,
                "node_uid": token.node_uid,
                "expires": _instant(token.expires_at_ms),
                "revoked": _instant(token.revoked_at_ms),
                "note": token.note,
            }
            for token in list_tokens(session)
        ]
    if as_json:
        for one in tokens:
            print_json(one)
    else:
        headings = ["PREFIX", "ROLE", "SCOPE", "NODE UID", "EXPIRES", "REVOKED", "NOTE"]
        print_table(headings, [[value or "-" for value in one.values()] for one in tokens])


def _instant(at_ms: int | None) -> str | None:
    if at_ms is None:
        return None
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
