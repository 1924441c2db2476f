"""What alembic runs: find the database, compare it with the models, migrate in one transaction.

The caller inside the product hands its `Database` over in `config.attributes`; the plain `alembic`
command finds it in SLICEMETER_DATABASE or in alembic.ini.
"""

from __future__ import annotations

import os
from logging.config import fileConfig

from alembic import context

from accounting.store.database import DEFAULT_URL, Database
from accounting.store.models import Base


def _database() -> Database:
    given = context.config.attributes.get("database")
    if isinstance(given, Database):
        return given
    if context.config.config_file_name is not None:
        fileConfig(context.config.config_file_name, disable_existing_loggers=False)
    configured = context.config.get_main_option("sqlalchemy.url")
    return Database(os.environ.get("SLICEMETER_DATABASE") or configured or DEFAULT_URL)


def _migrate() -> None:
    if context.is_offline_mode():
        raise SystemExit("alembic --sql is not supported: SQLite tables are rebuilt from what is there")
    with _database().migrating() as connection:
        # SQLite cannot alter a table in place; batch mode copies it.
        context.configure(
            connection=connection, target_metadata=Base.metadata, render_as_batch=True, transactional_ddl=True
        )
        with context.begin_transaction():
            context.run_migrations()


_migrate()
