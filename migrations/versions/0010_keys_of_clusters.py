"""The keys of clusters, by which exporters sign in with their projected ServiceAccount tokens

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.walls import SIGN_IN, wall_off


revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

UNIX_MS = sa.BigInteger()


def upgrade() -> None:
    op.create_table(
        "cluster_trust",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("issuer", sa.String(length=500), nullable=False),
        sa.Column("audience", sa.String(length=500), nullable=False),
        sa.Column("jwks", sa.Text(), nullable=False),
        sa.Column("node_exporter", sa.String(length=320), nullable=False),
        sa.Column("cluster_exporter", sa.String(length=320), nullable=False),
        sa.Column("trusted_at_ms", UNIX_MS, nullable=False),
        sa.Column("trusted_by", sa.String(length=253), nullable=False),
        sa.CheckConstraint(
            "node_exporter <> cluster_exporter", name=op.f("ck_cluster_trust_two_accounts")
        ),
        sa.ForeignKeyConstraint(["cluster"], ["cluster.code"], name="fk_cluster_trust_cluster"),
        sa.PrimaryKeyConstraint("cluster", name="pk_cluster_trust"),
    )
    op.create_index("ix_cluster_trust_issuer", "cluster_trust", ["issuer"])
    wall_off("cluster_trust", read={"sign_in": SIGN_IN})


def downgrade() -> None:
    op.drop_table("cluster_trust")
