"""Options and manners that all accounting commands share.

Invariant: what a user got wrong ends in exit code 2 and one line on stderr, never in a traceback.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import msgspec

from accounting.errors import NotFoundError
from accounting.ledger.calendar import Month
from accounting.periods.months import find_account, find_period
from accounting.settings import Settings
from accounting.store.database import DEFAULT_URL, Database
from accounting.store.migrate import require_current
from accounting.tenants.registry import list_accounts

DATABASE_VARIABLE = "SLICEMETER_DATABASE"
_MOST_PROCESSES = 64


class Parser(argparse.ArgumentParser):
    """A parser that complains in one line."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and where help is, then exit with 2."""
        print(f"{self.prog}: {message}; see: {self.prog} --help", file=sys.stderr)
        raise SystemExit(2)


def parser(command: str, description: str) -> Parser:
    """The parser of one accounting command, with the option that names the database."""
    made = Parser(prog=f"slicemeter accounting {command}", description=description, allow_abbrev=False)
    add_database_option(made)
    return made


def add_database_option(target: argparse.ArgumentParser) -> None:
    """Add `--database`."""
    target.add_argument(
        "--database",
        metavar="URL",
        default=os.environ.get(DATABASE_VARIABLE) or DEFAULT_URL,
        help=f"where the books are; default: {DATABASE_VARIABLE}, else {DEFAULT_URL}",
    )


def seconds(text: str) -> float:
    """Read a number of seconds, as argparse wants it read: `nan` and `inf` are none."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no number of seconds")
    return value


def add_grace_option(target: argparse.ArgumentParser) -> None:
    """Add `--grace-seconds`, which must be that of the service."""
    target.add_argument(
        "--grace-seconds",
        metavar="SECONDS",
        type=seconds,
        default=Settings().grace_ms / 1000,
        help="as given to serve: how long a slice is held after its latest confirmation when nobody saw it "
        "end; default: %(default)g",
    )


def processes(text: str) -> int:
    """Read a number of processes, as argparse wants it read."""
    value = int(text)
    if not 1 <= value <= _MOST_PROCESSES:
        raise ValueError(f"{text} is no number of processes")
    return value


def add_jobs_option(target: argparse.ArgumentParser) -> None:
    """Add `--jobs`."""
    target.add_argument(
        "--jobs",
        metavar="N",
        type=processes,
        default=min(len(os.sched_getaffinity(0)), _MOST_PROCESSES),
        help="how many processes share the cards when many are due; default: one for each core; on SQLite "
        "one writes, whatever this says",
    )


def add_account_option(target: argparse.ArgumentParser) -> None:
    """Add `--account`."""
    target.add_argument("--account", help="only of this account; without it: of all that have the period")


def accounts_of(
    database: Database,
    arguments: argparse.Namespace,
    month: Month,
    *,
    states: Sequence[str] = ("open", "closing", "closed"),
) -> list[str]:
    """The account of `--account`, or all with a period of the month in one of these states.

    Raises:
        NotFoundError: No such account, or none with such a period.
    """
    with database.reading() as session:
        if arguments.account is not None:
            return [find_account(session, arguments.account).code]
        accounts = list_accounts(session)
        found = [(account.code, find_period(session, account, month)) for account in accounts]
        codes = [code for code, period in found if period is not None and period.state in states]
    if not codes:
        wanted = " or ".join(states)
        raise NotFoundError(
            f"no account has a period {month} that is {wanted}; list them with: slicemeter accounting periods"
        )
    return codes


@contextmanager
def opened(arguments: argparse.Namespace) -> Iterator[Database]:
    """The database of `--database`, checked to have the schema of this program.

    Raises:
        StoreError: It cannot be used; the message says how to go on.
    """
    database = Database(arguments.database)
    try:
        require_current(database)
        yield database
    finally:
        database.close()


def now_ms() -> int:
    """The real clock, in Unix milliseconds."""
    return time.time_ns() // 1_000_000


def print_json(value: object) -> None:
    """Print one JSON object, its keys in the order in which they were built."""
    print(msgspec.json.encode(value).decode())


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns as wide as their widest cell."""
    table = [tuple(headings), *(tuple(row) for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(headings))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
