"""The rules that one row can break.

A row is text by column name; a column that the file lacks is not in it, and rules about it say nothing.
Invariant: every problem names a rule of `rules.RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from accounting.focus.lists import CATEGORY_OF
from accounting.focus.model import (
    ALLOCATED_RATIO_KEYS,
    INVOICE_DETAIL_GRAIN_KEYS,
    NUMBERS,
    SKU_PRICE_DETAILS_KEYS,
    FocusColumn,
    Version,
)
from accounting.focus.values import (
    EXACT,
    PLACEHOLDERS,
    JsonError,
    instant_ms,
    is_national_currency,
    is_scalar,
    is_unit,
    json_object,
    number,
)

TOLERANCE = Decimal("1e-9")
"""Relative, of a cost of 1 or more; absolute below: what a quantity of 14 digits leaves open."""

_FLAT_KEYS = {
    "Tags": None,
    "AllocatedTags": None,
    "SkuPriceDetails": SKU_PRICE_DETAILS_KEYS,
    "InvoiceDetailGrain": INVOICE_DETAIL_GRAIN_KEYS,
}
"""Key-value columns, with the keys that need no x_; None: any key."""

_WITH_SKU_PRICE = (
    "ListUnitPrice",
    "ContractedUnitPrice",
    "PricingCurrencyListUnitPrice",
    "PricingCurrencyContractedUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "ConsumedQuantity",
    "CommitmentDiscountQuantity",
)
_NOT_ON_TAX = (
    "SkuId",
    "SkuPriceId",
    "ListUnitPrice",
    "ContractedUnitPrice",
    "PricingCurrencyListUnitPrice",
    "PricingCurrencyContractedUnitPrice",
    "PricingCategory",
    "PricingQuantity",
)

_REQUIRED = {
    "sku-required": ("SkuId", "SkuPriceId"),
    "price-required": ("ListUnitPrice", "ContractedUnitPrice", "PricingQuantity", "PricingCategory"),
}
"""By rule: what usage and purchases must have."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A rule that a row breaks, where and how."""

    rule: str
    column: str
    detail: str


@dataclass(frozen=True, slots=True)
class Row:
    """One row, with the numbers and instants that could be read of it."""

    texts: Mapping[str, str]
    numbers: Mapping[str, Decimal]
    instants: Mapping[str, int]
    version: Version

    def has(self, column: str) -> bool:
        """Whether the file has a column."""
        return column in self.texts

    def text(self, column: str) -> str:
        """A value; empty where there is none."""
        return self.texts.get(column, "")

    def is_empty(self, column: str) -> bool:
        """Whether the file has a column, and the row no value in it."""
        return self.texts.get(column) == ""

    @property
    def is_correction(self) -> bool:
        """Whether it changes what was invoiced before."""
        return self.text("ChargeClass") == "Correction"

    @property
    def is_priced_charge(self) -> bool:
        """Whether prices are required: usage and purchases that are no corrections."""
        return self.text("ChargeCategory") in {"Usage", "Purchase"} and not self.is_correction


Check: TypeAlias = Callable[[Row], Iterator[Problem]]

Known: TypeAlias = dict[str, tuple[str, Decimal | int | None]]
"""By column: the last clean text and what it is read as, since most values are those of the row before."""


def read_row(
    texts: Mapping[str, str], columns: Mapping[str, FocusColumn], version: Version, known: Known
) -> tuple[Row, list[Problem]]:
    """Read the values of a row; those that are none are problems."""
    numbers: dict[str, Decimal] = {}
    instants: dict[str, int] = {}
    problems: list[Problem] = []
    for name, text in texts.items():
        column = columns.get(name)
        if not text:
            if column is not None and not column.is_nullable:
                problems.append(Problem("null-not-allowed", name, "it is empty"))
            continue
        before = known.get(name)
        if before is not None and before[0] == text:
            value = before[1]
        else:
            value, found = _read(name, column, text)
            if found:
                problems += found
            else:
                known[name] = text, value
        if isinstance(value, Decimal):
            numbers[name] = value
        elif value is not None:
            instants[name] = value
    return Row(texts, numbers, instants, version), problems


