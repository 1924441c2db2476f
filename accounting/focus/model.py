"""The columns of FOCUS: name, kind, whether null is allowed, and since or until which version.

The column model is a restatement of FOCUS by the FinOps Foundation (CC-BY-4.0). Invariant: a column that
is not here is none of FOCUS, and must begin with `x_`. Source: `reference/focus-mapping.md §1, §3, §5`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Version: TypeAlias = Literal["1.2", "1.4"]
Dataset: TypeAlias = Literal["cost-and-usage", "billing-period", "invoice-detail"]
Level: TypeAlias = Literal["mandatory", "conditional", "recommended"]
Kind: TypeAlias = Literal["text", "cost", "price", "quantity", "instant", "currency", "unit", "json"]

VERSIONS: tuple[Version, ...] = ("1.4", "1.2")
DATASETS: tuple[Dataset, ...] = ("cost-and-usage", "billing-period", "invoice-detail")

NUMBERS = frozenset({"cost", "price", "quantity"})


@dataclass(frozen=True, slots=True)
class FocusColumn:
    """One column.

    Attributes:
        name: As the specification writes it.
        kind: How its values are written.
        is_nullable: Whether it may be empty.
        level: Whether a file must have it.
        allowed: A closed list of values; empty: any.
        versions: In which it exists.
    """

    name: str
    kind: Kind
    is_nullable: bool
    level: Level
    allowed: tuple[str, ...] = ()
    versions: tuple[Version, ...] = VERSIONS


CATEGORIES = ("Usage", "Purchase", "Tax", "Credit", "Adjustment")
SERVICE_CATEGORIES = (
    "AI and Machine Learning",
    "Analytics",
    "Business Applications",
    "Compute",
    "Databases",
    "Developer Tools",
    "Multicloud",
    "Identity",
    "Integration",
    "Internet of Things",
    "Management and Governance",
    "Media",
    "Migration",
    "Mobile",
    "Networking",
    "Security",
    "Storage",
    "Web",
    "Other",
)
_USED = ("Used", "Unused")
_NEW: tuple[Version, ...] = ("1.4",)
_OLD: tuple[Version, ...] = ("1.2",)


def _m(
    name: str,
    kind: Kind = "text",
    *allowed: str,
    null: bool = False,
    versions: tuple[Version, ...] = VERSIONS,
) -> FocusColumn:
    return FocusColumn(name, kind, null, "mandatory", allowed, versions)


def _c(
    name: str, kind: Kind = "text", *allowed: str, null: bool = True, versions: tuple[Version, ...] = VERSIONS
) -> FocusColumn:
    return FocusColumn(name, kind, null, "conditional", allowed, versions)


def _r(
    name: str, kind: Kind = "text", *allowed: str, null: bool = True, versions: tuple[Version, ...] = VERSIONS
) -> FocusColumn:
    return FocusColumn(name, kind, null, "recommended", allowed, versions)


COST_AND_USAGE = (
    _m("BillingAccountId"),
    _m("BillingAccountName", null=True),
    _c("BillingAccountType", null=False),
    _c("SubAccountId"),
    _c("SubAccountName"),
    _c("SubAccountType"),
    _m("BilledCost", "cost"),
    _m("BillingCurrency", "currency"),
    _c("ConsumedQuantity", "quantity"),
    _c("ConsumedUnit", "unit"),
    _m("ContractedCost", "cost"),
    _c("ContractedUnitPrice", "price"),
    _m("EffectiveCost", "cost"),
    _m("ListCost", "cost"),
    _c("ListUnitPrice", "price"),
    _c("PricingCategory", "text", "Standard", "Dynamic", "Committed", "Other"),
    _c("PricingCurrency", "currency", null=False),
    _c("PricingCurrencyContractedUnitPrice", "price"),
    _c("PricingCurrencyEffectiveCost", "cost", null=False),
    _c("PricingCurrencyListUnitPrice", "price"),
    _m("PricingQuantity", "quantity", null=True),
    _m("PricingUnit", "unit", null=True),
    _m("BillingPeriodEnd", "instant"),
    _m("BillingPeriodStart", "instant"),
    _m("ChargePeriodEnd", "instant"),
    _m("ChargePeriodStart", "instant"),
    _m("ChargeCategory", "text", *CATEGORIES),
    _m("ChargeClass", "text", "Correction", null=True),
    _m("ChargeDescription", null=True),
    _r("ChargeFrequency", "text", "One-Time", "Recurring", "Usage-Based", null=False),
    _m("HostProviderName", null=True, versions=_NEW),
    _c("InvoiceId"),
    _m("InvoiceIssuerName"),
    _m("ServiceProviderName", versions=_NEW),
    _m("ProviderName", versions=_OLD),
    _m("PublisherName", versions=_OLD),
    _c("InvoiceDetailId", versions=_NEW),
    _m("ServiceCategory", "text", *SERVICE_CATEGORIES),
    _m("ServiceName"),
    _r("ServiceSubcategory", null=False),
    _c("SkuId"),
    _c("SkuMeter"),
    _c("SkuPriceDetails", "json"),
    _c("SkuPriceId"),
    _c("ResourceId"),
    _c("ResourceName"),
    _c("ResourceType"),
    _c("Tags", "json"),
    _r("AvailabilityZone"),
    _c("RegionId"),
    _c("RegionName"),
    _c("CapacityReservationId"),
    _c("CapacityReservationStatus", "text", *_USED),
    _c("CommitmentDiscountCategory", "text", "Spend", "Usage"),
    _c("CommitmentDiscountId"),
    _c("CommitmentDiscountName"),
    _c("CommitmentDiscountQuantity", "quantity"),
    _c("CommitmentDiscountStatus", "text", *_USED),
    _c("CommitmentDiscountType"),
    _c("CommitmentDiscountUnit", "unit"),
    _c("CommitmentProgramEligibilityDetails", "json", versions=_NEW),
    _c("ContractApplied", "json", versions=_NEW),
    _r("AllocatedMethodDetails", "json", versions=_NEW),
    _c("AllocatedMethodId", versions=_NEW),
    _c("AllocatedResourceId", versions=_NEW),
    _c("AllocatedResourceName", versions=_NEW),
    _c("AllocatedTags", "json", versions=_NEW),
)

BILLING_PERIOD = (
    _m("BillingPeriodCreated", "instant", versions=_NEW),
    _m("BillingPeriodEnd", "instant", versions=_NEW),
    _m("BillingPeriodLastUpdated", "instant", versions=_NEW),
    _m("BillingPeriodStart", "instant", versions=_NEW),
    _m("BillingPeriodStatus", "text", "Open", "Closed", versions=_NEW),
    _m("InvoiceIssuerName", versions=_NEW),
)

INVOICE_DETAIL = (
    _m("BilledCost", "cost", versions=_NEW),
    _m("BillingAccountId", versions=_NEW),
    _m("BillingCurrency", "currency", versions=_NEW),
    _m("BillingPeriodEnd", "instant", versions=_NEW),
    _m("BillingPeriodStart", "instant", versions=_NEW),
    _m("ChargeCategory", "text", *CATEGORIES, versions=_NEW),
    _m("InvoiceDetailCreated", "instant", versions=_NEW),
    _m("InvoiceDetailDescription", null=True, versions=_NEW),
    _m("InvoiceDetailGrain", "json", null=True, versions=_NEW),
    _m("InvoiceDetailId", versions=_NEW),
    _m("InvoiceDetailLastUpdated", "instant", versions=_NEW),
    _m("InvoiceId", versions=_NEW),
    _m("InvoiceIssueDate", "instant", null=True, versions=_NEW),
    _m("InvoiceIssueStatus", "text", "Open", "Issued", "Voided", versions=_NEW),
    _m("InvoiceIssuerName", versions=_NEW),
    _c("PaymentCurrency", "currency", null=False, versions=_NEW),
    _c("PaymentCurrencyBilledCost", "cost", null=False, versions=_NEW),
    _c("PaymentCurrencyInvoiceDetailId", null=False, versions=_NEW),
    _m("PaymentDueDate", "instant", null=True, versions=_NEW),
    _m("PaymentTerms", versions=_NEW),
    _c("PurchaseOrderNumber", versions=_NEW),
    _m("ReferenceInvoiceId", versions=_NEW),
)

_COLUMNS: Mapping[Dataset, tuple[FocusColumn, ...]] = {
    "cost-and-usage": COST_AND_USAGE,
    "billing-period": BILLING_PERIOD,
    "invoice-detail": INVOICE_DETAIL,
}


def columns_of(dataset: Dataset, version: Version) -> dict[str, FocusColumn]:
    """The columns of a dataset in a version, by name; none where the version has no such dataset."""
    return {column.name: column for column in _COLUMNS[dataset] if version in column.versions}


SKU_PRICE_DETAILS_KEYS = frozenset(
    {
        "CoreCount",
        "DiskMaxIops",
        "DiskSpace",
        "DiskType",
        "GpuCount",
        "InstanceSeries",
        "InstanceType",
        "MemorySize",
        "NetworkMaxIops",
        "NetworkMaxThroughput",
        "OperatingSystem",
        "Redundancy",
        "StorageClass",
    }
)
INVOICE_DETAIL_GRAIN_KEYS = frozenset(
    {
        "ContractId",
        "RegionId",
        "ResourceId",
        "ResourceType",
        "ServiceName",
        "SkuId",
        "SkuMeter",
        "SkuPriceId",
        "SubAccountId",
    }
)
ALLOCATED_RATIO_KEYS = frozenset({"AllocatedRatio", "UsageUnit", "UsageQuantity"})
