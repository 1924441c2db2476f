"""What alembic runs: find the database, compare it with the models, migrate in one transaction.

The caller inside the product hands its `Database` over in `config.attributes`; the plain `alembic`
command finds it in SLICEMETER_DATABASE or in alembic.ini.

Invariant: two migrations never run at once, and one that cannot have a table within some seconds gives up
instead of queueing every other query behind itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from logging.config import fileConfig
from typing import Any

from alembic import context
from alembic.ddl.postgresql import PostgresqlImpl
from sqlalchemy import Executable, ForeignKeyConstraint
from sqlalchemy.schema import SchemaItem

from accounting.store.database import DEFAULT_URL, Database
from accounting.store.models import Base
from accounting.store.partitions import is_partition
from accounting.store.postgresql import sort_text_by_bytes


class _Postgresql(PostgresqlImpl):
    """PostgreSQL, without what the first revision says in SQLite's own words.

    That revision was written for SQLite alone; a later one makes the triggers in PostgreSQL's words.
    """

    __dialect__ = "postgresql"

    def execute(self, sql: Executable | str, execution_options: Mapping[str, Any] | None = None) -> None:
        if isinstance(sql, str) and re.match(r"CREATE TRIGGER audit_log_refuses_.* RAISE\(ABORT", sql):
            return
        super().execute(sql, dict(execution_options) if execution_options is not None else None)


def _database() -> Database:
    given = context.config.attributes.get("database")
    if isinstance(given, Database):
        return given
    if context.config.config_file_name is not None:
        fileConfig(context.config.config_file_name, disable_existing_loggers=False)
    configured = context.config.get_main_option("sqlalchemy.url")
    return Database(os.environ.get("SLICEMETER_DATABASE") or configured or DEFAULT_URL)


def _is_of_the_model(
    item: SchemaItem, name: str | None, kind: str, _reflected: bool, _compare_to: SchemaItem | None
) -> bool:
    """What is compared: all but partitions, and on PostgreSQL the foreign keys of ledger lines.

    Partitions come and go with the months; their parent is what the models know. What a line names is
    looked up for all lines of a statement at once, by triggers (revision 0008).
    """
    if kind == "foreign_key_constraint" and isinstance(item, ForeignKeyConstraint):
        is_postgresql = context.get_context().dialect.name == "postgresql"
        return not (is_postgresql and item.table.name == "ledger_line")
    return not (kind == "table" and name is not None and is_partition(name))


def _migrate() -> None:
    if context.is_offline_mode():
        raise SystemExit("alembic --sql is not supported: SQLite tables are rebuilt from what is there")
    with _database().migrating() as connection:
        # SQLite cannot alter a table in place; batch mode copies it.
        context.configure(
            connection=connection,
            target_metadata=Base.metadata,
            render_as_batch=True,
            transactional_ddl=True,
            include_object=_is_of_the_model,
        )
        with context.begin_transaction():
            context.run_migrations()
            if connection.dialect.name == "postgresql":
                sort_text_by_bytes(connection)


_migrate()