def _read(name: str, column: FocusColumn | None, text: str) -> tuple[Decimal | int | None, list[Problem]]:
    """The number or instant that a text is, if it is to be one, and what is wrong with it."""
    if text.isspace() or text.lower() in PLACEHOLDERS:
        return None, [Problem("placeholder", name, f'it says "{text}"')]
    if column is None:
        return None, []
    if column.kind in NUMBERS:
        value = number(text)
        if value is None:
            return None, [Problem("decimal-format", name, f'"{text}"')]
        is_negative_price = column.kind == "price" and value < 0
        return value, [Problem("price-negative", name, text)] if is_negative_price else []
    if column.kind == "instant":
        at_ms = instant_ms(text)
        return at_ms, [] if at_ms is not None else [Problem("instant-format", name, f'"{text}"')]
    return None, list(_text_problems(column, text))


def _text_problems(column: FocusColumn, text: str) -> Iterator[Problem]:
    name, kind = column.name, column.kind
    if kind == "currency" and not is_national_currency(text):
        yield Problem("currency-code", name, f'"{text}"')
    elif kind == "unit" and not is_unit(text):
        yield Problem("unit-format", name, f'"{text}"')
    elif kind == "json":
        yield from _json_problems(name, text)
    elif column.allowed and text not in column.allowed:
        yield Problem("allowed-value", name, f'"{text}" is none of {", ".join(column.allowed)}')


def _json_problems(name: str, text: str) -> Iterator[Problem]:
    try:
        found = json_object(text)
    except JsonError as error:
        yield Problem("json-format", name, str(error))
        return
    if name not in _FLAT_KEYS:
        return
    for key, value in found.items():
        if not is_scalar(value):
            yield Problem("json-flat", name, f'"{key}" is not flat')
        keys = _FLAT_KEYS[name]
        if keys is not None and key not in keys and not key.startswith("x_"):
            yield Problem("json-key", name, f'"{key}"')


def row_problems(row: Row, checks: tuple[Check, ...]) -> list[Problem]:
    """What a row breaks, beyond its single values."""
    return [problem for check in checks for problem in check(row)]


def _periods(row: Row) -> Iterator[Problem]:
    at = row.instants
    charge = at.get("ChargePeriodStart"), at.get("ChargePeriodEnd")
    billing = at.get("BillingPeriodStart"), at.get("BillingPeriodEnd")
    if None not in charge and charge[0] >= charge[1]:  # type: ignore[operator]
        yield Problem("charge-period", "ChargePeriodEnd", "it is not after ChargePeriodStart")
    if None not in billing and billing[0] >= billing[1]:  # type: ignore[operator]
        yield Problem("billing-period", "BillingPeriodEnd", "it is not after BillingPeriodStart")
    if None in charge or None in billing or row.is_correction:
        return
    if charge[0] < billing[0] or charge[1] > billing[1]:  # type: ignore[operator]
        yield Problem("charge-outside-billing", "ChargePeriodStart", "it lies outside the billing period")


def _updated(created: str, updated: str) -> Check:
    def check(row: Row) -> Iterator[Problem]:
        first, last = row.instants.get(created), row.instants.get(updated)
        if first is not None and last is not None and last < first:
            yield Problem("updated-before-created", updated, f"it is before {created}")

    return check


def _pair(rule: str, leader: str, *followers: str) -> Check:
    """Followers are null exactly when the leader is."""

    def check(row: Row) -> Iterator[Problem]:
        if not row.has(leader):
            return
        for follower in followers:
            if row.has(follower) and row.is_empty(leader) != row.is_empty(follower):
                empty = follower if row.is_empty(follower) else leader
                yield Problem(rule, follower, f"{empty} is empty, the other is not")

    return check


