"""Sessions of people who signed in to the web page, known by the hash of their cookie

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from migrations.walls import OF, SIGN_IN, wall_off


revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

UNIX_MS = sa.BigInteger()


def upgrade() -> None:
    op.create_table(
        "web_session",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("token_prefix", sa.String(length=32), nullable=True),
        sa.Column("person", sa.String(length=253), nullable=True),
        sa.Column("role", sa.String(length=32), nullable=True),
        sa.Column("tenant_path", sa.String(length=1000), nullable=True),
        sa.Column("began_at_ms", UNIX_MS, nullable=False),
        sa.Column("seen_at_ms", UNIX_MS, nullable=False),
        sa.Column("expires_at_ms", UNIX_MS, nullable=False),
        sa.CheckConstraint(
            "role IN ('tenant', 'operator', 'admin')", name=op.f("ck_web_session_role_known")
        ),
        sa.CheckConstraint(
            "(token_prefix IS NULL) = (person IS NOT NULL) AND (person IS NULL) = (role IS NULL)",
            name=op.f("ck_web_session_token_or_person"),
        ),
        sa.CheckConstraint(
            "(tenant_path IS NOT NULL) = (role IS NOT NULL AND role = 'tenant')",
            name=op.f("ck_web_session_tenant_has_path"),
        ),
        sa.ForeignKeyConstraint(
            ["token_prefix"], ["api_token.prefix"], name="fk_web_session_token_prefix"
        ),
        sa.PrimaryKeyConstraint("sha256", name="pk_web_session"),
    )
    op.create_index("ix_web_session_expires_at_ms", "web_session", ["expires_at_ms"])
    wall_off("web_session", read={"sign_in": f"{SIGN_IN} AND sha256 = {OF}"})


def downgrade() -> None:
    op.drop_table("web_session")
