"""Each rule of the lint finds the defect that is seeded for it, and nothing in a clean file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from focus_data_toolkit.model.validator import lint_focus_1_4_structure
from pyarrow import parquet

from accounting.focus.across import Totals
from accounting.focus.lint import Finding, dataset_of, version_of
from accounting.focus.model import Dataset, Version
from accounting.focus.reading import open_focus
from accounting.focus.rules import RULES
from tests.accounting.focus.files import Row, charges, charges_1_2, details, lint, periods


def test_the_hand_made_files_are_clean() -> None:
    assert lint(charges()) == []
    assert lint(charges_1_2(), version="1.2") == []
    assert lint(details(), dataset="invoice-detail") == []
    assert lint(periods(), dataset="billing-period") == []


def test_an_independent_lint_finds_the_hand_made_files_clean_too() -> None:
    conditions = {"SupportsUnitPricing", "SupportsMultiplePricingCategories"}
    for name, rows in (
        ("Cost and Usage", charges()),
        ("Invoice Detail", details()),
        ("Billing Period", periods()),
    ):
        assert lint_focus_1_4_structure(name, rows, supported_conditions=conditions).messages() == []


def test_columns_say_which_dataset_and_version_a_file_is() -> None:
    assert [dataset_of(list(rows()[0])) for rows in (charges, details, periods)] == [
        "cost-and-usage",
        "invoice-detail",
        "billing-period",
    ]
    assert version_of(list(charges()[0])) == "1.4"
    assert version_of(list(charges_1_2()[0])) == "1.2"


@dataclass(frozen=True)
class Defect:
    """What is wrong with an otherwise clean file.

    `row` counts from 1, 0 is the file; `also` are rules that the same defect breaks by necessity.
    """

    change: Callable[[list[Row]], None]
    column: str
    row: int = 1
    rows: Callable[[], list[Row]] = charges
    dataset: Dataset = "cost-and-usage"
    version: Version = "1.4"
    totals: Totals | None = None
    also: frozenset[str] = field(default_factory=frozenset)


def put(**values: str) -> Callable[[list[Row]], None]:
    """Values into the first row."""
    return lambda rows: rows[0].update(values)


def put_all(**values: str) -> Callable[[list[Row]], None]:
    """Values into every row."""

    def change(rows: list[Row]) -> None:
        for row in rows:
            row.update(values)

    return change


def take(name: str) -> Callable[[list[Row]], None]:
    """A column out of every row."""

    def change(rows: list[Row]) -> None:
        for row in rows:
            del row[name]

    return change


def drop_last(rows: list[Row]) -> None:
    rows.pop()


def repeat(rows: list[Row]) -> None:
    rows.append(dict(rows[0]))


def x_first(rows: list[Row]) -> None:
    for row in rows:
        billed = row.pop("BilledCost")
        row["BilledCost"] = billed


TAX = {
    "ChargeCategory": "Tax",
    "ChargeFrequency": "One-Time",
    **dict.fromkeys(
        (
            "SkuId", "SkuMeter", "SkuPriceId", "SkuPriceDetails", "ListUnitPrice", "ContractedUnitPrice",
            "PricingCategory", "PricingQuantity", "PricingUnit", "ConsumedQuantity", "ConsumedUnit",
        ),
        "",
    ),
}  # fmt: skip
UNPRICED = TAX | {"ChargeCategory": "Adjustment", "ListCost": "0.80"}
SPLIT = {
    "AllocatedMethodId": "by_allocation@3",
    "AllocatedMethodDetails": '{"Elements":[{"AllocatedRatio":0.25}]}',
    "AllocatedResourceId": "hami://c/pod-a",
}
COMMITMENT = {
    "CommitmentDiscountId": "c-1",
    "CommitmentDiscountCategory": "Usage",
    "CommitmentDiscountType": "GPU-hours",
    "CommitmentDiscountStatus": "Used",
}

DEFECTS: dict[str, Defect] = {
    "column-missing": Defect(take("ServiceName"), "ServiceName", 0),
    "column-unknown": Defect(put_all(GpuModel="H200"), "GpuModel", 0, also=frozenset({"column-order"})),
    "column-order": Defect(x_first, "BilledCost", 0),
    "null-not-allowed": Defect(put(BilledCost=""), "BilledCost"),
    "placeholder": Defect(put(RegionId="N/A", RegionName="x"), "RegionId"),
    "decimal-format": Defect(put(BilledCost="+0.80"), "BilledCost"),
    "price-negative": Defect(
        put(ListUnitPrice="-4", ListCost="-1.00"), "ListUnitPrice"
    ),
    "instant-format": Defect(put(ChargePeriodEnd="2026-10-05T14:00:00+00:00"), "ChargePeriodEnd"),
    "currency-code": Defect(put_all(BillingCurrency="XAU"), "BillingCurrency"),
    "allowed-value": Defect(put(ChargeClass="correction"), "ChargeClass"),
    "unit-format": Defect(put(PricingUnit="gpu hours"), "PricingUnit"),
    "json-format": Defect(put(Tags='{"a":1,"a":2}'), "Tags"),
    "json-flat": Defect(put(Tags='{"a":{"b":1}}'), "Tags"),
    "json-key": Defect(put(SkuPriceDetails='{"GpuMemory":141}'), "SkuPriceDetails"),
    "charge-period": Defect(put(ChargePeriodEnd="2026-10-05T13:00:00Z"), "ChargePeriodEnd"),
    "billing-period": Defect(
        put(BillingPeriodEnd="2026-10-01T00:00:00Z"),
        "BillingPeriodEnd",
        also=frozenset({"charge-outside-billing"}),
    ),
    "charge-outside-billing": Defect(
        put(ChargePeriodStart="2026-09-30T23:00:00Z"), "ChargePeriodStart"
    ),
    "updated-before-created": Defect(
        put(BillingPeriodLastUpdated="2026-09-01T00:00:00Z"),
        "BillingPeriodLastUpdated",
        rows=periods,
        dataset="billing-period",
    ),
    "sub-account": Defect(put(SubAccountName=""), "SubAccountName"),
    "region": Defect(put(RegionName="Frankfurt"), "RegionName"),
    "resource": Defect(put(ResourceType=""), "ResourceType"),
    "resource-name": Defect(put(ResourceName="hami://c/pod-a"), "ResourceName"),
    "unit-of-quantity": Defect(put(ConsumedUnit=""), "ConsumedUnit"),
    "consumed-on-usage": Defect(
        put(ChargeCategory="Purchase", ChargeFrequency="Recurring"), "ConsumedQuantity"
    ),
    "invoice-detail": Defect(put(InvoiceId=""), "InvoiceDetailId"),
    "description-missing": Defect(put(ChargeDescription=""), "ChargeDescription"),
    "sku-required": Defect(
        put(SkuPriceId="", SkuPriceDetails=""), "SkuPriceId", also=frozenset({"price-without-sku"})
    ),
    "sku-meter": Defect(put(**UNPRICED | {"SkuMeter": "GPU slice hours"}), "SkuMeter"),
    "sku-price-details": Defect(put(**UNPRICED | {"SkuPriceDetails": "{}"}), "SkuPriceDetails"),
    "price-required": Defect(put(PricingCategory=""), "PricingCategory"),
    "price-without-sku": Defect(put(**UNPRICED | {"PricingCategory": "Standard"}), "PricingCategory"),
    "sku-without-price": Defect(
        put(ChargeClass="Correction", ListUnitPrice="", ListCost="0.80"), "ListUnitPrice"
    ),
    "tax-has-price": Defect(put(**TAX | {"PricingCategory": "Standard"}), "PricingCategory"),
    "quantity-negative": Defect(
        put(PricingQuantity="-0.25", ListCost="-1", ContractedCost="-0.8"), "PricingQuantity"
    ),
    "cost-product": Defect(put(ContractedCost="0.81"), "ContractedCost"),
    "cost-without-price": Defect(put(**UNPRICED | {"ListCost": "0.79"}), "ListCost"),
    "effective-cost": Defect(put(**TAX | {"EffectiveCost": "0.79"}), "EffectiveCost"),
    "purchase-frequency": Defect(
        put(ChargeCategory="Purchase", ConsumedQuantity="", ConsumedUnit=""), "ChargeFrequency"
    ),
    "subcategory-parent": Defect(put_all(ServiceSubcategory="Machine Learning"), "ServiceSubcategory"),
    "commitment": Defect(put(**COMMITMENT | {"CommitmentDiscountStatus": ""}), "CommitmentDiscountStatus"),
    "capacity-reservation": Defect(
        put(CapacityReservationId="r-1"), "CapacityReservationStatus"
    ),
    "allocation": Defect(put(AllocatedResourceId="hami://c/pod-a"), "AllocatedResourceId"),
    "row-repeated": Defect(repeat, "", 4),
    "sku-price-shared": Defect(
        lambda rows: rows[2].update(SkuPriceId="gpu-slice:nvidia-h200@1"), "SkuId", 3
    ),
    "sku-meter-changed": Defect(lambda rows: rows[1].update(SkuMeter="hours"), "SkuMeter", 2),
    "service-category-changed": Defect(
        lambda rows: rows[2].update(ServiceSubcategory="Virtual Machines"), "ServiceCategory", 3
    ),
    "invoice-currency": Defect(lambda rows: rows[2].update(BillingCurrency="USD"), "BillingCurrency", 3),
    "invoice-total": Defect(
        put(), "InvoiceId", 0, totals=Totals({"SM-000001": Decimal("3.81")})
    ),
    "invoice-detail-total": Defect(
        drop_last,
        "InvoiceDetailId",
        0,
        totals=Totals(
            details={
                "SM-000001:team-nlp": Decimal("0.80"),
                "SM-000001:team-cv": Decimal("1.00"),
                "SM-000001:platform/idle": Decimal("2.00"),
            }
        ),
    ),
    "allocated-ratio": Defect(put(**SPLIT), "AllocatedMethodDetails", 0),
    "invoice-detail-repeated": Defect(
        repeat, "InvoiceDetailId", 4, rows=details, dataset="invoice-detail"
    ),
    "no-rows": Defect(lambda rows: rows.clear(), "", 0),
}  # fmt: skip

OF_FILES = {"column-repeated", "row-width", "parquet-type"}
"""Rules about what rows of a dictionary cannot be: each has a test of its own below."""


def test_each_rule_has_a_seeded_defect() -> None:
    assert DEFECTS.keys() | OF_FILES == RULES.keys()
    assert not DEFECTS.keys() & OF_FILES


def brought(found: list[Finding]) -> set[tuple[str, int, str]]:
    return {(one.rule, one.row, one.column) for one in found}


@pytest.mark.parametrize("rule", DEFECTS)
def test_a_seeded_defect_is_found_where_it_is_and_nothing_else(rule: str) -> None:
    defect = DEFECTS[rule]
    rows = defect.rows()
    header = list(rows[0])
    defect.change(rows)
    found = lint(
        rows,
        dataset=defect.dataset,
        version=defect.version,
        totals=defect.totals,
        header=list(rows[0]) if rows else header,
    )
    assert (rule, defect.row, defect.column) in brought(found), found
    assert {one.rule for one in found} <= {rule} | defect.also
    assert all(one.way_out == RULES[one.rule].way_out != "" for one in found)


def test_a_column_that_stands_twice_is_found() -> None:
    rows = charges()
    header = [*list(rows[0])[:-1], "BilledCost", "x_UsageRevision"]
    cells = [[*list(row.values())[:-1], row["BilledCost"], "0"] for row in rows]
    assert brought(lint(rows, header=header, cells=cells)) == {("column-repeated", 0, "BilledCost")}


def test_a_row_with_a_cell_too_many_is_found_and_the_others_are_read() -> None:
    rows = charges()
    cells = [list(row.values()) for row in rows]
    cells[1] = [*cells[1], "more"]
    assert brought(lint(rows, cells=cells)) == {("row-width", 2, "")}


@pytest.mark.parametrize(
    ("column", "values", "kind"),
    [
        ("BilledCost", [0.8, 1.0, 2.0], pa.float64()),
        ("ChargePeriodStart", ["2026-10-05T13:00:00Z"] * 3, pa.string()),
        ("SubAccountId", [1, 2, 3], pa.int64()),
    ],
)
def test_a_parquet_column_of_another_type_is_found(
    tmp_path: Path, column: str, values: list[object], kind: pa.DataType
) -> None:
    path = tmp_path / "f.parquet"
    table = pa.table({column: pa.array(values, type=kind), "ServiceProviderName": ["a", "b", "c"]})
    parquet.write_table(table, path)
    with open_focus(path) as file:
        assert brought(list(file.findings)) == {("parquet-type", 0, column)}


SPLIT_ROWS = [("0.25", "hami://c/pod-a"), ("0.25", "hami://c/pod-b"), ("0.5", "hami://c/idle")]


def test_ratios_of_one_origin_that_add_up_to_one_are_no_finding() -> None:
    rows = [
        charges()[2]
        | SPLIT
        | {
            "AllocatedResourceId": receiver,
            "AllocatedMethodDetails": f'{{"Elements":[{{"AllocatedRatio":{ratio}}}]}}',
        }
        for ratio, receiver in SPLIT_ROWS
    ]
    assert lint(rows) == []


def test_a_correction_may_lie_before_its_billing_period_and_needs_no_price() -> None:
    rows = charges()
    rows[0] |= UNPRICED | {
        "ChargeCategory": "Usage",
        "ChargeClass": "Correction",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": "2026-09-05T13:00:00Z",
        "ChargePeriodEnd": "2026-09-05T14:00:00Z",
        "SkuId": "gpu-slice:nvidia-h200",
        "SkuMeter": "meter of gpu-slice:nvidia-h200",
    }
    assert lint(rows) == []


def test_in_1_2_a_price_may_stand_without_a_sku_price_on_an_adjustment() -> None:
    rows = charges_1_2()
    rows[0] |= {name: text for name, text in UNPRICED.items() if name in rows[0]}
    rows[0] |= {"PricingCategory": "Standard"}
    assert lint(rows, version="1.2") == []


def test_a_column_of_1_2_is_foreign_in_1_4() -> None:
    rows = charges_1_2()
    found = {one.column for one in lint(rows, version="1.4") if one.rule == "column-unknown"}
    assert found == {"ProviderName", "PublisherName"}


def test_invoices_are_compared_with_what_they_must_come_to() -> None:
    assert lint(charges(), totals=Totals({"SM-000001": Decimal("3.80")})) == []
    missing = lint(charges(), totals=Totals({"SM-000001": Decimal("3.80"), "SM-000002": Decimal(1)}))
    assert [(one.rule, one.detail) for one in missing] == [("invoice-total", "SM-000002: 0 is not 1")]
