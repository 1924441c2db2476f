"""PostgreSQL: an audit log that is insert-only there too, and hours in monthly partitions

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op


revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# Of each table of hours: the key, and its indices.
PARTITIONED = {
    "usage_fact": (
        ("cluster", "hour_ms", "allocation_id", "epoch"),
        (("cluster", "device_uuid", "hour_ms"), ("cluster", "ingest_seq")),
    ),
    "unallocated_fact": (
        ("cluster", "hour_ms", "pod_uid", "container", "device_uuid", "epoch"),
        (("cluster", "ingest_seq"),),
    ),
    "device_fact": (
        ("cluster", "hour_ms", "node_uid", "device_uuid", "epoch"),
        (("cluster", "ingest_seq"),),
    ),
}


def upgrade() -> None:
    # Rows of one counter are locked by several writers: it is there before the first of them.
    op.execute(
        "INSERT INTO ingest_counter (id, last_seq) "
        "SELECT 1, 0 WHERE NOT EXISTS (SELECT 1 FROM ingest_counter)"
    )
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute(
        "CREATE FUNCTION audit_log_insert_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'audit_log is insert-only'; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_log_insert_only BEFORE UPDATE OR DELETE ON audit_log "
        "FOR EACH ROW EXECUTE FUNCTION audit_log_insert_only()"
    )
    for table in PARTITIONED:
        _rebuild(table, "PARTITION BY RANGE (hour_ms)")


def _rebuild(table: str, how: str) -> None:
    """Make a table again, in parts or in one piece, with all its rows."""
    key, indices = PARTITIONED[table]
    names = [f"ix_{table}_{'_'.join(columns)}" for columns in indices]
    op.execute(f"ALTER TABLE {table} RENAME TO {table}_before")
    op.execute(f"ALTER TABLE {table}_before DROP CONSTRAINT pk_{table}")
    for name in names:
        op.execute(f"DROP INDEX {name}")
    op.execute(f"CREATE TABLE {table} (LIKE {table}_before INCLUDING DEFAULTS INCLUDING CONSTRAINTS) {how}")
    if how:
        op.execute(f"CREATE TABLE {table}_default PARTITION OF {table} DEFAULT")
    op.execute(f"INSERT INTO {table} SELECT * FROM {table}_before")
    op.execute(f"DROP TABLE {table}_before")
    op.create_primary_key(f"pk_{table}", table, list(key))
    for name, columns in zip(names, indices, strict=True):
        op.create_index(name, table, list(columns))


def downgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    for table in PARTITIONED:
        _rebuild(table, "")
    op.execute("DROP TRIGGER audit_log_insert_only ON audit_log")
    op.execute("DROP FUNCTION audit_log_insert_only()")
