"""Lines found by their period and day, so that what asks for one month does not read all months

Lines of a month lie together, since they are written together: on PostgreSQL a block range index, of some
kilobytes and of no weight for writers, leads to them.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

from alembic import op


revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_ledger_line_period_id_day_ms", "ledger_line", ["period_id", "day_ms"], postgresql_using="brin"
    )


def downgrade() -> None:
    op.drop_index("ix_ledger_line_period_id_day_ms", "ledger_line")
