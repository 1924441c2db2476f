"""Sealed periods: statements by number, corrections, adjustments, and triggers that keep them

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op


revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
UNIX_MS = sa.BigInteger()
EXACT = sa.Numeric(38, 17).with_variant(sa.String(60), "sqlite")

INSERT_ONLY = ("statement", "sealed_use", "correction")
LINE_SEALED = "ledger_line: the period is sealed; post a correction into an open one"
PERIOD_SEALED = "billing_period: the period is sealed and stays so"


def _sqlite_guards() -> list[str]:
    def state(row: str) -> str:
        return f"(SELECT state FROM billing_period WHERE id = {row}.period_id) <> 'open'"

    lines = {"insert": state("NEW"), "update": f"{state('OLD')} OR {state('NEW')}", "delete": state("OLD")}
    refusals = [
        (f"ledger_line_refuses_{verb}", verb, "ledger_line", f"WHEN {when} ", LINE_SEALED)
        for verb, when in lines.items()
    ]
    refusals += [
        (f"{table}_refuses_{verb}", verb, table, "", f"{table} is insert-only")
        for table in INSERT_ONLY
        for verb in ("update", "delete")
    ]
    refusals += [
        (
            "billing_period_refuses_update",
            "update",
            "billing_period",
            "WHEN OLD.state = 'closed' OR OLD.id <> NEW.id OR OLD.account <> NEW.account "
            "OR OLD.starts_at_ms <> NEW.starts_at_ms OR OLD.ends_at_ms <> NEW.ends_at_ms "
            "OR (OLD.state = 'closing' AND NEW.state = 'open') ",
            PERIOD_SEALED,
        ),
        (
            "billing_period_refuses_delete",
            "delete",
            "billing_period",
            "WHEN OLD.state <> 'open' ",
            PERIOD_SEALED,
        ),
    ]
    return [
        f"CREATE TRIGGER {name} BEFORE {verb.upper()} ON {table} {when}"
        f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
        for name, verb, table, when, message in refusals
    ]


def _postgresql_guards() -> list[str]:
    def function(name: str, body: str) -> str:
        return f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$"

    def trigger(name: str, verbs: str, table: str) -> str:
        return f"CREATE TRIGGER {name} BEFORE {verbs} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()"

    made = [
        function(
            "ledger_line_sealed",
            "IF TG_OP <> 'INSERT' AND "
            "(SELECT state FROM billing_period WHERE id = OLD.period_id) <> 'open' OR TG_OP <> 'DELETE' AND "
            "(SELECT state FROM billing_period WHERE id = NEW.period_id) <> 'open' THEN "
            f"RAISE EXCEPTION '{LINE_SEALED}'; END IF; "
            "IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW;",
        ),
        trigger("ledger_line_sealed", "INSERT OR UPDATE OR DELETE", "ledger_line"),
        function(
            "billing_period_sealed",
            "IF TG_OP = 'DELETE' THEN IF OLD.state = 'open' THEN RETURN OLD; END IF; "
            "ELSIF OLD.state <> 'closed' AND OLD.id = NEW.id AND OLD.account = NEW.account "
            "AND OLD.starts_at_ms = NEW.starts_at_ms AND OLD.ends_at_ms = NEW.ends_at_ms "
            "AND NOT (OLD.state = 'closing' AND NEW.state = 'open') THEN RETURN NEW; END IF; "
            f"RAISE EXCEPTION '{PERIOD_SEALED}';",
        ),
        trigger("billing_period_sealed", "UPDATE OR DELETE", "billing_period"),
    ]
    for table in INSERT_ONLY:
        made.append(function(f"{table}_insert_only", f"RAISE EXCEPTION '{table} is insert-only';"))
        made.append(trigger(f"{table}_insert_only", "UPDATE OR DELETE", table))
    return made


def upgrade() -> None:
    op.add_column(
        "billing_account",
        sa.Column("issuer", sa.String(length=63), server_default=sa.text("'SM'"), nullable=False),
    )
    with op.batch_alter_table("billing_period") as batch:
        batch.add_column(sa.Column("as_of_ms", UNIX_MS, nullable=True))
        batch.add_column(sa.Column("grace_ms", LONG, nullable=True))
        batch.add_column(sa.Column("ingest_watermark", LONG, nullable=True))
        batch.add_column(sa.Column("versions", sa.Text(), nullable=True))
        batch.add_column(sa.Column("override_reason", sa.Text(), nullable=True))
        batch.add_column(sa.Column("sealed_columns", sa.Text(), nullable=True))
        batch.add_column(sa.Column("sha256", sa.String(length=64), nullable=True))
        batch.add_column(sa.Column("closed_at_ms", UNIX_MS, nullable=True))
        batch.add_column(sa.Column("closed_by", sa.String(length=253), nullable=True))
        batch.create_check_constraint(
            op.f("ck_billing_period_frozen"), "(state = 'open') = (ingest_watermark IS NULL)"
        )
        batch.create_check_constraint(
            op.f("ck_billing_period_sealed"), "(state = 'closed') = (sha256 IS NOT NULL)"
        )
    with op.batch_alter_table("ledger_line") as batch:
        batch.add_column(sa.Column("corrects_period_id", LONG, nullable=True))
        batch.add_column(sa.Column("corrects_kind", sa.String(length=32), nullable=True))
        batch.add_column(sa.Column("corrects_day_ms", UNIX_MS, nullable=True))
        batch.add_column(sa.Column("reason", sa.Text(), nullable=True))
        batch.create_foreign_key(
            "fk_ledger_line_corrects_period_id", "billing_period", ["corrects_period_id"], ["id"]
        )
        batch.create_check_constraint(
            op.f("ck_ledger_line_adjustment_has_reason"), "kind <> 'adjustment' OR reason <> ''"
        )
        batch.create_check_constraint(
            op.f("ck_ledger_line_correction_has_origin"),
            "(kind = 'correction') = (corrects_period_id IS NOT NULL AND corrects_kind IS NOT NULL "
            "AND corrects_day_ms IS NOT NULL)",
        )
        batch.create_index(op.f("ix_ledger_line_corrects_period_id"), ["corrects_period_id"])
    op.create_table(
        "statement",
        sa.Column("id", LONG, autoincrement=True, nullable=False),
        sa.Column("issuer", sa.String(length=63), nullable=False),
        sa.Column("number", LONG, nullable=False),
        sa.Column("account", sa.String(length=63), nullable=False),
        sa.Column("period_id", LONG, nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("revision", LONG, nullable=False),
        sa.Column("corrects_id", LONG, nullable=True),
        sa.Column("currency", sa.String(length=3), nullable=True),
        sa.Column("total", EXACT, nullable=True),
        sa.Column("issued_at_ms", UNIX_MS, nullable=False),
        sa.Column("issued_by", sa.String(length=253), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.CheckConstraint(
            "kind IN ('statement', 'credit_note')", name=op.f("ck_statement_kind_known")
        ),
        sa.CheckConstraint("number > 0 AND revision >= 0", name=op.f("ck_statement_counted")),
        sa.CheckConstraint(
            "(kind = 'credit_note') = (corrects_id IS NOT NULL AND reason IS NOT NULL)",
            name=op.f("ck_statement_note_has_origin"),
        ),
        sa.CheckConstraint(
            "(currency IS NULL) = (total IS NULL)", name=op.f("ck_statement_total_has_currency")
        ),
        sa.ForeignKeyConstraint(["account"], ["billing_account.code"], name="fk_statement_account"),
        sa.ForeignKeyConstraint(["period_id"], ["billing_period.id"], name="fk_statement_period_id"),
        sa.ForeignKeyConstraint(["corrects_id"], ["statement.id"], name="fk_statement_corrects_id"),
        sa.PrimaryKeyConstraint("id", name="pk_statement"),
        sa.UniqueConstraint("issuer", "number", name="uq_statement_issuer_number"),
        sa.UniqueConstraint("period_id", "kind", "revision", name="uq_statement_period_id_kind_revision"),
    )
    op.create_table(
        "sealed_use",
        sa.Column("period_id", LONG, nullable=False),
        sa.Column("tenant_id", LONG, nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["period_id"], ["billing_period.id"], name="fk_sealed_use_period_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenant.id"], name="fk_sealed_use_tenant_id"),
        sa.PrimaryKeyConstraint("period_id", "tenant_id", name="pk_sealed_use"),
    )
    op.create_table(
        "statement_number",
        sa.Column("issuer", sa.String(length=63), nullable=False),
        sa.Column("last_number", LONG, nullable=False),
        sa.CheckConstraint("last_number >= 0", name=op.f("ck_statement_number_not_negative")),
        sa.PrimaryKeyConstraint("issuer", name="pk_statement_number"),
    )
    op.create_table(
        "correction",
        sa.Column("id", LONG, autoincrement=True, nullable=False),
        sa.Column("account", sa.String(length=63), nullable=False),
        sa.Column("period_id", LONG, nullable=False),
        sa.Column("revision", LONG, nullable=False),
        sa.Column("into_period_id", LONG, nullable=False),
        sa.Column("as_of_ms", UNIX_MS, nullable=False),
        sa.Column("ingest_watermark", LONG, nullable=False),
        sa.Column("versions", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("corrected_at_ms", UNIX_MS, nullable=False),
        sa.Column("corrected_by", sa.String(length=253), nullable=False),
        sa.ForeignKeyConstraint(["account"], ["billing_account.code"], name="fk_correction_account"),
        sa.ForeignKeyConstraint(["period_id"], ["billing_period.id"], name="fk_correction_period_id"),
        sa.ForeignKeyConstraint(
            ["into_period_id"], ["billing_period.id"], name="fk_correction_into_period_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_correction"),
        sa.UniqueConstraint("period_id", "revision", name="uq_correction_period_id_revision"),
    )
    op.create_table(
        "late_day",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("node_uid", sa.String(length=253), nullable=False),
        sa.Column("device_uuid", sa.String(length=253), nullable=False),
        sa.Column("day_ms", UNIX_MS, nullable=False),
        sa.Column("ingest_seq", LONG, nullable=False),
        sa.PrimaryKeyConstraint("cluster", "node_uid", "device_uuid", "day_ms", name="pk_late_day"),
    )
    op.create_index("ix_late_day_day_ms", "late_day", ["day_ms"], unique=False)
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    for statement in _postgresql_guards() if is_postgresql else _sqlite_guards():
        op.execute(statement)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        guarded = (
            ("ledger_line_sealed", "ledger_line"),
            ("billing_period_sealed", "billing_period"),
            *((f"{table}_insert_only", table) for table in INSERT_ONLY),
        )
        for name, table in guarded:
            op.execute(f"DROP TRIGGER {name} ON {table}")
            op.execute(f"DROP FUNCTION {name}()")
    else:
        for verb in ("insert", "update", "delete"):
            op.execute(f"DROP TRIGGER ledger_line_refuses_{verb}")
        for verb in ("update", "delete"):
            op.execute(f"DROP TRIGGER billing_period_refuses_{verb}")
    op.drop_table("late_day")
    op.drop_table("correction")
    op.drop_table("statement_number")
    op.drop_table("sealed_use")
    op.drop_table("statement")
    # What was sealed is open again: its schema no longer knows what a seal is.
    op.execute("UPDATE billing_period SET state = 'open', ingest_watermark = NULL, sha256 = NULL")
    op.execute("DELETE FROM ledger_line WHERE kind = 'correction'")
    with op.batch_alter_table("ledger_line") as batch:
        batch.drop_index(op.f("ix_ledger_line_corrects_period_id"))
        batch.drop_constraint(op.f("ck_ledger_line_correction_has_origin"), type_="check")
        batch.drop_constraint(op.f("ck_ledger_line_adjustment_has_reason"), type_="check")
        batch.drop_constraint("fk_ledger_line_corrects_period_id", type_="foreignkey")
        for name in ("reason", "corrects_day_ms", "corrects_kind", "corrects_period_id"):
            batch.drop_column(name)
    with op.batch_alter_table("billing_period") as batch:
        batch.drop_constraint(op.f("ck_billing_period_sealed"), type_="check")
        batch.drop_constraint(op.f("ck_billing_period_frozen"), type_="check")
        for name in (
            "closed_by",
            "closed_at_ms",
            "sha256",
            "sealed_columns",
            "override_reason",
            "versions",
            "ingest_watermark",
            "grace_ms",
            "as_of_ms",
        ):
            batch.drop_column(name)
    with op.batch_alter_table("billing_account") as batch:
        batch.drop_column("issuer")