def _details(row: Row) -> Iterator[Problem]:
    if row.text("ResourceId") and row.text("ResourceId") == row.text("ResourceName"):
        yield Problem("resource-name", "ResourceName", "it is the id")
    if row.text("InvoiceDetailId") and row.is_empty("InvoiceId"):
        yield Problem("invoice-detail", "InvoiceDetailId", "InvoiceId is empty")
    if row.is_empty("ChargeDescription"):
        yield Problem("description-missing", "ChargeDescription", "it is empty")
    unused = row.text("CommitmentDiscountStatus") == "Unused"
    if row.text("ConsumedQuantity") and (row.text("ChargeCategory") != "Usage" or unused):
        category = "an unused commitment" if unused else row.text("ChargeCategory")
        yield Problem("consumed-on-usage", "ConsumedQuantity", f"it stands on {category}")
    category, subcategory = row.text("ServiceCategory"), row.text("ServiceSubcategory")
    if subcategory and CATEGORY_OF.get(subcategory) != category:
        yield Problem("subcategory-parent", "ServiceSubcategory", f'"{subcategory}" under "{category}"')
    if row.text("ChargeCategory") == "Purchase" and row.text("ChargeFrequency") == "Usage-Based":
        yield Problem("purchase-frequency", "ChargeFrequency", "it is Usage-Based")


def _skus(row: Row) -> Iterator[Problem]:
    if row.text("ChargeCategory") == "Tax":
        for column in _NOT_ON_TAX:
            if row.text(column):
                yield Problem("tax-has-price", column, "it has a value")
        return
    for rule, columns in _REQUIRED.items() if row.is_priced_charge else ():
        for column in columns:
            if row.is_empty(column):
                yield Problem(rule, column, "it is empty")
    if row.is_empty("SkuId"):
        for column in ("SkuMeter", "SkuPriceId"):
            if row.text(column):
                yield Problem("sku-meter", column, "SkuId is empty")
    if row.is_empty("SkuPriceId") and row.text("SkuPriceDetails"):
        yield Problem("sku-price-details", "SkuPriceDetails", "SkuPriceId is empty")
    if row.version != "1.2":
        yield from _sku_prices(row)


def _sku_prices(row: Row) -> Iterator[Problem]:
    if row.is_empty("SkuPriceId"):
        for column in _WITH_SKU_PRICE:
            if row.text(column):
                yield Problem("price-without-sku", column, "SkuPriceId is empty")
    elif row.text("SkuPriceId") and not row.is_priced_charge:
        for column in ("ListUnitPrice", "ContractedUnitPrice"):
            if row.is_empty(column):
                yield Problem("sku-without-price", column, "it is empty")


def _costs(row: Row) -> Iterator[Problem]:
    numbers = row.numbers
    category, quantity = row.text("ChargeCategory"), numbers.get("PricingQuantity")
    billed = numbers.get("BilledCost")
    for column in ("PricingQuantity", "ConsumedQuantity"):
        if numbers.get(column, 0) < 0 and row.is_priced_charge:
            yield Problem("quantity-negative", column, row.text(column))
    for cost_column, price_column in (
        ("ListCost", "ListUnitPrice"),
        ("ContractedCost", "ContractedUnitPrice"),
    ):
        cost, price = numbers.get(cost_column), numbers.get(price_column)
        if cost is None:
            continue
        if price is not None and quantity is not None:
            product = EXACT.multiply(price, quantity)
            if abs(EXACT.subtract(product, cost)) > TOLERANCE * max(abs(cost), Decimal(1)):
                yield Problem("cost-product", cost_column, f"{cost:f} is not {price:f} × {quantity:f}")
        elif row.is_empty(price_column) and category != "Tax" and billed is not None and cost != billed:
            yield Problem("cost-without-price", cost_column, f"{cost:f} is not {billed:f}")
    effective = numbers.get("EffectiveCost")
    if category in {"Tax", "Credit"} and None not in {billed, effective} and billed != effective:
        yield Problem("effective-cost", "EffectiveCost", f"{effective:f} is not {billed:f}")


