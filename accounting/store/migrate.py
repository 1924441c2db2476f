"""Bring a database to the schema of this program, and tell whether it is there.

Invariant: a database is only ever made or changed by alembic; nothing calls `create_all`.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import DatabaseError

from accounting.store.database import Database
from accounting.store.errors import StoreError


def _scripts() -> Config:
    config = Config()
    config.set_main_option("script_location", str(files("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def alembic_config(database: Database) -> Config:
    """Alembic's configuration for one database, without any file."""
    config = _scripts()
    config.attributes["database"] = database
    return config


def upgrade(database: Database) -> None:
    """Bring the schema to the newest revision; does nothing when it is there.

    Raises:
        StoreError: The file is no database, or cannot be opened.
    """
    try:
        command.upgrade(alembic_config(database), "head")
    except DatabaseError as error:
        raise _unusable(database, error) from error


@cache
def newest_revision() -> str | None:
    """The revision that this program works with."""
    return ScriptDirectory.from_config(_scripts()).get_current_head()


def current_revision(database: Database) -> str | None:
    """The revision of the database; None for an empty one.

    Raises:
        StoreError: The file is no database, or cannot be opened.
    """
    try:
        with database.engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    except DatabaseError as error:
        raise _unusable(database, error) from error


def require_current(database: Database) -> None:
    """Refuse a database of another revision.

    Raises:
        StoreError: It is not there, empty, older or newer than this program; says how to go on.
    """
    missing = database.missing_file()
    if missing is not None:
        raise StoreError(
            f'database "{database.url}": there is no file {missing}; name another with --database or '
            "SLICEMETER_DATABASE, or make it: slicemeter accounting migrate"
        )
    found, wanted = current_revision(database), newest_revision()
    if found == wanted:
        return
    was = "has no tables yet" if found is None else f"has schema {found}, this program needs {wanted}"
    raise StoreError(f'database "{database.url}" {was}; run: slicemeter accounting migrate')


def _unusable(database: Database, error: DatabaseError) -> StoreError:
    reason = " ".join(str(error.orig).split())
    return StoreError(
        f'database "{database.url}" cannot be used: {reason}; name another with --database or '
        "SLICEMETER_DATABASE"
    )
