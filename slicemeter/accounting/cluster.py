"""`slicemeter accounting cluster add|list`: the clusters that report."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.access.viewer import COMMAND_LINE
from accounting.tenants.registry import add_cluster, list_clusters
from slicemeter.accounting.options import Parser, add_database_option, now_ms, opened, print_json, print_table


def _parser() -> Parser:
    made = Parser(
        prog="slicemeter accounting cluster", description="The clusters that report.", allow_abbrev=False
    )
    actions = made.add_subparsers(dest="action", required=True, metavar="add|list")
    add = actions.add_parser("add", help="register a cluster")
    add.add_argument("code", help="as in the exporters' configuration; it never changes")
    add.add_argument("--account", required=True, help="who pays for tenants seen for the first time")
    add.add_argument("--platform-account", required=True, help="who bears idle capacity")
    show = actions.add_parser("list", help="show the clusters")
    for action in (add, show):
        add_database_option(action)
        action.add_argument("--json", action="store_true", help="one JSON object a line")
    return made


def main(argv: Sequence[str]) -> int:
    """Register or list clusters."""
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
        with database.reading() as session:
            clusters = [
                {
                    "code": cluster.code,
                    "account": cluster.account,
                    "platform_account": cluster.platform_account,
                    "kube_system_uid": cluster.kube_system_uid,
                }
                for cluster in list_clusters(session)
                if arguments.action == "list" or cluster.code == arguments.code
            ]
    if arguments.json:
        for one in clusters:
            print_json(one)
    else:
        rows = [[value or "not bound yet" for value in one.values()] for one in clusters]
        print_table(["CLUSTER", "ACCOUNT", "PLATFORM ACCOUNT", "KUBE-SYSTEM UID"], rows)
    return 0
