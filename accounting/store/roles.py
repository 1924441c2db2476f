"""The two roles of a PostgreSQL database: the one that owns and migrates it, and the one that serves from it.

Invariant: the service's role owns nothing, may change no schema and bypasses no policy, and reaches
partitions through their tables only.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

from accounting.store.database import Database
from accounting.store.errors import StoreError
from accounting.store.partitions import is_partition

_READ_ONLY = ("alembic_version",)
_INSERT_ONLY = ("audit_log", "statement", "sealed_use", "correction")


def grant_service(database: Database, role: str) -> list[str]:
    """Let a role do what the service needs, on the tables as they are now; to be repeated when migrated.

    Args:
        database: Connected to as the tables' owner.
        role: An existing role, for `serve` and the other commands of every day.

    Returns:
        The tables that were opened.

    Raises:
        StoreError: Not PostgreSQL, no such role, or one for which row-level security would not hold.
    """
    if not database.is_postgresql:
        raise StoreError("a SQLite database has no roles; whoever may write its file may do everything")
    with database.writing() as session:
        connection = session.connection()
        _require_plain(connection, role)
        name = connection.scalar(text("SELECT quote_ident(:role)"), {"role": role})
        tables = [table for table in _tables(connection) if not is_partition(table)]
        schema = connection.scalar(text("SELECT quote_ident(current_schema())"))
        connection.exec_driver_sql(f"GRANT USAGE ON SCHEMA {schema} TO {name}")
        connection.exec_driver_sql(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {name}")
        for table in tables:
            connection.exec_driver_sql(f"GRANT {_rights(table)} ON {table} TO {name}")
    return tables


def is_behind_walls(database: Database) -> bool:
    """Whether row-level security holds for who is connected; SQLite has none to warn of."""
    if not database.is_postgresql:
        return True
    with database.reading() as session:
        return bool(session.scalar(text("SELECT row_security_active('ledger_line')")))


def _rights(table: str) -> str:
    if table in _READ_ONLY:
        return "SELECT"
    return "SELECT, INSERT" if table in _INSERT_ONLY else "SELECT, INSERT, UPDATE, DELETE"


def _tables(connection: Connection) -> list[str]:
    names = connection.scalars(
        text(
            "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace "
            "AND relkind IN ('r', 'p') ORDER BY relname"
        )
    )
    return [str(name) for name in names]


def _require_plain(connection: Connection, role: str) -> None:
    found = connection.execute(
        text(
            "SELECT rolsuper OR rolbypassrls, "
            "rolname = current_user OR pg_has_role(rolname, current_user, 'USAGE') "
            "FROM pg_roles WHERE rolname = :role"
        ),
        {"role": role},
    ).one_or_none()
    if found is None:
        raise StoreError(f"no role \"{role}\"; make it with: CREATE ROLE {role} LOGIN PASSWORD '…'")
    if found[0]:
        raise StoreError(
            f'role "{role}" is a superuser or has BYPASSRLS: no policy would hold for it; name a plain one'
        )
    if found[1]:
        raise StoreError(
            f'role "{role}" owns the tables or acts for who does; name one that owns nothing, and migrate as '
            "the owner"
        )
