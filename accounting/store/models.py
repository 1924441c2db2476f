"""Every table under one name, so that whoever needs the whole model imports one module."""

from __future__ import annotations

from accounting.store.access_tables import ApiToken, AuditLog, ClusterTrust, KeptAnswer, WebSession
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
    TenantDiscount,
)
from accounting.store.budget_tables import Budget, BudgetCrossing
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
from accounting.store.rollup_tables import RollupDay, RollupHour
from accounting.store.seal_tables import Correction, IssuedStatement, LateDay, SealedUse, StatementNumber
from accounting.store.tenant_tables import Tenant, TenantMove, TenantRule

__all__ = [
    "AllocationReport",
    "ApiToken",
    "AuditLog",
    "Base",
    "BillingAccount",
    "BillingPeriod",
    "Budget",
    "BudgetCrossing",
    "Cluster",
    "ClusterTrust",
    "Correction",
    "DeviceEnergy",
    "DeviceFact",
    "DeviceHour",
    "ExporterSource",
    "IngestCounter",
    "IssuedStatement",
    "KeptAnswer",
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
    "RollupDay",
    "RollupHour",
    "SealedUse",
    "StatementNumber",
    "Tenant",
    "TenantDiscount",
    "TenantMove",
    "TenantRule",
    "UnallocatedFact",
    "UsageFact",
    "WebSession",
]
