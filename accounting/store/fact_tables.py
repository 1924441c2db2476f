"""Tables of facts, as reported: what each witness said, merged only within one natural key.

No foreign key leads from here to anywhere: facts arrive in any order. Columns carry the names of the
fields in `contract/facts.py`, so that a row and a fact translate one to one. Every key begins with the
cluster. `ingest_seq` is the number of the request that last changed the row.

Source: `reference/ledger.md §5, §7`.
"""

from __future__ import annotations

import uuid

from sqlalchemy import CheckConstraint, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from accounting.store.base import Base, Code, Ms, Name, OptionalMs, Word, not_negative, one_of


class AllocationReport(Base):
    """What one witness knows of one slice."""

    __tablename__ = "allocation_report"
    __table_args__ = (
        one_of("witness", "node", "cluster"),
        one_of("container_kind", "app", "sidecar", "init"),
        CheckConstraint("(ended_at_ms IS NULL) = (end_kind IS NULL)", name="end_has_kind"),
        not_negative("mem_mib", "core_percent"),
        Index(None, "cluster", "node_uid", "device_uuid", "bound_at_ms"),
        Index(None, "cluster", "ingest_seq"),
    )

    cluster: Mapped[Code] = mapped_column(primary_key=True)
    allocation_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    witness: Mapped[Word] = mapped_column(primary_key=True)
    pod_uid: Mapped[Name]
    container: Mapped[Name]
    device_uuid: Mapped[Name]
    node_uid: Mapped[Name]
    node: Mapped[Name]
    namespace: Mapped[Name]
    pod: Mapped[Name]
    vendor: Mapped[Name]
    model: Mapped[Name]
    mem_mib: Mapped[int]
    core_percent: Mapped[int]
    mig: Mapped[str | None]
    container_kind: Mapped[Word]
    tenant_key: Mapped[Name]
    labels: Mapped[str] = mapped_column(Text)
    """JSON with sorted keys."""
    bound_at_ms: Mapped[Ms]
    started_at_ms: Mapped[OptionalMs]
    ended_at_ms: Mapped[OptionalMs]
    end_reason: Mapped[str | None]
    end_kind: Mapped[str | None] = mapped_column(String(32))
    first_confirmed_at_ms: Mapped[Ms]
    confirmed_at_ms: Mapped[Ms]
    ingest_seq: Mapped[int]


class PresenceReport(Base):
    """A device was there, in one state and size, from `from_ms` to `to_ms`, one witness says."""

    __tablename__ = "presence_report"
    __table_args__ = (
        one_of("witness", "node", "cluster"),
        one_of("state", "healthy", "down"),
        CheckConstraint("from_ms <= to_ms", name="interval"),
        not_negative("registered_mib", "slots"),
        Index(None, "cluster", "ingest_seq"),
    )

    cluster: Mapped[Code] = mapped_column(primary_key=True)
    node_uid: Mapped[Name] = mapped_column(primary_key=True)
    device_uuid: Mapped[Name] = mapped_column(primary_key=True)
    witness: Mapped[Word] = mapped_column(primary_key=True)
    from_ms: Mapped[Ms] = mapped_column(primary_key=True)
    to_ms: Mapped[Ms]
    node: Mapped[Name]
    state: Mapped[Word]
    reason: Mapped[str | None]
    model: Mapped[Name]
    vendor: Mapped[Name]
    registered_mib: Mapped[int]
    physical_mib: Mapped[int | None]
    slots: Mapped[int]
    ingest_seq: Mapped[int]


class NodeState(Base):
    """A Node was Ready, or not, from `from_ms` to `to_ms`."""

    __tablename__ = "node_state"
    __table_args__ = (
        CheckConstraint("from_ms <= to_ms", name="interval"),
        Index(None, "cluster", "ingest_seq"),
    )

    cluster: Mapped[Code] = mapped_column(primary_key=True)
    node_uid: Mapped[Name] = mapped_column(primary_key=True)
    from_ms: Mapped[Ms] = mapped_column(primary_key=True)
    to_ms: Mapped[Ms]
    node: Mapped[Name]
    ready: Mapped[bool]
    heartbeat_at_ms: Mapped[Ms]
    ingest_seq: Mapped[int]


class _Hour:
    """What every measurement within a UTC hour has.

    The sort order puts cluster and hour first in every table and its key, so that inserts of a cluster
    touch the newest pages only.
    """

    cluster: Mapped[Code] = mapped_column(primary_key=True, sort_order=-4)
    hour_ms: Mapped[Ms] = mapped_column(primary_key=True, sort_order=-3)
    epoch: Mapped[Name] = mapped_column(primary_key=True, sort_order=-1)
    revision: Mapped[int]
    from_ms: Mapped[Ms]
    to_ms: Mapped[Ms]
    covered_ms: Mapped[int]
    ingest_seq: Mapped[int]


class _ContainerHour(_Hour):
    """What a container used of a device in an hour."""

    node_uid: Mapped[Name]
    unknown_ms: Mapped[int]
    sm_ppm_ms: Mapped[int]
    sm_down_ppm_ms: Mapped[int]
    mem_used_mib_ms: Mapped[int]
    mem_peak_mib: Mapped[int]
    energy_active_mj: Mapped[int]
    blocked_ms: Mapped[int]
    over_limit_ms: Mapped[int]
    source: Mapped[Word]


