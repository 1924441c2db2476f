"""The accounting commands: a table of them, each in a module that is imported when it is called."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from accounting.errors import AccountingError

COMMANDS = {
    "serve": "run the service: facts in, ledger and statements out",
    "migrate": "make the database, or bring it to the schema of this program",
    "partition": "make the monthly partitions of a PostgreSQL database",
    "cluster": "the clusters that report",
    "account": "the accounts that get statements",
    "token": "who may report and who may read",
    "session": "who is signed in at the page",
    "tenant": "the tree of tenants",
    "price": "prices by SKU and GPU model",
    "policy": "how shares, idle capacity, energy and unallocated use are treated",
    "budget": "what tenants' months may cost, and how they stand",
    "rate": "rate the open periods now",
    "verify": "check a period: identities, sums, recomputed against stored",
    "periods": "the months of the accounts: open, closing or closed",
    "close": "close a month: what blocks it, seal, statement",
    "correct": "post what a closed month lacks into the open one",
    "adjust": "add an amount to a tenant's open month, with a reason",
    "void": "void a statement by a credit note",
    "statements": "the statements and credit notes that were issued",
    "statement": "a tenant's month: table, CSV, JSON or HTML",
    "export": "a month as a file: CSV, JSON, Parquet, FOCUS",
    "focus": "check a FOCUS file: lint",
    "explain": "why an amount is what it is, from the line down to the segments",
    "quote": "what a slice would cost at most",
    "usage": "what slices held and used",
    "cost": "what it cost, by tenant",
    "forecast": "what the month will have cost when it is over",
    "waste": "what is held and not used, with a request that would have done",
    "capacity": "what was there: charged, idle, down",
    "quality": "who reports, whose clock is off, what is missing, what was refused",
    "audit": "who changed what, and when",
    "backup": "copy the books into a checked file while they are in use",
    "restore": "put a backup in the place of the books",
}
"""Name to help text; the module has the command's name and a `main(argv) -> int`."""


_NO_RIGHT = "42501"
"""PostgreSQL's SQLSTATE of a role without the right."""


def usage() -> str:
    """The text of `slicemeter accounting --help`."""
    width = max(len(name) for name in COMMANDS)
    lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "usage: slicemeter accounting COMMAND …",
            "",
            "Keeps allocations and usage, and turns them into a ledger that closes.",
            "",
            *lines,
            "",
            "slicemeter accounting COMMAND --help tells more.",
        ]
    )


def main(argv: Sequence[str]) -> int:
    """Run one accounting command; returns the process's exit code."""
    if not argv or argv[0] in {"-h", "--help", "help"}:
        print(usage())
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        print(
            f'slicemeter accounting: no command "{name}"; there are: {", ".join(COMMANDS)}', file=sys.stderr
        )
        return 2
    module = importlib.import_module(f"slicemeter.accounting.{name}")
    database_errors = importlib.import_module("sqlalchemy.exc")
    try:
        return int(module.main(rest))
    except AccountingError as error:
        print(f"slicemeter accounting {name}: {error}", file=sys.stderr)
        return 2
    except database_errors.ProgrammingError as error:
        if getattr(error.orig, "sqlstate", "") != _NO_RIGHT:
            raise
        reason = " ".join(str(error.orig).split())
        print(
            f"slicemeter accounting {name}: {reason}; nothing was changed, run it as the role that owns the "
            "tables, or let this one serve with: slicemeter accounting migrate --grant-to ROLE",
            file=sys.stderr,
        )
        return 2
    except database_errors.OperationalError as error:
        reason = " ".join(str(error.orig).split())
        print(
            f"slicemeter accounting {name}: the database failed: {reason}; nothing of the last step was "
            "kept, run it again when the database can be written",
            file=sys.stderr,
        )
        return 2
