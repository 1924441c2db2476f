"""A FOCUS file written by hand: one card-hour of an H200 that two slices share, and half of it idle.

Pod A: 25 % of the memory, 20 % discount; pod B: 25 % of the cores; list price 4.00 EUR an hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from accounting.focus.across import Totals
from accounting.focus.lint import Finding, Linter
from accounting.focus.model import Dataset, Version

Row: TypeAlias = dict[str, str]

_OF_EVERY_ROW = {
    "BillingAccountId": "acme",
    "BillingAccountName": "Acme",
    "BillingCurrency": "EUR",
    "BillingPeriodStart": "2026-10-01T00:00:00Z",
    "BillingPeriodEnd": "2026-11-01T00:00:00Z",
    "ChargePeriodStart": "2026-10-05T13:00:00Z",
    "ChargePeriodEnd": "2026-10-05T14:00:00Z",
    "ChargeCategory": "Usage",
    "ChargeClass": "",
    "ChargeFrequency": "Usage-Based",
    "HostProviderName": "GPU team",
    "InvoiceId": "SM-000001",
    "InvoiceIssuerName": "GPU team",
    "ServiceProviderName": "GPU team",
    "ServiceCategory": "Compute",
    "ServiceName": "HAMi GPU Sharing",
    "ServiceSubcategory": "Containers",
    "PricingCategory": "Standard",
    "PricingUnit": "GPU-Hours",
    "ConsumedUnit": "GPU-Hours",
    "ListUnitPrice": "4",
    "RegionId": "",
    "RegionName": "",
    "SkuPriceDetails": '{"GpuCount":1,"InstanceSeries":"NVIDIA H200"}',
    "Tags": '{"k8s/cluster":"c"}',
    "CapacityReservationId": "",
    "CapacityReservationStatus": "",
    "CommitmentDiscountCategory": "",
    "CommitmentDiscountId": "",
    "CommitmentDiscountStatus": "",
    "CommitmentDiscountType": "",
    "AllocatedMethodDetails": "",
    "AllocatedMethodId": "",
    "AllocatedResourceId": "",
    "AllocatedResourceName": "",
}


def _charge(tenant: str, sku: str, resource: str, quantity: str, net: str, **of_row: str) -> Row:
    return _OF_EVERY_ROW | {
        "SubAccountId": tenant,
        "SubAccountName": tenant,
        "SkuId": sku,
        "SkuMeter": f"meter of {sku}",
        "SkuPriceId": f"{sku}@1",
        "ResourceId": f"hami://c/{resource}",
        "ResourceName": resource,
        "ResourceType": "GPU slice",
        "ConsumedQuantity": quantity,
        "PricingQuantity": quantity,
        "ContractedUnitPrice": net,
        "ChargeDescription": f"{resource} on an H200",
        "InvoiceDetailId": f"SM-000001:{tenant}",
        **of_row,
    }


def charges() -> list[Row]:
    """Three clean rows, and one that rounds nothing away: 0.80 + 1.00 + 2.00 = 3.80."""
    costs = ("ListCost", "ContractedCost", "BilledCost", "EffectiveCost")
    rows = [
        _charge("team-nlp", "gpu-slice:nvidia-h200", "pod-a", "0.25", "3.20"),
        _charge("team-cv", "gpu-slice:nvidia-h200", "pod-b", "0.25", "4.00"),
        _charge("platform/idle", "gpu-idle:nvidia-h200", "card", "0.5", "4.00"),
    ]
    for row, amounts in zip(rows, (("1.00", "0.80"), ("1.00", "1.00"), ("2.00", "2.00")), strict=True):
        row |= dict(zip(costs, (amounts[0], *[amounts[1]] * 3), strict=True))
    return [row | {"x_UsageRevision": "0"} for row in rows]


def charges_1_2() -> list[Row]:
    """The same in FOCUS 1.2."""
    gone = {"HostProviderName", "ServiceProviderName", "InvoiceDetailId"}
    gone |= {name for name in _OF_EVERY_ROW if name.startswith("Allocated")}
    rows = []
    for row in charges():
        kept = {name: value for name, value in row.items() if name not in gone}
        own = kept.pop("x_UsageRevision")
        rows.append(kept | {"ProviderName": "GPU team", "PublisherName": "GPU team", "x_UsageRevision": own})
    return rows


def details() -> list[Row]:
    """The invoice details of the charges."""
    return [
        {
            "BilledCost": amount,
            "BillingAccountId": "acme",
            "BillingCurrency": "EUR",
            "BillingPeriodStart": "2026-10-01T00:00:00Z",
            "BillingPeriodEnd": "2026-11-01T00:00:00Z",
            "ChargeCategory": "Usage",
            "InvoiceDetailCreated": "2026-11-04T00:00:00Z",
            "InvoiceDetailDescription": tenant,
            "InvoiceDetailGrain": f'{{"SubAccountId":"{tenant}"}}',
            "InvoiceDetailId": f"SM-000001:{tenant}",
            "InvoiceDetailLastUpdated": "2026-11-04T00:00:00Z",
            "InvoiceId": "SM-000001",
            "InvoiceIssueDate": "2026-11-04T00:00:00Z",
            "InvoiceIssueStatus": "Issued",
            "InvoiceIssuerName": "GPU team",
            "PaymentDueDate": "",
            "PaymentTerms": "none",
            "ReferenceInvoiceId": "SM-000001",
        }
        for tenant, amount in (("team-nlp", "0.80"), ("team-cv", "1.00"), ("platform/idle", "2.00"))
    ]


def periods() -> list[Row]:
    """One billing period."""
    return [
        {
            "BillingPeriodCreated": "2026-10-01T00:00:00Z",
            "BillingPeriodEnd": "2026-11-01T00:00:00Z",
            "BillingPeriodLastUpdated": "2026-11-04T00:00:00Z",
            "BillingPeriodStart": "2026-10-01T00:00:00Z",
            "BillingPeriodStatus": "Closed",
            "InvoiceIssuerName": "GPU team",
        }
    ]


def lint(
    rows: Sequence[Row],
    *,
    dataset: Dataset = "cost-and-usage",
    version: Version = "1.4",
    totals: Totals | None = None,
    header: Sequence[str] | None = None,
    cells: Iterable[Sequence[str]] | None = None,
) -> list[Finding]:
    """All findings; the heading is that of the first row unless it is given."""
    names = list(rows[0]) if header is None else list(header)
    with Linter(names, dataset, version, totals) as linter:
        found = list(linter.heading())
        for row in cells if cells is not None else (list(row.values()) for row in rows):
            found += linter.row(row)
        found += linter.finish()
    return found
