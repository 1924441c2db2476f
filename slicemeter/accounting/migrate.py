"""`slicemeter accounting migrate`: make the database, or bring it to the schema of this program."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.periods.rollups import rebuild_rollups
from accounting.store.database import Database
from accounting.store.migrate import current_revision, upgrade
from accounting.store.partitions import make_ahead
from accounting.store.roles import grant_service
from slicemeter.accounting.options import now_ms, parser


def main(argv: Sequence[str]) -> int:
    """Migrate; saying so, also when there was nothing to do."""
    made = parser("migrate", "Make the database, or bring it to the schema of this program.")
    made.add_argument(
        "--grant-to",
        metavar="ROLE",
        help="PostgreSQL: let this role, which owns nothing, do what the service needs, and no more",
    )
    made.add_argument(
        "--rebuild-rollups",
        action="store_true",
        help="make the sums that reports read again from the lines, where verify found them to differ",
    )
    arguments = made.parse_args(argv)
    database = Database(arguments.database)
    try:
        _migrate(database, arguments.grant_to)
        if arguments.rebuild_rollups:
            with database.writing() as session:
                rebuild_rollups(session)
            print("the roll-ups were made again from the lines")
    finally:
        database.close()
    return 0


def _migrate(database: Database, role: str | None) -> None:
    before = current_revision(database)
    upgrade(database)
    with database.writing() as session:
        make_ahead(session, now_ms=now_ms())
    granted = [] if role is None else grant_service(database, role)
    after = current_revision(database)
    done = "is up to date" if before == after else "was made" if before is None else f"was at {before}"
    print(f'database "{database.url}" {done}: schema {after}')
    if role is not None:
        print(f'role "{role}" may serve from {len(granted)} tables')
