"""`slicemeter accounting restore FILE`: put a backup in the place of the books."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from accounting.store.backup import restore
from accounting.store.database import Database
from accounting.store.migrate import newest_revision
from slicemeter.accounting.options import parser
from slicemeter.accounting.progress import Bar


def main(argv: Sequence[str]) -> int:
    """Restore the books; the service must not be running."""
    made = parser("restore", "Put a backup in the place of the books (SQLite); stop the service first.")
    made.add_argument("file", type=Path, help="made by: slicemeter accounting backup")
    made.add_argument("--replace", action="store_true", help="also where there are books already")
    arguments = made.parse_args(argv)
    database = Database(arguments.database)
    try:
        with Bar() as progress:
            schema = restore(database, arguments.file, is_forced=arguments.replace, progress=progress)
    finally:
        database.close()
    print(f"{database.url} was restored from {arguments.file}: schema {schema}, checked")
    if schema != newest_revision():
        print("it is older than this program; run: slicemeter accounting migrate")
    return 0
