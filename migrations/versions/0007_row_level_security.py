"""PostgreSQL: row-level security on every table and partition, by the viewer that a transaction declares

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.walls import (
    ANYBODY,
    CARDS,
    OF,
    OF_THE_CLUSTER,
    OF_THE_TENANT,
    OF_THE_TENANTS_ACCOUNT,
    SEES,
    SIGN_IN,
    Readers,
    open_again,
    wall_off,
)


revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

OWN_PATH = f"{SEES} = 'tenant' AND (path = {OF} OR starts_with(path, {OF} || '/'))"
WHOLE_ACCOUNT = f"{SEES} = 'tenant' AND account = {OF}"
# What is built in has lines in several accounts; everybody else's are in its own.
OWN_ACCOUNT = (
    f"{SEES} = 'tenant' AND (code = {OF} OR code = ANY (ARRAY(SELECT account FROM tenant)) "
    "OR EXISTS (SELECT 1 FROM tenant WHERE kind = 'builtin') AND code IN (SELECT account FROM ledger_line))"
)
FACTS = (
    "allocation_report",
    "presence_report",
    "node_state",
    "usage_fact",
    "unallocated_fact",
    "device_fact",
)
PARTITIONED = ("usage_fact", "unallocated_fact", "device_fact")

# Who reads besides those that see everything, and who writes. Facts belong to a tenant only through rules,
# moves and time, so no tenant reads them: what it sees of them goes through the `cards` scope.
READ: dict[str, Readers] = {
    **{table: {"cards": CARDS} for table in FACTS},
    "tenant": {"tenant": OWN_PATH, "cards": CARDS},
    "ledger_line": {"tenant": OF_THE_TENANT},
    "sealed_use": {"tenant": OF_THE_TENANT},
    "billing_account": {"tenant": OWN_ACCOUNT, "cards": CARDS},
    "billing_period": {"tenant": OF_THE_TENANTS_ACCOUNT},
    "statement": {"tenant": WHOLE_ACCOUNT},
    "correction": {"tenant": WHOLE_ACCOUNT},
    "cluster": {"cards": CARDS},
    "device_hour": {"cards": CARDS},
    "device_energy": {"cards": CARDS},
    "tenant_discount": {"cards": CARDS},
    "tenant_rule": {"cards": CARDS},
    "tenant_move": {"cards": CARDS},
    # These hold nobody's rows; still a connection that says nothing sees none of them.
    "price_book": {"anybody": ANYBODY},
    "price_version": {"anybody": ANYBODY},
    "policy_version": {"anybody": ANYBODY},
    "rating_state": {"anybody": ANYBODY},
    "api_token": {"sign_in": f"{SIGN_IN} AND prefix = {OF}"},
    "audit_log": {},
    "kept_answer": {},
    "statement_number": {},
    "late_day": {},
    "node": {},
    "exporter_source": {},
    "quarantine": {},
    "rating_mark": {},
    "ingest_counter": {},
}
WRITE: dict[str, Readers] = {
    **{
        table: {"cluster": OF_THE_CLUSTER}
        for table in (*FACTS, "node", "exporter_source", "quarantine", "rating_mark")
    },
    "cluster": {"cluster": f"{SEES} = 'cluster' AND code = {OF}"},
    "ingest_counter": {"cluster": f"{SEES} = 'cluster'"},
}


def _parts(table: str) -> list[str]:
    """The partitions of a table, those that were taken out of it included."""
    names = op.get_bind().scalars(
        sa.text(
            "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace "
            "AND relkind = 'r' AND relname ~ :form ORDER BY relname"
        ),
        {"form": f"^{table}_(p[0-9]{{6}}(_retired)?|default)$"},
    )
    return [str(name) for name in names]


def _walled() -> list[tuple[str, str]]:
    """Every table, and the one whose walls it has."""
    parts = [(part, table) for table in PARTITIONED for part in _parts(table)]
    return [*((table, table) for table in READ), *parts]


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    for table, like in _walled():
        wall_off(table, read=READ[like], write=WRITE.get(like))


def downgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    for table, like in _walled():
        open_again(table, *READ[like], *WRITE.get(like, {}))
