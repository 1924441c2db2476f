"""Lines and hours keyed by card, so that a card's month is one stretch of the index; lines checked in sets

On PostgreSQL five foreign keys and a trigger looked at every line by itself, which took longer than all
else that storing it takes. Triggers that look at all lines of a statement at once keep the same rules.

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op


revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

HOURS = ("device_hour", "device_energy")
MEASURED = ("device_fact", "unallocated_fact")
BY_CARD, BY_HOUR = (
    ["cluster", "node_uid", "device_uuid", "hour_ms"],
    ["cluster", "hour_ms", "node_uid", "device_uuid"],
)
GRAIN = ["account", "period_id", "tenant_id", "kind", "sku", "resource_key", "charge_from_ms", "revision"]
DEVICE = ["cluster", "node_uid", "device_uuid", "day_ms"]
DEVICE_INDEX = "ix_ledger_line_cluster_node_uid_device_uuid_day_ms"
CORRECTS_INDEX = "ix_ledger_line_corrects_period_id"
ONLY_CORRECTIONS = sa.text("corrects_period_id IS NOT NULL")

# Column of a line, and what it names.
NAMED = {
    "account": ("billing_account", "code"),
    "period_id": ("billing_period", "id"),
    "tenant_id": ("tenant", "id"),
    "price_version_id": ("price_version", "id"),
    "policy_version_id": ("policy_version", "id"),
    "discount_version_id": ("tenant_discount", "id"),
}
LINE_SEALED = "ledger_line: the period is sealed; post a correction into an open one"


def _row_guard(verbs: str) -> str:
    return (
        f"CREATE TRIGGER ledger_line_sealed BEFORE {verbs} ON ledger_line "
        "FOR EACH ROW EXECUTE FUNCTION ledger_line_sealed()"
    )


def _set_guards() -> list[str]:
    """What a statement that adds, changes or removes lines is checked by, once for all of them."""
    missing = " ".join(
        f"PERFORM 1 FROM {table} WHERE {key} IN (SELECT DISTINCT {column} FROM added) FOR KEY SHARE; "
        f"SELECT min({column}::text) INTO lost FROM (SELECT DISTINCT {column} FROM added) AS line "
        f"WHERE {column} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {table} WHERE {key} = line.{column}); "
        f"IF lost IS NOT NULL THEN RAISE foreign_key_violation "
        f"USING MESSAGE = 'ledger_line: {column} ' || lost || ' names no {table}'; END IF;"
        for column, (table, key) in NAMED.items()
    )
    sealed = (
        "IF EXISTS (SELECT 1 FROM billing_period AS period JOIN (SELECT DISTINCT period_id FROM {lines}) "
        "AS line ON line.period_id = period.id WHERE period.state <> 'open') THEN "
        f"RAISE EXCEPTION '{LINE_SEALED}'; END IF;"
    )
    made = [
        "CREATE FUNCTION ledger_line_added() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ DECLARE lost text; BEGIN {sealed.format(lines='added')} {missing} RETURN NULL; END $$",
        "CREATE FUNCTION ledger_line_removed() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {sealed.format(lines='removed')} RETURN NULL; END $$",
        "CREATE TRIGGER ledger_line_added AFTER INSERT ON ledger_line REFERENCING NEW TABLE AS added "
        "FOR EACH STATEMENT EXECUTE FUNCTION ledger_line_added()",
        "CREATE TRIGGER ledger_line_changed AFTER UPDATE ON ledger_line REFERENCING NEW TABLE AS added "
        "FOR EACH STATEMENT EXECUTE FUNCTION ledger_line_added()",
        "CREATE TRIGGER ledger_line_removed AFTER DELETE ON ledger_line REFERENCING OLD TABLE AS removed "
        "FOR EACH STATEMENT EXECUTE FUNCTION ledger_line_removed()",
    ]
    for column, (table, key) in NAMED.items():
        made += [
            f"CREATE FUNCTION {table}_with_lines() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF (TG_OP = 'DELETE' OR NEW.{key} <> OLD.{key}) "
            f"AND EXISTS (SELECT 1 FROM ledger_line WHERE {column} = OLD.{key}) THEN "
            f"RAISE foreign_key_violation USING MESSAGE = '{table}: lines of the ledger name it'; END IF; "
            "IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW; END $$",
            f"CREATE TRIGGER {table}_with_lines BEFORE DELETE OR UPDATE OF {key} ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION {table}_with_lines()",
        ]
    return made


def _is_postgresql() -> bool:
    return op.get_bind().dialect.name == "postgresql"


def _key_hours_by(columns: list[str]) -> None:
    for table in HOURS:
        if _is_postgresql():
            op.drop_constraint(f"pk_{table}", table, type_="primary")
            op.create_primary_key(f"pk_{table}", table, columns)
        else:
            with op.batch_alter_table(table, recreate="always") as batch:
                batch.drop_constraint(f"pk_{table}", type_="primary")
                batch.create_primary_key(f"pk_{table}", columns)


def _line_triggers() -> list[str]:
    """SQLite's triggers of lines, which go when the table is rebuilt."""
    if _is_postgresql():
        return []
    found = op.get_bind().execute(
        sa.text("SELECT sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'ledger_line'")
    )
    return [sql for (sql,) in found]


