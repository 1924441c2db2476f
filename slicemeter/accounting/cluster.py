"""`slicemeter accounting cluster add|trust|distrust|register|list`: who reports, by which keys."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from accounting.access.service_accounts import Trust
from accounting.access.trust import (
    DEFAULT_AUDIENCE,
    DEFAULT_CLUSTER_EXPORTER,
    DEFAULT_NODE_EXPORTER,
    distrust_cluster,
    key_names,
    trust_cluster,
    trusts,
)
from accounting.access.viewer import COMMAND_LINE
from accounting.errors import InvalidError
from accounting.store.database import Database
from accounting.tenants.registration import read_registration, register
from accounting.tenants.registry import add_cluster, list_clusters
from slicemeter.accounting.options import Parser, add_database_option, now_ms, opened, print_json, print_table


def _parser() -> Parser:
    made = Parser(
        prog="slicemeter accounting cluster", description="The clusters that report.", allow_abbrev=False
    )
    actions = made.add_subparsers(title="commands", dest="action", required=True, metavar="COMMAND")
    add = actions.add_parser("add", help="register a cluster")
    add.add_argument("code", help="as in the exporters' configuration; it never changes")
    add.add_argument("--account", required=True, help="who pays for tenants seen for the first time")
    add.add_argument("--platform-account", required=True, help="who bears idle capacity")
    trust = actions.add_parser(
        "trust",
        help="let its exporters sign in with their projected ServiceAccount tokens; again after rotation",
    )
    trust.add_argument("code", help="a registered cluster")
    trust.add_argument(
        "--jwks", metavar="FILE", type=Path, required=True, help="from: kubectl get --raw /openid/v1/jwks"
    )
    trust.add_argument(
        "--issuer",
        required=True,
        help="`issuer` in: kubectl get --raw /.well-known/openid-configuration",
    )
    trust.add_argument(
        "--audience", default=DEFAULT_AUDIENCE, help="of the projected token; default: %(default)s"
    )
    trust.add_argument(
        "--node-exporter",
        metavar="NAMESPACE/NAME",
        default=DEFAULT_NODE_EXPORTER,
        help="the ServiceAccount that speaks for its own node; default: %(default)s",
    )
    trust.add_argument(
        "--cluster-exporter",
        metavar="NAMESPACE/NAME",
        default=DEFAULT_CLUSTER_EXPORTER,
        help="the ServiceAccount that speaks for the whole cluster; default: %(default)s",
    )
    distrust = actions.add_parser("distrust", help="refuse its own tokens from now on")
    distrust.add_argument("code", help="a cluster whose keys are trusted")
    register_ = actions.add_parser(
        "register",
        help="add the accounts and clusters of a file that are not there yet, and trust the keys in it; "
        "may be asked again and again",
    )
    register_.add_argument(
        "file",
        type=Path,
        help='JSON: {"accounts": [{code, kind, currency, timeZone, graceDays}], "clusters": [{code, account, '
        "platformAccount, trust: {issuer, jwks, audience, nodeExporter, clusterExporter}}]}",
    )
    show = actions.add_parser("list", help="show the clusters")
    for action in (add, trust, distrust, register_, show):
        add_database_option(action)
        action.add_argument("--json", action="store_true", help="one JSON object a line")
    return made


def main(argv: Sequence[str]) -> int:
    """Register, trust or list clusters."""
    arguments = _parser().parse_args(argv)
    with opened(arguments) as database:
        if arguments.action == "add":
            with database.writing() as session:
                add_cluster(
                    session,
                    arguments.code,
                    account=arguments.account,
                    platform_account=arguments.platform_account,
                    by=COMMAND_LINE,
                    now_ms=now_ms(),
                )
        elif arguments.action == "trust":
            _trust(database, arguments)
        elif arguments.action == "distrust":
            with database.writing() as session:
                distrust_cluster(session, arguments.code, by=COMMAND_LINE, now_ms=now_ms())
        elif arguments.action == "register":
            _register(database, arguments)
        _show(database, getattr(arguments, "code", None), as_json=arguments.json)
    return 0


def _register(database: Database, arguments: argparse.Namespace) -> None:
    try:
        text = arguments.file.read_bytes()
    except OSError as error:
        raise InvalidError(f"cannot read {arguments.file}: {error.strerror}") from None
    wanted = read_registration(text, str(arguments.file))
    with database.writing() as session:
        done = register(session, wanted, by=COMMAND_LINE, now_ms=now_ms())
    for each in done or ["nothing to add"]:
        print(each, file=sys.stderr)


def _trust(database: Database, arguments: argparse.Namespace) -> None:
    try:
        jwks = arguments.jwks.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InvalidError(f"cannot read the keys in {arguments.jwks}: {reason}") from None
    trust = Trust(
        cluster=arguments.code,
        issuer=arguments.issuer,
        audience=arguments.audience,
        jwks=jwks,
        node_exporter=arguments.node_exporter,
        cluster_exporter=arguments.cluster_exporter,
    )
    with database.writing() as session:
        trust_cluster(session, trust, by=COMMAND_LINE, now_ms=now_ms())


def _show(database: Database, code: str | None, *, as_json: bool) -> None:
    with database.reading() as session:
        trusted = {trust.cluster: trust for trust in trusts(session)}
        clusters = [
            {
                "code": cluster.code,
                "account": cluster.account,
                "platform_account": cluster.platform_account,
                "kube_system_uid": cluster.kube_system_uid,
                "issuer": trusted[cluster.code].issuer if cluster.code in trusted else None,
                "keys": key_names(trusted[cluster.code]) if cluster.code in trusted else [],
            }
            for cluster in list_clusters(session)
            if code in {None, cluster.code}
        ]
    if as_json:
        for one in clusters:
            print_json(one)
        return
    rows = [
        [
            str(one["code"]),
            str(one["account"]),
            str(one["platform_account"]),
            str(one["kube_system_uid"] or "not bound yet"),
            str(one["issuer"] or "none: static tokens"),
        ]
        for one in clusters
    ]
    print_table(["CLUSTER", "ACCOUNT", "PLATFORM ACCOUNT", "KUBE-SYSTEM UID", "TRUSTED ISSUER"], rows)
