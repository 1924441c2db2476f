"""Budgets of tenants by validity, and the thresholds that months crossed

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.walls import OF_THE_TENANT, wall_off


revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
UNIX_MS = sa.BigInteger()
EXACT = sa.Numeric(38, 17).with_variant(sa.String(60), "sqlite")
LIVE = sa.text("superseded_at_ms IS NULL")
SAID_ONCE = (
    "id",
    "tenant_id",
    "amount",
    "currency",
    "thresholds",
    "valid_from_ms",
    "valid_to_ms",
    "recorded_at_ms",
    "recorded_by",
    "supersedes_id",
    "reason",
)


def _unchanged() -> str:
    same = "IS NOT DISTINCT FROM" if op.get_bind().dialect.name == "postgresql" else "IS"
    return " AND ".join(f"NEW.{name} {same} OLD.{name}" for name in SAID_ONCE)


def _sqlite_guards() -> list[str]:
    return [
        # The year 10000 stands for "until further notice".
        "CREATE TRIGGER budget_refuses_overlap BEFORE INSERT ON budget "
        "WHEN NEW.superseded_at_ms IS NULL AND EXISTS ("
        "SELECT 1 FROM budget AS other WHERE other.superseded_at_ms IS NULL "
        "AND other.tenant_id = NEW.tenant_id "
        "AND other.valid_from_ms < coalesce(NEW.valid_to_ms, 253402300800000) "
        "AND NEW.valid_from_ms < coalesce(other.valid_to_ms, 253402300800000)) "
        "BEGIN SELECT RAISE(ABORT, 'live versions in budget must not overlap'); END",
        "CREATE TRIGGER budget_refuses_update BEFORE UPDATE ON budget "
        f"WHEN NOT ({_unchanged()} AND OLD.superseded_at_ms IS NULL AND NEW.superseded_at_ms IS NOT NULL) "
        "BEGIN SELECT RAISE(ABORT, 'budget is never edited: supersede the version'); END",
        "CREATE TRIGGER budget_refuses_delete BEFORE DELETE ON budget "
        "BEGIN SELECT RAISE(ABORT, 'budget is never edited: supersede the version'); END",
    ]


def _postgresql_guards() -> list[str]:
    return [
        "ALTER TABLE budget ADD CONSTRAINT ex_budget_overlap EXCLUDE USING gist "
        "(tenant_id WITH =, int8range(valid_from_ms, valid_to_ms) WITH &&) "
        "WHERE (superseded_at_ms IS NULL)",
        "CREATE FUNCTION budget_is_never_edited() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF TG_OP = 'UPDATE' AND {_unchanged()} "
        "AND OLD.superseded_at_ms IS NULL AND NEW.superseded_at_ms IS NOT NULL THEN RETURN NEW; END IF; "
        "RAISE EXCEPTION 'budget is never edited: supersede the version'; END $$",
        "CREATE TRIGGER budget_is_never_edited BEFORE UPDATE OR DELETE ON budget "
        "FOR EACH ROW EXECUTE FUNCTION budget_is_never_edited()",
    ]


def upgrade() -> None:
    op.create_table(
        "budget",
        sa.Column("id", LONG, autoincrement=True, nullable=False),
        sa.Column("tenant_id", LONG, nullable=False),
        sa.Column("amount", EXACT, nullable=False),
        sa.Column("currency", sa.String(length=3), nullable=False),
        sa.Column("thresholds", sa.Text(), nullable=False),
        sa.Column("valid_from_ms", UNIX_MS, nullable=False),
        sa.Column("valid_to_ms", UNIX_MS, nullable=True),
        sa.Column("recorded_at_ms", UNIX_MS, nullable=False),
        sa.Column("recorded_by", sa.String(length=253), nullable=False),
        sa.Column("supersedes_id", LONG, nullable=True),
        sa.Column("superseded_at_ms", UNIX_MS, nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "valid_to_ms IS NULL OR valid_from_ms < valid_to_ms", name=op.f("ck_budget_validity")
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenant.id"], name="fk_budget_tenant_id"),
        sa.ForeignKeyConstraint(["supersedes_id"], ["budget.id"], name="fk_budget_supersedes_id"),
        sa.PrimaryKeyConstraint("id", name="pk_budget"),
    )
    op.create_index(
        "uq_budget_live_start",
        "budget",
        ["tenant_id", "valid_from_ms"],
        unique=True,
        sqlite_where=LIVE,
        postgresql_where=LIVE,
    )
    op.create_table(
        "budget_crossing",
        sa.Column("budget_id", LONG, nullable=False),
        sa.Column("period_id", LONG, nullable=False),
        sa.Column("percent", LONG, nullable=False),
        sa.Column("tenant_id", LONG, nullable=False),
        sa.Column("spent", EXACT, nullable=False),
        sa.Column("crossed_at_ms", UNIX_MS, nullable=False),
        sa.ForeignKeyConstraint(["budget_id"], ["budget.id"], name="fk_budget_crossing_budget_id"),
        sa.ForeignKeyConstraint(["period_id"], ["billing_period.id"], name="fk_budget_crossing_period_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenant.id"], name="fk_budget_crossing_tenant_id"),
        sa.PrimaryKeyConstraint("budget_id", "period_id", "percent", name="pk_budget_crossing"),
    )
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    for statement in _postgresql_guards() if is_postgresql else _sqlite_guards():
        op.execute(statement)
    wall_off("budget", read={"tenant": OF_THE_TENANT})
    wall_off("budget_crossing", read={"tenant": OF_THE_TENANT})


def downgrade() -> None:
    op.drop_table("budget_crossing")
    op.drop_table("budget")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION budget_is_never_edited()")