def _commitments(row: Row) -> Iterator[Problem]:
    for rule, leader, status, others in (
        (
            "commitment",
            "CommitmentDiscountId",
            "CommitmentDiscountStatus",
            ("CommitmentDiscountCategory", "CommitmentDiscountType", "CommitmentDiscountName"),
        ),
        ("capacity-reservation", "CapacityReservationId", "CapacityReservationStatus", ()),
    ):
        if not row.text(leader):
            for column in (status, *others):
                if row.text(column):
                    yield Problem(rule, column, f"{leader} is empty")
            continue
        if row.text("ChargeCategory") == "Usage" and row.is_empty(status):
            yield Problem(rule, status, "it is empty on usage")
        for column in others[:2]:
            if row.is_empty(column):
                yield Problem(rule, column, f"it is empty, {leader} is not")
    if row.text("CommitmentDiscountQuantity") and not row.text("CommitmentDiscountId"):
        yield Problem("commitment", "CommitmentDiscountQuantity", "CommitmentDiscountId is empty")


def allocated_ratio(row: Row) -> Decimal | None:
    """The part of its origin that a row of the split view is; None where it says none."""
    try:
        found = json_object(row.text("AllocatedMethodDetails") or "{}")
    except JsonError:
        return None
    elements = found.get("Elements")
    if not isinstance(elements, list) or not elements:
        return None
    ratios = [element.get("AllocatedRatio") for element in elements if isinstance(element, dict)]
    numbers = [ratio for ratio in ratios if isinstance(ratio, Decimal)]
    return sum(numbers, Decimal(0)) if len(numbers) == len(elements) else None


def _allocations(row: Row) -> Iterator[Problem]:
    method = row.text("AllocatedMethodId")
    for column in ("AllocatedResourceId", "AllocatedResourceName", "AllocatedTags", "AllocatedMethodDetails"):
        if row.text(column) and not method:
            yield Problem("allocation", column, "AllocatedMethodId is empty")
    if not method:
        return
    if row.is_empty("AllocatedResourceId"):
        yield Problem("allocation", "AllocatedResourceId", "it is empty")
    if not row.text("AllocatedMethodDetails"):
        return
    ratio = allocated_ratio(row)
    if ratio is None or not 0 <= ratio <= 1:
        yield Problem("allocation", "AllocatedMethodDetails", "there is no AllocatedRatio from 0 to 1")
    yield from _elements(row.text("AllocatedMethodDetails"))


def _elements(text: str) -> Iterator[Problem]:
    try:
        elements = json_object(text).get("Elements")
    except JsonError:
        return
    for element in elements if isinstance(elements, list) else ():
        if not isinstance(element, dict):
            continue
        for key in element:
            if key not in ALLOCATED_RATIO_KEYS and not key.startswith("x_"):
                yield Problem("json-key", "AllocatedMethodDetails", f'"{key}"')
        if "UsageQuantity" in element and "UsageUnit" not in element:
            yield Problem("allocation", "AllocatedMethodDetails", "UsageQuantity has no UsageUnit")


CHECKS: Mapping[str, tuple[Check, ...]] = {
    "cost-and-usage": (
        _periods,
        _pair("sub-account", "SubAccountId", "SubAccountName", "SubAccountType"),
        _pair("region", "RegionId", "RegionName"),
        _pair("resource", "ResourceId", "ResourceName", "ResourceType"),
        _pair("unit-of-quantity", "PricingQuantity", "PricingUnit"),
        _pair("unit-of-quantity", "ConsumedQuantity", "ConsumedUnit"),
        _pair("unit-of-quantity", "CommitmentDiscountQuantity", "CommitmentDiscountUnit"),
        _details,
        _skus,
        _costs,
        _commitments,
        _allocations,
    ),
    "billing-period": (_periods, _updated("BillingPeriodCreated", "BillingPeriodLastUpdated")),
    "invoice-detail": (_periods, _updated("InvoiceDetailCreated", "InvoiceDetailLastUpdated")),
}
"""By dataset."""
