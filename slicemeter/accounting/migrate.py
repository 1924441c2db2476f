"""`slicemeter accounting migrate`: make the database, or bring it to the schema of this program."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.store.database import Database
from accounting.store.migrate import current_revision, upgrade
from accounting.store.partitions import make_ahead
from slicemeter.accounting.options import now_ms, parser


def main(argv: Sequence[str]) -> int:
    """Migrate; saying so, also when there was nothing to do."""
    arguments = parser("migrate", "Make the database, or bring it to the schema of this program.").parse_args(
        argv
    )
    database = Database(arguments.database)
    before = current_revision(database)
    upgrade(database)
    with database.writing() as session:
        make_ahead(session, now_ms=now_ms())
    after = current_revision(database)
    done = "is up to date" if before == after else "was made" if before is None else f"was at {before}"
    print(f'database "{database.url}" {done}: schema {after}')
    database.close()
    return 0