def upgrade() -> None:
    _key_hours_by(BY_CARD)
    for table in HOURS:
        op.create_index(f"ix_{table}_cluster_hour_ms", table, ["cluster", "hour_ms"])
    for table in MEASURED:
        op.create_index(
            f"ix_{table}_cluster_device_uuid_hour_ms", table, ["cluster", "device_uuid", "hour_ms"]
        )
    triggers = _line_triggers()
    op.drop_index(DEVICE_INDEX, "ledger_line")
    op.drop_index(CORRECTS_INDEX, "ledger_line")
    with op.batch_alter_table("ledger_line") as batch:
        batch.drop_constraint("uq_ledger_line_grain", type_="unique")
        batch.create_unique_constraint("uq_ledger_line_grain", [*DEVICE, *GRAIN])
        if _is_postgresql():
            for column in NAMED:
                batch.drop_constraint(f"fk_ledger_line_{column}", type_="foreignkey")
    op.create_index(
        CORRECTS_INDEX,
        "ledger_line",
        ["corrects_period_id"],
        sqlite_where=ONLY_CORRECTIONS,
        postgresql_where=ONLY_CORRECTIONS,
    )
    for sql in triggers:
        op.execute(sql)
    if _is_postgresql():
        op.execute("DROP TRIGGER ledger_line_sealed ON ledger_line")
        op.execute(_row_guard("UPDATE"))
        for statement in _set_guards():
            op.execute(statement)


def downgrade() -> None:
    if _is_postgresql():
        for name in ("added", "changed", "removed"):
            op.execute(f"DROP TRIGGER ledger_line_{name} ON ledger_line")
        for name in ("added", "removed"):
            op.execute(f"DROP FUNCTION ledger_line_{name}()")
        for table, _ in NAMED.values():
            op.execute(f"DROP TRIGGER {table}_with_lines ON {table}")
            op.execute(f"DROP FUNCTION {table}_with_lines()")
        op.execute("DROP TRIGGER ledger_line_sealed ON ledger_line")
        op.execute(_row_guard("INSERT OR UPDATE OR DELETE"))
    triggers = _line_triggers()
    op.drop_index(CORRECTS_INDEX, "ledger_line")
    with op.batch_alter_table("ledger_line") as batch:
        batch.drop_constraint("uq_ledger_line_grain", type_="unique")
        batch.create_unique_constraint("uq_ledger_line_grain", GRAIN)
        if _is_postgresql():
            for column, (table, key) in NAMED.items():
                batch.create_foreign_key(f"fk_ledger_line_{column}", table, [column], [key])
    op.create_index(CORRECTS_INDEX, "ledger_line", ["corrects_period_id"])
    op.create_index(DEVICE_INDEX, "ledger_line", DEVICE)
    for sql in triggers:
        op.execute(sql)
    for table in MEASURED:
        op.drop_index(f"ix_{table}_cluster_device_uuid_hour_ms", table)
    for table in HOURS:
        op.drop_index(f"ix_{table}_cluster_hour_ms", table)
    _key_hours_by(BY_HOUR)
