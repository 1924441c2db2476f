"""Answers to requests that carried an idempotency key, so that a retry gets the same one

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op


revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
UNIX_MS = sa.BigInteger()


def upgrade() -> None:
    op.create_table(
        "kept_answer",
        sa.Column("asked_by", sa.String(length=253), nullable=False),
        sa.Column("idempotency_key", sa.String(length=253), nullable=False),
        sa.Column("request_sha256", sa.String(length=64), nullable=False),
        sa.Column("status", LONG, nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("answered_at_ms", UNIX_MS, nullable=False),
        sa.PrimaryKeyConstraint("asked_by", "idempotency_key", name="pk_kept_answer"),
    )
    op.create_index("ix_kept_answer_answered_at_ms", "kept_answer", ["answered_at_ms"])


def downgrade() -> None:
    op.drop_table("kept_answer")
