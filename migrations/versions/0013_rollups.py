"""Roll-ups of lines by day and of device hours, kept by the database in the transaction that changes a row

On PostgreSQL each statement adds rows for what it changed, so that no rating waits for a row of another's;
a rating merges them when it is done. SQLite, which has one writer, keeps one row for each key; its triggers
need `exact_add`, which every connection of the program has.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa
from alembic import op

from migrations.walls import CARDS, OF_THE_TENANT, wall_off


revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
EXACT = sa.Numeric(38, 17).with_variant(sa.String(60), "sqlite")
NOT_MERGED = sa.text("NOT is_merged")


class RollUp(NamedTuple):
    """A table, and the one whose rows it adds up."""

    name: str
    of: str
    key: tuple[str, ...]
    counter: str
    quantities: tuple[str, ...]
    has_amount: bool

    @property
    def columns(self) -> str:
        money = ("unrated", "amount") if self.has_amount else ()
        return ", ".join((*self.key, self.counter, *self.quantities, *money, "is_merged"))

    def added_up(self, rows: str, sign: str, *, add: str, is_merged: str) -> str:
        """A query that gives a set of rows, counted for or against."""
        key = ", ".join(self.key)
        sums = [f"{sign}count(*)", *(f"{sign}sum({name})" for name in self.quantities)]
        if self.has_amount:
            sums += [f"{sign}count(*) FILTER (WHERE amount IS NULL)", f"{sign}coalesce({add}(amount), '0')"]
        return f"SELECT {key}, {', '.join(sums)}, {is_merged} FROM {rows} GROUP BY {key}"

    def is_row_of(self, row: str) -> str:
        return " AND ".join(f"{name} IS {row}.{name}" for name in self.key)

    def changed(self, row: str, sign: str) -> str:
        """A statement that counts one row for or against; SQLite's words."""
        changes = [f"{self.counter} = {self.counter} {sign} 1"]
        changes += [f"{name} = {name} {sign} {row}.{name}" for name in self.quantities]
        if self.has_amount:
            changes.append(f"unrated = unrated {sign} ({row}.amount IS NULL)")
            changes.append(f"amount = exact_add(amount, {row}.amount, {sign}1)")
        return f"UPDATE {self.name} SET {', '.join(changes)} WHERE {self.is_row_of(row)}; "


ROLLUPS = (
    RollUp(
        "rollup_day",
        "ledger_line",
        (
            "account",
            "period_id",
            "tenant_id",
            "kind",
            "sku",
            "day_ms",
            "cluster",
            "model",
            "namespace",
            "unit",
            "currency",
            "unit_price",
            "discount_percent",
            "corrects_kind",
        ),
        "line_count",
        ("own_quantity", "quantity", "held_not_running_quantity", "degraded_quantity"),
        has_amount=True,
    ),
    RollUp(
        "rollup_hour",
        "device_hour",
        ("cluster", "hour_ms", "model"),
        "device_count",
        ("present_ppm_ms", "charged_ppm_ms", "idle_ppm_ms", "down_ppm_ms", "confirmed_ms"),
        has_amount=False,
    ),
)
EVENTS = ("counted", "uncounted", "recounted")


def _is_postgresql() -> bool:
    return op.get_bind().dialect.name == "postgresql"


def _postgresql_triggers(one: RollUp) -> list[str]:
    added, removed = ("added", ""), ("removed", "-")
    events = (
        ("INSERT", "NEW TABLE AS added", (added,)),
        ("DELETE", "OLD TABLE AS removed", (removed,)),
        ("UPDATE", "OLD TABLE AS removed NEW TABLE AS added", (removed, added)),
    )
    made = []
    for name, (event, tables, parts) in zip(EVENTS, events, strict=True):
        inserts = " ".join(
            f"INSERT INTO {one.name} ({one.columns}) "
            f"{one.added_up(rows, sign, add='sum', is_merged='false')};"
            for rows, sign in parts
        )
        made += [
            f"CREATE FUNCTION {one.of}_{name}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN {inserts} RETURN NULL; END $$",
            f"CREATE TRIGGER {one.of}_{name} AFTER {event} ON {one.of} REFERENCING {tables} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {one.of}_{name}()",
        ]
    return made


