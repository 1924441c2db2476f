"""Every table under one name, so that whoever needs the whole model imports one module."""

from __future__ import annotations

from accounting.store.access_tables import ApiToken, AuditLog
from accounting.store.base import Base
from accounting.store.book_tables import (
    BillingAccount,
    BillingPeriod,
    Cluster,
    DeviceEnergy,
    DeviceHour,
    LedgerLine,
    PolicyVersion,
    PriceBook,
    PriceVersion,
    RatingState,
    Tenant,
    TenantDiscount,
)
from accounting.store.fact_tables import (
    AllocationReport,
    DeviceFact,
    ExporterSource,
    IngestCounter,
    Node,
    NodeState,
    PresenceReport,
    Quarantine,
    RatingMark,
    UnallocatedFact,
    UsageFact,
)
from accounting.store.seal_tables import Correction, IssuedStatement, LateDay, SealedUse, StatementNumber

__all__ = [
    "AllocationReport",
    "ApiToken",
    "AuditLog",
    "Base",
    "BillingAccount",
    "BillingPeriod",
    "Cluster",
    "Correction",
    "DeviceEnergy",
    "DeviceFact",
    "DeviceHour",
    "ExporterSource",
    "IngestCounter",
    "IssuedStatement",
    "LateDay",
    "LedgerLine",
    "Node",
    "NodeState",
    "PolicyVersion",
    "PresenceReport",
    "PriceBook",
    "PriceVersion",
    "Quarantine",
    "RatingMark",
    "RatingState",
    "SealedUse",
    "StatementNumber",
    "Tenant",
    "TenantDiscount",
    "UnallocatedFact",
    "UsageFact",
]
