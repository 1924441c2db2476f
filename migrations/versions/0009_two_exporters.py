"""When an exporter's run was heard again after another run on its node: two of them report for one node

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op


revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

UNIX_MS = sa.BigInteger()


def upgrade() -> None:
    op.add_column("exporter_source", sa.Column("contested_ms", UNIX_MS, nullable=True))


def downgrade() -> None:
    op.drop_column("exporter_source", "contested_ms")
