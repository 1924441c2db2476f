"""The first tables

Revision ID: 0001
Revises: nothing
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op


revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

LONG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
UNIX_MS = sa.BigInteger()
EXACT = sa.Numeric(38, 17).with_variant(sa.String(60), "sqlite")

# What people changed stays on record: neither the program nor a hand may alter it.
AUDIT_TRIGGERS = tuple(
    f"CREATE TRIGGER audit_log_refuses_{verb} BEFORE {verb.upper()} ON audit_log "
    "BEGIN SELECT RAISE(ABORT, 'audit_log is insert-only'); END"
    for verb in ("update", "delete")
)


def upgrade() -> None:
    op.create_table(
        "allocation_report",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("allocation_id", sa.Uuid(), nullable=False),
        sa.Column("witness", sa.String(length=32), nullable=False),
        sa.Column("pod_uid", sa.String(length=253), nullable=False),
        sa.Column("container", sa.String(length=253), nullable=False),
        sa.Column("device_uuid", sa.String(length=253), nullable=False),
        sa.Column("node_uid", sa.String(length=253), nullable=False),
        sa.Column("node", sa.String(length=253), nullable=False),
        sa.Column("namespace", sa.String(length=253), nullable=False),
        sa.Column("pod", sa.String(length=253), nullable=False),
        sa.Column("vendor", sa.String(length=253), nullable=False),
        sa.Column("model", sa.String(length=253), nullable=False),
        sa.Column("mem_mib", LONG, nullable=False),
        sa.Column("core_percent", LONG, nullable=False),
        sa.Column("mig", sa.String(length=253), nullable=True),
        sa.Column("container_kind", sa.String(length=32), nullable=False),
        sa.Column("tenant_key", sa.String(length=253), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("bound_at_ms", UNIX_MS, nullable=False),
        sa.Column("started_at_ms", UNIX_MS, nullable=True),
        sa.Column("ended_at_ms", UNIX_MS, nullable=True),
        sa.Column("end_reason", sa.String(length=253), nullable=True),
        sa.Column("end_kind", sa.String(length=32), nullable=True),
        sa.Column("first_confirmed_at_ms", UNIX_MS, nullable=False),
        sa.Column("confirmed_at_ms", UNIX_MS, nullable=False),
        sa.Column("ingest_seq", LONG, nullable=False),
        sa.CheckConstraint(
            "container_kind IN ('app', 'sidecar', 'init')",
            name=op.f("ck_allocation_report_container_kind_known"),
        ),
        sa.CheckConstraint("witness IN ('node', 'cluster')", name=op.f("ck_allocation_report_witness_known")),
        sa.CheckConstraint(
            "(ended_at_ms IS NULL) = (end_kind IS NULL)", name=op.f("ck_allocation_report_end_has_kind")
        ),
        sa.CheckConstraint(
            "mem_mib >= 0 AND core_percent >= 0", name=op.f("ck_allocation_report_not_negative")
        ),
        sa.PrimaryKeyConstraint("cluster", "allocation_id", "witness", name="pk_allocation_report"),
    )
    op.create_index(
        "ix_allocation_report_cluster_ingest_seq",
        "allocation_report",
        ["cluster", "ingest_seq"],
        unique=False,
    )
    op.create_index(
        "ix_allocation_report_cluster_node_uid_device_uuid_bound_at_ms",
        "allocation_report",
        ["cluster", "node_uid", "device_uuid", "bound_at_ms"],
        unique=False,
    )

    op.create_table(
        "audit_log",
        sa.Column("seq", LONG, autoincrement=True, nullable=False),
        sa.Column("at_ms", UNIX_MS, nullable=False),
        sa.Column("actor", sa.String(length=253), nullable=False),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("object", sa.String(length=1000), nullable=False),
        sa.Column("after", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_audit_log"),
    )
    op.create_table(
        "billing_account",
        sa.Column("code", sa.String(length=63), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("currency", sa.String(length=3), nullable=True),
        sa.Column("time_zone", sa.String(length=253), nullable=False),
        sa.Column("grace_days", LONG, nullable=False),
        sa.Column("created_at_ms", UNIX_MS, nullable=False),
        sa.CheckConstraint("kind IN ('tenant', 'platform')", name=op.f("ck_billing_account_kind_known")),
        sa.CheckConstraint("grace_days >= 0", name=op.f("ck_billing_account_not_negative")),
        sa.PrimaryKeyConstraint("code", name="pk_billing_account"),
    )
    op.create_table(
        "device_fact",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("hour_ms", UNIX_MS, nullable=False),
        sa.Column("node_uid", sa.String(length=253), nullable=False),
        sa.Column("device_uuid", sa.String(length=253), nullable=False),
        sa.Column("epoch", sa.String(length=253), nullable=False),
        sa.Column("busy_ppm_ms", LONG, nullable=False),
        sa.Column("energy_mj", LONG, nullable=False),
        sa.Column("energy_idle_mj", LONG, nullable=False),
        sa.Column("energy_unattributed_mj", LONG, nullable=False),
        sa.Column("sm_unattributed_ppm_ms", LONG, nullable=False),
        sa.Column("revision", LONG, nullable=False),
        sa.Column("from_ms", UNIX_MS, nullable=False),
        sa.Column("to_ms", UNIX_MS, nullable=False),
        sa.Column("covered_ms", LONG, nullable=False),
        sa.Column("ingest_seq", LONG, nullable=False),
        sa.CheckConstraint("covered_ms <= to_ms - from_ms", name=op.f("ck_device_fact_covered")),
        sa.CheckConstraint(
            "hour_ms <= from_ms AND from_ms < to_ms AND to_ms <= hour_ms + 3600000",
            name=op.f("ck_device_fact_within_hour"),
        ),
        sa.CheckConstraint(
            "revision >= 0 AND covered_ms >= 0 AND busy_ppm_ms >= 0 AND energy_mj >= 0 AND energy_idle_mj >= 0 AND energy_unattributed_mj >= 0 AND sm_unattributed_ppm_ms >= 0",
            name=op.f("ck_device_fact_not_negative"),
        ),
        sa.PrimaryKeyConstraint(
            "cluster", "hour_ms", "node_uid", "device_uuid", "epoch", name="pk_device_fact"
        ),
    )
    op.create_index(
        "ix_device_fact_cluster_ingest_seq", "device_fact", ["cluster", "ingest_seq"], unique=False
    )

    op.create_table(
        "device_hour",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("hour_ms", UNIX_MS, nullable=False),
        sa.Column("node_uid", sa.String(length=253), nullable=False),
        sa.Column("device_uuid", sa.String(length=253), nullable=False),
        sa.Column("node", sa.String(length=253), nullable=False),
        sa.Column("model", sa.String(length=253), nullable=False),
        sa.Column("present_ppm_ms", LONG, nullable=False),
        sa.Column("charged_ppm_ms", LONG, nullable=False),
        sa.Column("idle_ppm_ms", LONG, nullable=False),
        sa.Column("down_ppm_ms", LONG, nullable=False),
        sa.Column("confirmed_ms", LONG, nullable=False),
        sa.CheckConstraint(
            "charged_ppm_ms + idle_ppm_ms + down_ppm_ms = present_ppm_ms", name=op.f("ck_device_hour_closes")
        ),
        sa.CheckConstraint(
            "charged_ppm_ms >= 0 AND idle_ppm_ms >= 0 AND down_ppm_ms >= 0 AND present_ppm_ms >= 0 AND confirmed_ms >= 0",
            name=op.f("ck_device_hour_not_negative"),
        ),
        sa.CheckConstraint("confirmed_ms * 1000000 <= present_ppm_ms", name=op.f("ck_device_hour_confirmed")),
        sa.CheckConstraint("present_ppm_ms <= 3600000000000", name=op.f("ck_device_hour_one_card_hour")),
        sa.PrimaryKeyConstraint("cluster", "hour_ms", "node_uid", "device_uuid", name="pk_device_hour"),
    )
    op.create_table(
        "exporter_source",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("epoch", sa.String(length=253), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.Column("node_uid", sa.String(length=253), nullable=False),
        sa.Column("node", sa.String(length=253), nullable=False),
        sa.Column("version", sa.String(length=253), nullable=False),
        sa.Column("last_seen_ms", UNIX_MS, nullable=False),
        sa.Column("clock_offset_ms", LONG, nullable=False),
        sa.Column("facts_sent", LONG, nullable=False),
        sa.Column("facts_stored", LONG, nullable=False),
        sa.CheckConstraint("role IN ('node', 'cluster')", name=op.f("ck_exporter_source_role_known")),
        sa.PrimaryKeyConstraint("cluster", "epoch", name="pk_exporter_source"),
    )
    op.create_table(
        "ingest_counter",
        sa.Column("id", LONG, autoincrement=False, nullable=False),
        sa.Column("last_seq", LONG, nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_ingest_counter_one_row")),
        sa.PrimaryKeyConstraint("id", name="pk_ingest_counter"),
    )
    op.create_table(
        "node",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("node_uid", sa.String(length=253), nullable=False),
        sa.Column("name", sa.String(length=253), nullable=False),
        sa.Column("named_at_ms", UNIX_MS, nullable=False),
        sa.PrimaryKeyConstraint("cluster", "node_uid", name="pk_node"),
    )
    op.create_table(
        "node_state",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("node_uid", sa.String(length=253), nullable=False),
        sa.Column("from_ms", UNIX_MS, nullable=False),
        sa.Column("to_ms", UNIX_MS, nullable=False),
        sa.Column("node", sa.String(length=253), nullable=False),
        sa.Column("ready", sa.Boolean(), nullable=False),
        sa.Column("heartbeat_at_ms", UNIX_MS, nullable=False),
        sa.Column("ingest_seq", LONG, nullable=False),
        sa.CheckConstraint("from_ms <= to_ms", name=op.f("ck_node_state_interval")),
        sa.PrimaryKeyConstraint("cluster", "node_uid", "from_ms", name="pk_node_state"),
    )
    op.create_index("ix_node_state_cluster_ingest_seq", "node_state", ["cluster", "ingest_seq"], unique=False)

    op.create_table(
        "policy_version",
        sa.Column("id", LONG, autoincrement=True, nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("value", sa.String(length=32), nullable=False),
        sa.Column("valid_from_ms", UNIX_MS, nullable=False),
        sa.Column("valid_to_ms", UNIX_MS, nullable=True),
        sa.Column("recorded_at_ms", UNIX_MS, nullable=False),
        sa.Column("recorded_by", sa.String(length=253), nullable=False),
        sa.Column("supersedes_id", LONG, nullable=True),
        sa.Column("superseded_at_ms", UNIX_MS, nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "kind IN ('share', 'idle', 'energy', 'unallocated')", name=op.f("ck_policy_version_kind_known")
        ),
        sa.CheckConstraint(
            "valid_to_ms IS NULL OR valid_from_ms < valid_to_ms", name=op.f("ck_policy_version_validity")
        ),
        sa.ForeignKeyConstraint(
            ["supersedes_id"], ["policy_version.id"], name="fk_policy_version_supersedes_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_policy_version"),
    )
    op.create_table(
        "presence_report",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("node_uid", sa.String(length=253), nullable=False),
        sa.Column("device_uuid", sa.String(length=253), nullable=False),
        sa.Column("witness", sa.String(length=32), nullable=False),
        sa.Column("from_ms", UNIX_MS, nullable=False),
        sa.Column("to_ms", UNIX_MS, nullable=False),
        sa.Column("node", sa.String(length=253), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.String(length=253), nullable=True),
        sa.Column("model", sa.String(length=253), nullable=False),
        sa.Column("vendor", sa.String(length=253), nullable=False),
        sa.Column("registered_mib", LONG, nullable=False),
        sa.Column("physical_mib", LONG, nullable=True),
        sa.Column("slots", LONG, nullable=False),
        sa.Column("ingest_seq", LONG, nullable=False),
        sa.CheckConstraint("state IN ('healthy', 'down')", name=op.f("ck_presence_report_state_known")),
        sa.CheckConstraint("witness IN ('node', 'cluster')", name=op.f("ck_presence_report_witness_known")),
        sa.CheckConstraint("from_ms <= to_ms", name=op.f("ck_presence_report_interval")),
        sa.CheckConstraint(
            "registered_mib >= 0 AND slots >= 0", name=op.f("ck_presence_report_not_negative")
        ),
        sa.PrimaryKeyConstraint(
            "cluster", "node_uid", "device_uuid", "witness", "from_ms", name="pk_presence_report"
        ),
    )
    op.create_index(
        "ix_presence_report_cluster_ingest_seq", "presence_report", ["cluster", "ingest_seq"], unique=False
    )

    op.create_table(
        "price_book",
        sa.Column("code", sa.String(length=63), nullable=False),
        sa.Column("created_at_ms", UNIX_MS, nullable=False),
        sa.PrimaryKeyConstraint("code", name="pk_price_book"),
    )
    op.create_table(
        "quarantine",
        sa.Column("id", LONG, autoincrement=True, nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("fact", sa.Text(), nullable=False),
        sa.Column("fact_sha256", sa.String(length=64), nullable=False),
        sa.Column("at_ms", UNIX_MS, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_quarantine"),
        sa.UniqueConstraint(
            "cluster", "reason", "fact_sha256", name="uq_quarantine_cluster_reason_fact_sha256"
        ),
    )
    op.create_table(
        "rating_mark",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("node_uid", sa.String(length=253), nullable=False),
        sa.Column("device_uuid", sa.String(length=253), nullable=False),
        sa.Column("day_ms", UNIX_MS, nullable=False),
        sa.Column("ingest_seq", LONG, nullable=False),
        sa.PrimaryKeyConstraint("cluster", "node_uid", "device_uuid", "day_ms", name="pk_rating_mark"),
    )
    op.create_table(
        "rating_state",
        sa.Column("id", LONG, autoincrement=False, nullable=False),
        sa.Column("rated_as_of_ms", UNIX_MS, nullable=False),
        sa.Column("grace_ms", LONG, nullable=False),
        sa.Column("rated_seq", LONG, nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_rating_state_one_row")),
        sa.PrimaryKeyConstraint("id", name="pk_rating_state"),
    )
    op.create_table(
        "unallocated_fact",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("hour_ms", UNIX_MS, nullable=False),
        sa.Column("pod_uid", sa.String(length=253), nullable=False),
        sa.Column("container", sa.String(length=253), nullable=False),
        sa.Column("device_uuid", sa.String(length=253), nullable=False),
        sa.Column("epoch", sa.String(length=253), nullable=False),
        sa.Column("namespace", sa.String(length=253), nullable=False),
        sa.Column("pod", sa.String(length=253), nullable=False),
        sa.Column("tenant_key", sa.String(length=253), nullable=False),
        sa.Column("node_uid", sa.String(length=253), nullable=False),
        sa.Column("unknown_ms", LONG, nullable=False),
        sa.Column("sm_ppm_ms", LONG, nullable=False),
        sa.Column("sm_down_ppm_ms", LONG, nullable=False),
        sa.Column("mem_used_mib_ms", LONG, nullable=False),
        sa.Column("mem_peak_mib", LONG, nullable=False),
        sa.Column("energy_active_mj", LONG, nullable=False),
        sa.Column("blocked_ms", LONG, nullable=False),
        sa.Column("over_limit_ms", LONG, nullable=False),
        sa.Column("source", sa.String(length=32), nullable=False),
        sa.Column("revision", LONG, nullable=False),
        sa.Column("from_ms", UNIX_MS, nullable=False),
        sa.Column("to_ms", UNIX_MS, nullable=False),
        sa.Column("covered_ms", LONG, nullable=False),
        sa.Column("ingest_seq", LONG, nullable=False),
        sa.CheckConstraint(
            "covered_ms + unknown_ms <= to_ms - from_ms", name=op.f("ck_unallocated_fact_covered")
        ),
        sa.CheckConstraint(
            "hour_ms <= from_ms AND from_ms < to_ms AND to_ms <= hour_ms + 3600000",
            name=op.f("ck_unallocated_fact_within_hour"),
        ),
        sa.CheckConstraint(
            "revision >= 0 AND covered_ms >= 0 AND unknown_ms >= 0 AND sm_ppm_ms >= 0 AND sm_down_ppm_ms >= 0 AND mem_used_mib_ms >= 0 AND mem_peak_mib >= 0 AND energy_active_mj >= 0 AND blocked_ms >= 0 AND over_limit_ms >= 0",
            name=op.f("ck_unallocated_fact_not_negative"),
        ),
        sa.PrimaryKeyConstraint(
            "cluster", "hour_ms", "pod_uid", "container", "device_uuid", "epoch", name="pk_unallocated_fact"
        ),
    )
    op.create_index(
        "ix_unallocated_fact_cluster_ingest_seq", "unallocated_fact", ["cluster", "ingest_seq"], unique=False
    )

    op.create_table(
        "usage_fact",
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("hour_ms", UNIX_MS, nullable=False),
        sa.Column("allocation_id", sa.Uuid(), nullable=False),
        sa.Column("epoch", sa.String(length=253), nullable=False),
        sa.Column("pod_uid", sa.String(length=253), nullable=False),
        sa.Column("container", sa.String(length=253), nullable=False),
        sa.Column("device_uuid", sa.String(length=253), nullable=False),
        sa.Column("node_uid", sa.String(length=253), nullable=False),
        sa.Column("unknown_ms", LONG, nullable=False),
        sa.Column("sm_ppm_ms", LONG, nullable=False),
        sa.Column("sm_down_ppm_ms", LONG, nullable=False),
        sa.Column("mem_used_mib_ms", LONG, nullable=False),
        sa.Column("mem_peak_mib", LONG, nullable=False),
        sa.Column("energy_active_mj", LONG, nullable=False),
        sa.Column("blocked_ms", LONG, nullable=False),
        sa.Column("over_limit_ms", LONG, nullable=False),
        sa.Column("source", sa.String(length=32), nullable=False),
        sa.Column("revision", LONG, nullable=False),
        sa.Column("from_ms", UNIX_MS, nullable=False),
        sa.Column("to_ms", UNIX_MS, nullable=False),
        sa.Column("covered_ms", LONG, nullable=False),
        sa.Column("ingest_seq", LONG, nullable=False),
        sa.CheckConstraint("covered_ms + unknown_ms <= to_ms - from_ms", name=op.f("ck_usage_fact_covered")),
        sa.CheckConstraint(
            "hour_ms <= from_ms AND from_ms < to_ms AND to_ms <= hour_ms + 3600000",
            name=op.f("ck_usage_fact_within_hour"),
        ),
        sa.CheckConstraint(
            "revision >= 0 AND covered_ms >= 0 AND unknown_ms >= 0 AND sm_ppm_ms >= 0 AND sm_down_ppm_ms >= 0 AND mem_used_mib_ms >= 0 AND mem_peak_mib >= 0 AND energy_active_mj >= 0 AND blocked_ms >= 0 AND over_limit_ms >= 0",
            name=op.f("ck_usage_fact_not_negative"),
        ),
        sa.PrimaryKeyConstraint("cluster", "hour_ms", "allocation_id", "epoch", name="pk_usage_fact"),
    )
    op.create_index(
        "ix_usage_fact_cluster_device_uuid_hour_ms",
        "usage_fact",
        ["cluster", "device_uuid", "hour_ms"],
        unique=False,
    )
    op.create_index("ix_usage_fact_cluster_ingest_seq", "usage_fact", ["cluster", "ingest_seq"], unique=False)

    op.create_table(
        "billing_period",
        sa.Column("id", LONG, autoincrement=True, nullable=False),
        sa.Column("account", sa.String(length=63), nullable=False),
        sa.Column("starts_at_ms", UNIX_MS, nullable=False),
        sa.Column("ends_at_ms", UNIX_MS, nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.CheckConstraint(
            "state IN ('open', 'closing', 'closed')", name=op.f("ck_billing_period_state_known")
        ),
        sa.CheckConstraint("starts_at_ms < ends_at_ms", name=op.f("ck_billing_period_interval")),
        sa.ForeignKeyConstraint(["account"], ["billing_account.code"], name="fk_billing_period_account"),
        sa.PrimaryKeyConstraint("id", name="pk_billing_period"),
        sa.UniqueConstraint("account", "starts_at_ms", name="uq_billing_period_account_starts_at_ms"),
    )
    op.create_table(
        "cluster",
        sa.Column("code", sa.String(length=63), nullable=False),
        sa.Column("kube_system_uid", sa.String(length=253), nullable=True),
        sa.Column("account", sa.String(length=63), nullable=False),
        sa.Column("platform_account", sa.String(length=63), nullable=False),
        sa.Column("created_at_ms", UNIX_MS, nullable=False),
        sa.Column("retired_at_ms", UNIX_MS, nullable=True),
        sa.ForeignKeyConstraint(["account"], ["billing_account.code"], name="fk_cluster_account"),
        sa.ForeignKeyConstraint(
            ["platform_account"], ["billing_account.code"], name="fk_cluster_platform_account"
        ),
        sa.PrimaryKeyConstraint("code", name="pk_cluster"),
    )
    op.create_table(
        "price_version",
        sa.Column("id", LONG, autoincrement=True, nullable=False),
        sa.Column("book", sa.String(length=63), nullable=False),
        sa.Column("sku", sa.String(length=32), nullable=False),
        sa.Column("model", sa.String(length=253), nullable=False),
        sa.Column("currency", sa.String(length=3), nullable=False),
        sa.Column("unit", sa.String(length=32), nullable=False),
        sa.Column("unit_price", EXACT, nullable=False),
        sa.Column("valid_from_ms", UNIX_MS, nullable=False),
        sa.Column("valid_to_ms", UNIX_MS, nullable=True),
        sa.Column("recorded_at_ms", UNIX_MS, nullable=False),
        sa.Column("recorded_by", sa.String(length=253), nullable=False),
        sa.Column("supersedes_id", LONG, nullable=True),
        sa.Column("superseded_at_ms", UNIX_MS, nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "valid_to_ms IS NULL OR valid_from_ms < valid_to_ms", name=op.f("ck_price_version_validity")
        ),
        sa.ForeignKeyConstraint(["book"], ["price_book.code"], name="fk_price_version_book"),
        sa.ForeignKeyConstraint(
            ["supersedes_id"], ["price_version.id"], name="fk_price_version_supersedes_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_price_version"),
    )
    op.create_index(
        "uq_price_version_live_start",
        "price_version",
        ["book", "sku", "model", "currency", "valid_from_ms"],
        unique=True,
        sqlite_where=sa.text("superseded_at_ms IS NULL"),
        postgresql_where=sa.text("superseded_at_ms IS NULL"),
    )

    op.create_table(
        "tenant",
        sa.Column("id", LONG, autoincrement=True, nullable=False),
        sa.Column("path", sa.String(length=1000), nullable=False),
        sa.Column("code", sa.String(length=253), nullable=False),
        sa.Column("parent_id", LONG, nullable=True),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("account", sa.String(length=63), nullable=False),
        sa.Column("is_unmapped", sa.Boolean(), nullable=False),
        sa.Column("created_at_ms", UNIX_MS, nullable=False),
        sa.CheckConstraint("kind IN ('node', 'leaf', 'builtin')", name=op.f("ck_tenant_kind_known")),
        sa.ForeignKeyConstraint(["account"], ["billing_account.code"], name="fk_tenant_account"),
        sa.ForeignKeyConstraint(["parent_id"], ["tenant.id"], name="fk_tenant_parent_id"),
        sa.PrimaryKeyConstraint("id", name="pk_tenant"),
        sa.UniqueConstraint("path", name="uq_tenant_path"),
    )
    op.create_table(
        "api_token",
        sa.Column("id", LONG, autoincrement=True, nullable=False),
        sa.Column("prefix", sa.String(length=32), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=True),
        sa.Column("node_uid", sa.String(length=253), nullable=True),
        sa.Column("tenant_path", sa.String(length=1000), nullable=True),
        sa.Column("note", sa.String(length=253), nullable=False),
        sa.Column("created_at_ms", UNIX_MS, nullable=False),
        sa.Column("expires_at_ms", UNIX_MS, nullable=True),
        sa.Column("revoked_at_ms", UNIX_MS, nullable=True),
        sa.CheckConstraint(
            "(role = 'reporter') = (cluster IS NOT NULL)", name=op.f("ck_api_token_reporter_has_cluster")
        ),
        sa.CheckConstraint(
            "(role = 'tenant') = (tenant_path IS NOT NULL)", name=op.f("ck_api_token_tenant_has_path")
        ),
        sa.CheckConstraint(
            "node_uid IS NULL OR role = 'reporter'", name=op.f("ck_api_token_node_is_reporter")
        ),
        sa.CheckConstraint(
            "role IN ('reporter', 'tenant', 'operator', 'admin')", name=op.f("ck_api_token_role_known")
        ),
        sa.ForeignKeyConstraint(["cluster"], ["cluster.code"], name="fk_api_token_cluster"),
        sa.PrimaryKeyConstraint("id", name="pk_api_token"),
        sa.UniqueConstraint("prefix", name="uq_api_token_prefix"),
    )
    op.create_table(
        "ledger_line",
        sa.Column("id", LONG, autoincrement=True, nullable=False),
        sa.Column("account", sa.String(length=63), nullable=False),
        sa.Column("period_id", LONG, nullable=False),
        sa.Column("tenant_id", LONG, nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("sku", sa.String(length=32), nullable=False),
        sa.Column("resource_key", sa.String(length=600), nullable=False),
        sa.Column("day_ms", UNIX_MS, nullable=False),
        sa.Column("charge_from_ms", UNIX_MS, nullable=False),
        sa.Column("charge_to_ms", UNIX_MS, nullable=False),
        sa.Column("cluster", sa.String(length=63), nullable=False),
        sa.Column("node_uid", sa.String(length=253), nullable=False),
        sa.Column("node", sa.String(length=253), nullable=False),
        sa.Column("device_uuid", sa.String(length=253), nullable=False),
        sa.Column("model", sa.String(length=253), nullable=False),
        sa.Column("namespace", sa.String(length=253), nullable=False),
        sa.Column("pod", sa.String(length=253), nullable=False),
        sa.Column("container", sa.String(length=253), nullable=False),
        sa.Column("own_quantity", LONG, nullable=False),
        sa.Column("quantity", LONG, nullable=False),
        sa.Column("held_not_running_quantity", LONG, nullable=False),
        sa.Column("degraded_quantity", LONG, nullable=False),
        sa.Column("unit", sa.String(length=32), nullable=False),
        sa.Column("currency", sa.String(length=3), nullable=True),
        sa.Column("price_version_id", LONG, nullable=True),
        sa.Column("policy_version_id", LONG, nullable=True),
        sa.Column("unit_price", EXACT, nullable=True),
        sa.Column("amount", EXACT, nullable=True),
        sa.Column("revision", LONG, nullable=False),
        sa.CheckConstraint(
            "kind IN ('usage', 'energy', 'idle', 'unallocated')", name=op.f("ck_ledger_line_kind_known")
        ),
        sa.CheckConstraint("charge_from_ms < charge_to_ms", name=op.f("ck_ledger_line_interval")),
        sa.CheckConstraint(
            "own_quantity >= 0 AND quantity >= 0 AND held_not_running_quantity >= 0 AND degraded_quantity >= 0 AND revision >= 0",
            name=op.f("ck_ledger_line_not_negative"),
        ),
        sa.ForeignKeyConstraint(["account"], ["billing_account.code"], name="fk_ledger_line_account"),
        sa.ForeignKeyConstraint(["period_id"], ["billing_period.id"], name="fk_ledger_line_period_id"),
        sa.ForeignKeyConstraint(
            ["policy_version_id"], ["policy_version.id"], name="fk_ledger_line_policy_version_id"
        ),
        sa.ForeignKeyConstraint(
            ["price_version_id"], ["price_version.id"], name="fk_ledger_line_price_version_id"
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenant.id"], name="fk_ledger_line_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_ledger_line"),
        sa.UniqueConstraint(
            "account",
            "period_id",
            "tenant_id",
            "kind",
            "sku",
            "resource_key",
            "charge_from_ms",
            "revision",
            name="uq_ledger_line_grain",
        ),
    )
    op.create_index(
        "ix_ledger_line_cluster_node_uid_device_uuid_day_ms",
        "ledger_line",
        ["cluster", "node_uid", "device_uuid", "day_ms"],
        unique=False,
    )
    op.create_index("ix_ledger_line_tenant_id_day_ms", "ledger_line", ["tenant_id", "day_ms"], unique=False)

    for trigger in AUDIT_TRIGGERS:
        op.execute(trigger)


def downgrade() -> None:
    op.drop_index("ix_ledger_line_tenant_id_day_ms", "ledger_line")
    op.drop_index("ix_ledger_line_cluster_node_uid_device_uuid_day_ms", "ledger_line")

    op.drop_table("ledger_line")
    op.drop_table("api_token")
    op.drop_table("tenant")
    op.drop_index(
        "uq_price_version_live_start",
        "price_version",
        sqlite_where=sa.text("superseded_at_ms IS NULL"),
        postgresql_where=sa.text("superseded_at_ms IS NULL"),
    )

    op.drop_table("price_version")
    op.drop_table("cluster")
    op.drop_table("billing_period")
    op.drop_index("ix_usage_fact_cluster_ingest_seq", "usage_fact")
    op.drop_index("ix_usage_fact_cluster_device_uuid_hour_ms", "usage_fact")

    op.drop_table("usage_fact")
    op.drop_index("ix_unallocated_fact_cluster_ingest_seq", "unallocated_fact")

    op.drop_table("unallocated_fact")
    op.drop_table("rating_state")
    op.drop_table("rating_mark")
    op.drop_table("quarantine")
    op.drop_table("price_book")
    op.drop_index("ix_presence_report_cluster_ingest_seq", "presence_report")

    op.drop_table("presence_report")
    op.drop_table("policy_version")
    op.drop_index("ix_node_state_cluster_ingest_seq", "node_state")

    op.drop_table("node_state")
    op.drop_table("node")
    op.drop_table("ingest_counter")
    op.drop_table("exporter_source")
    op.drop_table("device_hour")
    op.drop_index("ix_device_fact_cluster_ingest_seq", "device_fact")

    op.drop_table("device_fact")
    op.drop_table("billing_account")
    op.drop_table("audit_log")
    op.drop_index("ix_allocation_report_cluster_node_uid_device_uuid_bound_at_ms", "allocation_report")
    op.drop_index("ix_allocation_report_cluster_ingest_seq", "allocation_report")

    op.drop_table("allocation_report")
