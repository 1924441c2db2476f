"""The tree of organisations, teams and projects; dated rules and moves that say whose a slice is

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op


revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
UNIX_MS = sa.BigInteger()
# A withdrawn rule or move keeps its row, without a tenant: it holds nothing, so nothing overlaps it.
LIVE = sa.text("superseded_at_ms IS NULL AND tenant_id IS NOT NULL")

# Of each table of versions: what makes two of them speak of one thing, and what they say.
VERSIONED = {
    "tenant_rule": ("priority", ("tenant_id", "cluster", "tenant_key", "namespace", "labels")),
    "tenant_move": ("from_tenant_id", ("tenant_id",)),
}
VALIDITY = (
    "id",
    "valid_from_ms",
    "valid_to_ms",
    "recorded_at_ms",
    "recorded_by",
    "supersedes_id",
    "reason",
)


def _unchanged(table: str) -> str:
    same = "IS NOT DISTINCT FROM" if op.get_bind().dialect.name == "postgresql" else "IS"
    key, values = VERSIONED[table]
    return " AND ".join(f"NEW.{name} {same} OLD.{name}" for name in (key, *values, *VALIDITY))


def _sqlite_guards(table: str) -> list[str]:
    key, _ = VERSIONED[table]
    return [
        # The year 10000 stands for "until further notice".
        f"CREATE TRIGGER {table}_refuses_overlap BEFORE INSERT ON {table} "
        "WHEN NEW.superseded_at_ms IS NULL AND NEW.tenant_id IS NOT NULL AND EXISTS ("
        f"SELECT 1 FROM {table} AS other WHERE other.superseded_at_ms IS NULL "
        f"AND other.tenant_id IS NOT NULL AND other.{key} = NEW.{key} "
        "AND other.valid_from_ms < coalesce(NEW.valid_to_ms, 253402300800000) "
        "AND NEW.valid_from_ms < coalesce(other.valid_to_ms, 253402300800000)) "
        f"BEGIN SELECT RAISE(ABORT, 'live versions in {table} must not overlap'); END",
        f"CREATE TRIGGER {table}_refuses_update BEFORE UPDATE ON {table} "
        f"WHEN NOT ({_unchanged(table)} "
        "AND OLD.superseded_at_ms IS NULL AND NEW.superseded_at_ms IS NOT NULL) "
        f"BEGIN SELECT RAISE(ABORT, '{table} is never edited: supersede the version'); END",
        f"CREATE TRIGGER {table}_refuses_delete BEFORE DELETE ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{table} is never edited: supersede the version'); END",
    ]


def _postgresql_guards(table: str) -> list[str]:
    key, _ = VERSIONED[table]
    return [
        f"ALTER TABLE {table} ADD CONSTRAINT ex_{table}_overlap EXCLUDE USING gist "
        f"({key} WITH =, int8range(valid_from_ms, valid_to_ms) WITH &&) "
        "WHERE (superseded_at_ms IS NULL AND tenant_id IS NOT NULL)",
        f"CREATE FUNCTION {table}_is_never_edited() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF TG_OP = 'UPDATE' AND {_unchanged(table)} "
        "AND OLD.superseded_at_ms IS NULL AND NEW.superseded_at_ms IS NOT NULL THEN RETURN NEW; END IF; "
        f"RAISE EXCEPTION '{table} is never edited: supersede the version'; END $$",
        f"CREATE TRIGGER {table}_is_never_edited BEFORE UPDATE OR DELETE ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION {table}_is_never_edited()",
    ]


def _versioned_columns() -> list[sa.Column[int] | sa.Column[str]]:
    return [
        sa.Column("valid_from_ms", UNIX_MS, nullable=False),
        sa.Column("valid_to_ms", UNIX_MS, nullable=True),
        sa.Column("recorded_at_ms", UNIX_MS, nullable=False),
        sa.Column("recorded_by", sa.String(length=253), nullable=False),
        sa.Column("supersedes_id", LONG, nullable=True),
        sa.Column("superseded_at_ms", UNIX_MS, nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
    ]


def _kinds(names: str, *statements: str) -> None:
    """Let tenants be of these kinds, after some are renamed."""
    with op.batch_alter_table("tenant") as batch:
        batch.drop_constraint(op.f("ck_tenant_kind_known"), type_="check")
    for statement in statements:
        op.execute(statement)
    with op.batch_alter_table("tenant") as batch:
        batch.create_check_constraint(op.f("ck_tenant_kind_known"), f"kind IN ({names})")


def upgrade() -> None:
    _kinds(
        "'organisation', 'team', 'project', 'leaf', 'builtin'",
        "UPDATE tenant SET kind = 'organisation' WHERE kind = 'node'",
        # Another key could have meant these paths too.
        "UPDATE tenant SET path = 'platform/%69dle' WHERE path = 'platform/idle~' AND code = 'idle'",
        "UPDATE tenant SET path = 'platform/%73hared' WHERE path = 'platform/shared~' AND code = 'shared'",
    )
    op.create_table(
        "tenant_rule",
        sa.Column("id", LONG, autoincrement=True, nullable=False),
        sa.Column("priority", LONG, nullable=False),
        sa.Column("cluster", sa.String(length=253), nullable=False),
        sa.Column("tenant_key", sa.String(length=253), nullable=False),
        sa.Column("namespace", sa.String(length=253), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("tenant_id", LONG, nullable=True),
        *_versioned_columns(),
        sa.CheckConstraint("priority >= 0", name=op.f("ck_tenant_rule_not_negative")),
        sa.CheckConstraint(
            "valid_to_ms IS NULL OR valid_from_ms < valid_to_ms", name=op.f("ck_tenant_rule_validity")
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenant.id"], name="fk_tenant_rule_tenant_id"),
        sa.ForeignKeyConstraint(["supersedes_id"], ["tenant_rule.id"], name="fk_tenant_rule_supersedes_id"),
        sa.PrimaryKeyConstraint("id", name="pk_tenant_rule"),
    )
    op.create_table(
        "tenant_move",
        sa.Column("id", LONG, autoincrement=True, nullable=False),
        sa.Column("from_tenant_id", LONG, nullable=False),
        sa.Column("tenant_id", LONG, nullable=True),
        *_versioned_columns(),
        sa.CheckConstraint(
            "valid_to_ms IS NULL OR valid_from_ms < valid_to_ms", name=op.f("ck_tenant_move_validity")
        ),
        sa.CheckConstraint(
            "tenant_id IS NULL OR from_tenant_id <> tenant_id", name=op.f("ck_tenant_move_elsewhere")
        ),
        sa.ForeignKeyConstraint(["from_tenant_id"], ["tenant.id"], name="fk_tenant_move_from_tenant_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenant.id"], name="fk_tenant_move_tenant_id"),
        sa.ForeignKeyConstraint(["supersedes_id"], ["tenant_move.id"], name="fk_tenant_move_supersedes_id"),
        sa.PrimaryKeyConstraint("id", name="pk_tenant_move"),
    )
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    for table, (key, _) in VERSIONED.items():
        op.create_index(
            f"uq_{table}_live_start",
            table,
            [key, "valid_from_ms"],
            unique=True,
            sqlite_where=LIVE,
            postgresql_where=LIVE,
        )
        for statement in _postgresql_guards(table) if is_postgresql else _sqlite_guards(table):
            op.execute(statement)


def downgrade() -> None:
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    for table in VERSIONED:
        if is_postgresql:
            op.execute(f"DROP TRIGGER {table}_is_never_edited ON {table}")
            op.execute(f"DROP FUNCTION {table}_is_never_edited()")
        op.drop_table(table)
    _kinds(
        "'node', 'leaf', 'builtin'",
        "UPDATE tenant SET kind = 'node' WHERE kind IN ('organisation', 'team')",
        "UPDATE tenant SET kind = 'leaf' WHERE kind = 'project'",
    )
