"""Policies, energy and discounts; live versions that cannot overlap

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op


revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
UNIX_MS = sa.BigInteger()
EXACT = sa.Numeric(38, 17).with_variant(sa.String(60), "sqlite")
LIVE = sa.text("superseded_at_ms IS NULL")

# Of each versioned table: what makes two versions speak of one thing.
VERSIONED = {
    "price_version": ("book", "sku", "model", "currency"),
    "policy_version": ("kind",),
    "tenant_discount": ("tenant_id", "book"),
}
RATED_KINDS = "'usage', 'energy', 'idle', 'unallocated'"
SIGNED_KINDS = "'distribution', 'correction', 'adjustment'"


def _sqlite_triggers(table: str, keys: tuple[str, ...]) -> list[str]:
    same = " AND ".join(f"other.{key} = NEW.{key}" for key in keys)
    return [
        # The year 10000 stands for "until further notice".
        f"CREATE TRIGGER {table}_refuses_overlap BEFORE INSERT ON {table} "
        "WHEN NEW.superseded_at_ms IS NULL AND EXISTS ("
        f"SELECT 1 FROM {table} AS other WHERE other.superseded_at_ms IS NULL AND {same} "
        "AND other.valid_from_ms < coalesce(NEW.valid_to_ms, 253402300800000) "
        "AND NEW.valid_from_ms < coalesce(other.valid_to_ms, 253402300800000)) "
        f"BEGIN SELECT RAISE(ABORT, 'live versions in {table} must not overlap'); END",
        f"CREATE TRIGGER {table}_refuses_update BEFORE UPDATE ON {table} "
        f"WHEN NOT ({' AND '.join(_unchanged(table))} "
        "AND OLD.superseded_at_ms IS NULL AND NEW.superseded_at_ms IS NOT NULL) "
        f"BEGIN SELECT RAISE(ABORT, '{table} is never edited: supersede the version'); END",
        f"CREATE TRIGGER {table}_refuses_delete BEFORE DELETE ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{table} is never edited: supersede the version'); END",
    ]


def _unchanged(table: str) -> list[str]:
    value = {
        "price_version": ("unit_price", "unit"),
        "policy_version": ("value",),
        "tenant_discount": ("percent",),
    }
    names = (
        "id",
        *VERSIONED[table],
        *value[table],
        "valid_from_ms",
        "valid_to_ms",
        "recorded_at_ms",
        "recorded_by",
        "supersedes_id",
        "reason",
    )
    same = "IS NOT DISTINCT FROM" if op.get_bind().dialect.name == "postgresql" else "IS"
    return [f"NEW.{name} {same} OLD.{name}" for name in names]


def _postgresql_guards(table: str, keys: tuple[str, ...]) -> list[str]:
    equal = ", ".join(f"{key} WITH =" for key in keys)
    return [
        f"ALTER TABLE {table} ADD CONSTRAINT ex_{table}_overlap EXCLUDE USING gist "
        f"({equal}, int8range(valid_from_ms, valid_to_ms) WITH &&) WHERE (superseded_at_ms IS NULL)",
        f"CREATE FUNCTION {table}_is_never_edited() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF TG_OP = 'UPDATE' AND {' AND '.join(_unchanged(table))} "
        "AND OLD.superseded_at_ms IS NULL AND NEW.superseded_at_ms IS NOT NULL THEN RETURN NEW; END IF; "
        f"RAISE EXCEPTION '{table} is never edited: supersede the version'; END $$",
        f"CREATE TRIGGER {table}_is_never_edited BEFORE UPDATE OR DELETE ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION {table}_is_never_edited()",
    ]


def upgrade() -> None:
    op.create_table(
        "tenant_discount",
        sa.Column("id", LONG, autoincrement=True, nullable=False),
        sa.Column("tenant_id", LONG, nullable=False),
        sa.Column("book", sa.String(length=63), nullable=False),
        sa.Column("percent", EXACT, nullable=False),
        sa.Column("valid_from_ms", UNIX_MS, nullable=False),
        sa.Column("valid_to_ms", UNIX_MS, nullable=True),
        sa.Column("recorded_at_ms", UNIX_MS, nullable=False),
        sa.Column("recorded_by", sa.String(length=253), nullable=False),
        sa.Column("supersedes_id", LONG, nullable=True),
        sa.Column("superseded_at_ms", UNIX_MS, nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "valid_to_ms IS NULL OR valid_from_ms < valid_to_ms", name=op.f("ck_tenant_discount_validity")
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenant.id"], name="fk_tenant_discount_tenant_id"),
        sa.ForeignKeyConstraint(["book"], ["price_book.code"], name="fk_tenant_discount_book"),
        sa.ForeignKeyConstraint(
            ["supersedes_id"], ["tenant_discount.id"], name="fk_tenant_discount_supersedes_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_tenant_discount"),
    )
    for table, keys in (("tenant_discount", ["tenant_id", "book"]), ("policy_version", ["kind"])):
        op.create_index(
            f"uq_{table}_live_start",
            table,
            [*keys, "valid_from_ms"],
            unique=True,
            sqlite_where=LIVE,
            postgresql_where=LIVE,
        )
    op.create_table(
        "device_energy",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("hour_ms", UNIX_MS, nullable=False),
        sa.Column("node_uid", sa.String(length=253), nullable=False),
        sa.Column("device_uuid", sa.String(length=253), nullable=False),
        sa.Column("energy_mj", LONG, nullable=False),
        sa.Column("active_mj", LONG, nullable=False),
        sa.Column("unallocated_mj", LONG, nullable=False),
        sa.Column("unattributed_mj", LONG, nullable=False),
        sa.Column("idle_mj", LONG, nullable=False),
        sa.Column("idle_held_mj", LONG, nullable=False),
        sa.Column("residual_mj", LONG, nullable=False),
        sa.CheckConstraint(
            "active_mj + unallocated_mj + unattributed_mj + idle_mj + residual_mj = energy_mj",
            name=op.f("ck_device_energy_closes"),
        ),
        sa.CheckConstraint("idle_held_mj <= idle_mj", name=op.f("ck_device_energy_idle_held")),
        sa.CheckConstraint(
            "energy_mj >= 0 AND active_mj >= 0 AND unallocated_mj >= 0 AND unattributed_mj >= 0 "
            "AND idle_mj >= 0 AND idle_held_mj >= 0",
            name=op.f("ck_device_energy_not_negative"),
        ),
        sa.PrimaryKeyConstraint("cluster", "hour_ms", "node_uid", "device_uuid", name="pk_device_energy"),
    )
    with op.batch_alter_table("ledger_line") as batch:
        batch.add_column(sa.Column("discount_version_id", LONG, nullable=True))
        batch.add_column(sa.Column("discount_percent", EXACT, nullable=True))
        batch.create_foreign_key(
            "fk_ledger_line_discount_version_id", "tenant_discount", ["discount_version_id"], ["id"]
        )
        batch.drop_constraint(op.f("ck_ledger_line_kind_known"), type_="check")
        batch.drop_constraint(op.f("ck_ledger_line_not_negative"), type_="check")
        batch.create_check_constraint(
            op.f("ck_ledger_line_kind_known"), f"kind IN ({RATED_KINDS}, {SIGNED_KINDS})"
        )
        batch.create_check_constraint(
            op.f("ck_ledger_line_not_negative"),
            "held_not_running_quantity >= 0 AND degraded_quantity >= 0 AND revision >= 0",
        )
        batch.create_check_constraint(
            op.f("ck_ledger_line_sign"),
            f"(own_quantity >= 0 AND quantity >= 0) OR kind IN ({SIGNED_KINDS})",
        )
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    if is_postgresql:
        # Equality on text and numbers inside a GiST index.
        op.execute("CREATE EXTENSION IF NOT EXISTS btree_gist")
    for table, columns in VERSIONED.items():
        guards = _postgresql_guards(table, columns) if is_postgresql else _sqlite_triggers(table, columns)
        for statement in guards:
            op.execute(statement)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        for table in VERSIONED:
            op.execute(f"DROP TRIGGER {table}_is_never_edited ON {table}")
            op.execute(f"DROP FUNCTION {table}_is_never_edited()")
            op.execute(f"ALTER TABLE {table} DROP CONSTRAINT ex_{table}_overlap")
    else:
        for table in VERSIONED:
            for what in ("overlap", "update", "delete"):
                op.execute(f"DROP TRIGGER {table}_refuses_{what}")
    op.execute(f"DELETE FROM ledger_line WHERE kind IN ({SIGNED_KINDS})")
    with op.batch_alter_table("ledger_line") as batch:
        batch.drop_constraint(op.f("ck_ledger_line_sign"), type_="check")
        batch.drop_constraint(op.f("ck_ledger_line_not_negative"), type_="check")
        batch.drop_constraint(op.f("ck_ledger_line_kind_known"), type_="check")
        batch.create_check_constraint(op.f("ck_ledger_line_kind_known"), f"kind IN ({RATED_KINDS})")
        batch.create_check_constraint(
            op.f("ck_ledger_line_not_negative"),
            "own_quantity >= 0 AND quantity >= 0 AND held_not_running_quantity >= 0 "
            "AND degraded_quantity >= 0 AND revision >= 0",
        )
        batch.drop_constraint("fk_ledger_line_discount_version_id", type_="foreignkey")
        batch.drop_column("discount_percent")
        batch.drop_column("discount_version_id")
    op.drop_table("device_energy")
    op.drop_index("uq_policy_version_live_start", "policy_version")
    op.drop_table("tenant_discount")