def _sqlite_triggers(one: RollUp) -> list[str]:
    values = [f"NEW.{name}" for name in one.key] + ["1"] + [f"NEW.{name}" for name in one.quantities]
    if one.has_amount:
        values += ["NEW.amount IS NULL", "exact_add('0', NEW.amount, 1)"]
    add = one.changed("NEW", "+") + (
        f"INSERT INTO {one.name} ({one.columns}) SELECT {', '.join(values)}, 1 WHERE changes() = 0; "
    )
    remove = one.changed("OLD", "-") + (
        f"DELETE FROM {one.name} WHERE {one.is_row_of('OLD')} AND {one.counter} = 0; "
    )
    return [
        f"CREATE TRIGGER {one.of}_counted AFTER INSERT ON {one.of} BEGIN {add}END",
        f"CREATE TRIGGER {one.of}_uncounted AFTER DELETE ON {one.of} BEGIN {remove}END",
        f"CREATE TRIGGER {one.of}_recounted AFTER UPDATE ON {one.of} BEGIN {remove}{add}END",
    ]


def _make_tables() -> None:
    op.create_table(
        "rollup_day",
        sa.Column("id", LONG, autoincrement=True, nullable=False),
        sa.Column("account", sa.String(length=63), nullable=False),
        sa.Column("period_id", LONG, nullable=False),
        sa.Column("tenant_id", LONG, nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("sku", sa.String(length=32), nullable=False),
        sa.Column("day_ms", sa.BigInteger(), nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("model", sa.String(length=253), nullable=False),
        sa.Column("namespace", sa.String(length=253), nullable=False),
        sa.Column("unit", sa.String(length=32), nullable=False),
        sa.Column("currency", sa.String(length=3), nullable=True),
        sa.Column("unit_price", EXACT, nullable=True),
        sa.Column("discount_percent", EXACT, nullable=True),
        sa.Column("corrects_kind", sa.String(length=32), nullable=True),
        sa.Column("line_count", LONG, nullable=False),
        sa.Column("own_quantity", LONG, nullable=False),
        sa.Column("quantity", LONG, nullable=False),
        sa.Column("held_not_running_quantity", LONG, nullable=False),
        sa.Column("degraded_quantity", LONG, nullable=False),
        sa.Column("unrated", LONG, nullable=False),
        sa.Column("amount", EXACT, nullable=False),
        sa.Column("is_merged", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_rollup_day"),
    )
    op.create_table(
        "rollup_hour",
        sa.Column("id", LONG, autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("hour_ms", sa.BigInteger(), nullable=False),
        sa.Column("model", sa.String(length=253), nullable=False),
        sa.Column("device_count", LONG, nullable=False),
        sa.Column("present_ppm_ms", LONG, nullable=False),
        sa.Column("charged_ppm_ms", LONG, nullable=False),
        sa.Column("idle_ppm_ms", LONG, nullable=False),
        sa.Column("down_ppm_ms", LONG, nullable=False),
        sa.Column("confirmed_ms", LONG, nullable=False),
        sa.Column("is_merged", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_rollup_hour"),
    )


def _make_indexes() -> None:
    days, hours = ["account", "day_ms", "tenant_id"], ["cluster", "hour_ms"]
    op.create_index("ix_rollup_day_account_day_ms_tenant_id", "rollup_day", days)
    op.create_index("ix_rollup_day_tenant_id_day_ms", "rollup_day", ["tenant_id", "day_ms"])
    op.create_index("ix_rollup_day_period_id", "rollup_day", ["period_id"])
    op.create_index("ix_rollup_hour_cluster_hour_ms", "rollup_hour", hours)
    for table, columns in (("rollup_day", days[:2]), ("rollup_hour", hours)):
        op.create_index(
            f"ix_{table}_not_merged",
            table,
            columns,
            sqlite_where=NOT_MERGED,
            postgresql_where=NOT_MERGED,
        )


def upgrade() -> None:
    _make_tables()
    add = "sum" if _is_postgresql() else "exact_sum"
    for one in ROLLUPS:
        rows = one.added_up(one.of, "", add=add, is_merged="true")
        op.execute(f"INSERT INTO {one.name} ({one.columns}) {rows}")
        for statement in (_postgresql_triggers if _is_postgresql() else _sqlite_triggers)(one):
            op.execute(statement)
    _make_indexes()
    wall_off("rollup_day", read={"tenant": OF_THE_TENANT})
    wall_off("rollup_hour", read={"cards": CARDS})


def downgrade() -> None:
    for one in ROLLUPS:
        for name in EVENTS:
            if _is_postgresql():
                op.execute(f"DROP TRIGGER {one.of}_{name} ON {one.of}")
                op.execute(f"DROP FUNCTION {one.of}_{name}()")
            else:
                op.execute(f"DROP TRIGGER {one.of}_{name}")
        op.drop_table(one.name)