_HOUR_CHECK = "hour_ms <= from_ms AND from_ms < to_ms AND to_ms <= hour_ms + 3600000"
_USE_COLUMNS = (
    "revision",
    "covered_ms",
    "unknown_ms",
    "sm_ppm_ms",
    "sm_down_ppm_ms",
    "mem_used_mib_ms",
    "mem_peak_mib",
    "energy_active_mj",
    "blocked_ms",
    "over_limit_ms",
)


class UsageFact(_ContainerHour, Base):
    """What a slice used in an hour, one epoch says: its highest revision."""

    __tablename__ = "usage_fact"
    __table_args__ = (
        CheckConstraint(_HOUR_CHECK, name="within_hour"),
        CheckConstraint("covered_ms + unknown_ms <= to_ms - from_ms", name="covered"),
        not_negative(*_USE_COLUMNS),
        Index(None, "cluster", "device_uuid", "hour_ms"),
        Index(None, "cluster", "ingest_seq"),
    )

    allocation_id: Mapped[uuid.UUID] = mapped_column(primary_key=True, sort_order=-2)
    pod_uid: Mapped[Name]
    container: Mapped[Name]
    device_uuid: Mapped[Name]


class UnallocatedFact(_ContainerHour, Base):
    """Use by a known pod that holds no allocation on the device."""

    __tablename__ = "unallocated_fact"
    __table_args__ = (
        CheckConstraint(_HOUR_CHECK, name="within_hour"),
        CheckConstraint("covered_ms + unknown_ms <= to_ms - from_ms", name="covered"),
        not_negative(*_USE_COLUMNS),
        Index(None, "cluster", "device_uuid", "hour_ms"),
        Index(None, "cluster", "ingest_seq"),
    )

    pod_uid: Mapped[Name] = mapped_column(primary_key=True, sort_order=-2)
    container: Mapped[Name] = mapped_column(primary_key=True, sort_order=-2)
    device_uuid: Mapped[Name] = mapped_column(primary_key=True, sort_order=-2)
    namespace: Mapped[Name]
    pod: Mapped[Name]
    tenant_key: Mapped[Name]


class DeviceFact(_Hour, Base):
    """What a whole device did in an hour, one epoch says."""

    __tablename__ = "device_fact"
    __table_args__ = (
        CheckConstraint(_HOUR_CHECK, name="within_hour"),
        CheckConstraint("covered_ms <= to_ms - from_ms", name="covered"),
        not_negative(
            "revision",
            "covered_ms",
            "busy_ppm_ms",
            "energy_mj",
            "energy_idle_mj",
            "energy_unattributed_mj",
            "sm_unattributed_ppm_ms",
        ),
        Index(None, "cluster", "device_uuid", "hour_ms"),
        Index(None, "cluster", "ingest_seq"),
    )

    node_uid: Mapped[Name] = mapped_column(primary_key=True, sort_order=-2)
    device_uuid: Mapped[Name] = mapped_column(primary_key=True, sort_order=-2)
    busy_ppm_ms: Mapped[int]
    energy_mj: Mapped[int]
    energy_idle_mj: Mapped[int]
    energy_unattributed_mj: Mapped[int]
    sm_unattributed_ppm_ms: Mapped[int]


class Node(Base):
    """A node by its UID, with the name that was seen last."""

    __tablename__ = "node"

    cluster: Mapped[Code] = mapped_column(primary_key=True)
    node_uid: Mapped[Name] = mapped_column(primary_key=True)
    name: Mapped[Name]
    named_at_ms: Mapped[Ms]


class ExporterSource(Base):
    """One run of an exporter, as its requests show it."""

    __tablename__ = "exporter_source"
    __table_args__ = (one_of("role", "node", "cluster"),)

    cluster: Mapped[Code] = mapped_column(primary_key=True)
    epoch: Mapped[Name] = mapped_column(primary_key=True)
    role: Mapped[Word]
    node_uid: Mapped[Name]
    """Empty on the cluster role."""
    node: Mapped[Name]
    version: Mapped[Name]
    last_seen_ms: Mapped[Ms]
    clock_offset_ms: Mapped[int]
    """The exporter's clock less ours."""
    facts_sent: Mapped[int]
    facts_stored: Mapped[int]
    contested_ms: Mapped[OptionalMs]
    """When it was heard again after another run on its node: only two that run at once do that."""


class Quarantine(Base):
    """A fact that was refused, or lost against another of its key and revision; kept once."""

    __tablename__ = "quarantine"
    __table_args__ = (UniqueConstraint("cluster", "reason", "fact_sha256"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    cluster: Mapped[Code]
    """The cluster of the token that sent it."""
    reason: Mapped[Word]
    detail: Mapped[str] = mapped_column(Text)
    fact: Mapped[str] = mapped_column(Text)
    fact_sha256: Mapped[str] = mapped_column(String(64))
    at_ms: Mapped[Ms]


class IngestCounter(Base):
    """The number of the last request that changed anything: one row."""

    __tablename__ = "ingest_counter"
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    last_seq: Mapped[int]


class RatingMark(Base):
    """A UTC day of a device that facts touched since it was rated."""

    __tablename__ = "rating_mark"

    cluster: Mapped[Code] = mapped_column(primary_key=True)
    node_uid: Mapped[Name] = mapped_column(primary_key=True)
    device_uuid: Mapped[Name] = mapped_column(primary_key=True)
    day_ms: Mapped[Ms] = mapped_column(primary_key=True)
    ingest_seq: Mapped[int]
    """The request that touched it last: a mark is deleted only up to the number that was rated."""
