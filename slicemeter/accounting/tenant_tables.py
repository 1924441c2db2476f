"""How the tree of tenants, its rules and a preview of one more look in a terminal."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from accounting.ledger.calendar import at_text
from accounting.ledger.rounding import to_currency
from accounting.periods.whatif import Bill, Foretold
from accounting.reports.documents import Document, shown
from accounting.reports.units import hours
from slicemeter.accounting.options import print_json, print_table


def print_tree(documents: Sequence[Document]) -> None:
    """One tenant a line, each set in below the one above it, and how to map what nobody has."""
    rows = []
    for one in documents:
        path = str(one["path"])
        is_root = one["kind"] == "builtin" or "/" not in path
        depth = 0 if is_root else path.count("/")
        name = path if is_root else path.rpartition("/")[2]
        rows.append(["  " * depth + name, str(one["kind"]), str(one["account"]), str(one["why"] or "")])
    print_table(["TENANT", "KIND", "ACCOUNT", "WHY"], rows)
    unmapped = [one for one in documents if one["unmapped"]]
    if unmapped:
        first = unmapped[0]
        print(
            f"\n{len(unmapped)} unmapped: each is billed as a tenant of its own. Map one, as:\n"
            f"  slicemeter accounting tenant rule add --priority 100 --cluster … --tenant-key "
            f"'{first['code']}' --tenant {first['account']}/… --from …\n"
            f"or keep it as it is: slicemeter accounting tenant add '{first['path']}' --kind project"
        )


def print_rules(document: Document, arguments: argparse.Namespace) -> None:
    """The live rules by priority; with `--all` every version."""
    rows = document["rows"]
    assert isinstance(rows, list)
    wanted = [one for one in rows if arguments.all or one["live"]]
    if arguments.json:
        for one in wanted:
            print_json(one)
        return
    table = []
    for one in wanted:
        asked = [
            f"{name}={one[name]}" for name in ("cluster", "tenant_key", "namespace") if one[name] is not None
        ]
        asked += [f"label {key}={glob}" for key, glob in one["labels"].items()]
        state = "superseded" if one["superseded_at"] else "withdrawn" if one["withdrawn"] else ""
        table.append(
            [
                str(one["rule"]),
                str(one["priority"]),
                " ".join(asked),
                one["tenant"] or "",
                one["from"],
                one["to"] or "",
                state or ("" if one["matches"] else "matches nothing yet"),
                one["reason"] or "",
            ]
        )
    print_table(["RULE", "PRIORITY", "ASKS", "TENANT", "FROM", "TO", "STATE", "REASON"], table)


def print_moves(documents: Sequence[Document], arguments: argparse.Namespace) -> None:
    """The live moves; with `--all` every version."""
    wanted = [
        one for one in documents if arguments.all or (one["superseded_at"] is None and not one["withdrawn"])
    ]
    if arguments.json:
        for one in wanted:
            print_json(one)
        return
    names = ("move", "tenant", "now", "from", "to", "superseded_at", "reason")
    rows = [["" if one[name] is None else str(one[name]) for name in names] for one in wanted]
    print_table(["MOVE", "TENANT", "NOW", "FROM", "TO", "SUPERSEDED", "REASON"], rows)


def print_foretold(told: Foretold) -> None:
    """What each tenant's open month comes to now and would come to, and what goes from whom to whom."""
    if told.as_of_ms is None:
        print("nothing was rated yet, so nothing can be said; rate first: slicemeter accounting rate")
        return
    print(f"not saved; as of {at_text(told.as_of_ms)} it would change:")
    rows = []
    for one in told.changes:
        key, currency = one.key, one.currency
        rows.append(
            [
                key.tenant,
                key.account,
                key.period,
                hours(one.stands.charged_ppm_ms),
                hours(one.would.charged_ppm_ms),
                _money(one.stands, currency),
                _money(one.would, currency),
                currency or "card-hours",
            ]
        )
    print_table(["TENANT", "ACCOUNT", "PERIOD", "CARD-HOURS", "THEN", "AMOUNT", "THEN", "IN"], rows)
    if told.passings:
        passed = [
            [
                one.period,
                one.from_tenant,
                one.to_tenant,
                str(len(how_much.containers)),
                hours(how_much.after.charged_ppm_ms),
            ]
            for one, how_much in sorted(told.passings.items())
        ]
        print()
        print_table(["PERIOD", "FROM", "TO", "CONTAINERS", "CARD-HOURS"], passed)
    else:
        print("no slice changes hands in an open month")
    for account, period in told.closed:
        print(
            f"{period} of {account} is closed and stays; what it then lacks says: slicemeter accounting "
            f"correct {period} --account {account} --with-prices --check"
        )


def _money(bill: Bill, currency: str | None) -> str:
    amount = None if currency is None else to_currency(bill.amount, currency)
    return shown(amount) or ""
