"""What `focus lint` looks for: each rule by name, with what it asks and the way out.

Invariant: a finding names a rule of this table, and a test seeds one defect for each of them.
Sources: FOCUS by the FinOps Foundation (CC-BY-4.0); `reference/focus-mapping.md §2, §3, §6`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        name: Stable; programs may match on it.
        asks: What must hold.
        way_out: What to do where it does not.
    """

    name: str
    asks: str
    way_out: str


_TABLE = (
    # The file.
    ("column-missing", "every mandatory column is there", "add the column"),
    ("column-repeated", "no column stands twice", "keep one of them"),
    ("column-unknown", "a column that is none of FOCUS begins with x_", "rename it to x_… or leave it out"),
    ("column-order", "FOCUS columns come first, own ones after them", "move the x_ columns to the end"),
    ("row-width", "each row has a cell for each column", "quote cells that hold commas or line ends"),
    ("no-rows", "a file has rows", "export a period that has charges"),
    ("parquet-type", "in Parquet numbers are decimals, times are UTC timestamps, all else text",
     "write decimal128, timestamp(us, UTC), string"),
    # One value.
    ("null-not-allowed", "a column that may not be null has a value", "fill it"),
    ("placeholder", "no value is empty, never blanks, N/A or null as text", "leave the cell empty"),
    ("decimal-format", "a number has digits and one point, no plus, no separators, up to 38 digits",
     "write it like -1234.5"),
    ("price-negative", "a unit price is not below 0", "put the sign on the quantity"),
    ("instant-format", "a time is UTC as 2026-10-01T00:00:00Z", "write Z, not an offset, and whole seconds"),
    ("currency-code", "a currency is a national one of ISO 4217", "write three capitals, as EUR"),
    ("allowed-value", "a column with a closed list holds one of its values, in its letters",
     "write it as the specification does"),
    ("unit-format", "a unit is as GPU-Hours, GB/Hour, Requests or 1000 Tokens",
     "capitalise it, and take plural or singular as FOCUS does"),
    ("json-format", "a JSON column holds an object with unique keys", "write one object"),
    ("json-flat", "a key-value column holds strings, numbers, true, false and null only", "flatten it"),
    ("json-key", "keys that are none of FOCUS begin with x_", "rename the key to x_…"),
    # One row: time.
    ("charge-period", "a charge ends after it begins", "swap or mend its times"),
    ("billing-period", "a billing period ends after it begins", "swap or mend its times"),
    ("charge-outside-billing", "a charge lies in its billing period, unless it is a correction",
     "mark it as Correction, or put it in its own period"),
    ("updated-before-created", "the last update is not before the creation", "swap or mend the times"),
    # One row: what goes together.
    ("sub-account", "name and type of a sub account are null exactly when its id is", "fill both, or none"),
    ("region", "the name of a region is null exactly when its id is", "fill both, or none"),
    ("resource", "name and type of a resource are null exactly when its id is", "fill all, or none"),
    ("resource-name", "the name of a resource does not repeat its id", "give it a name that people know"),
    ("unit-of-quantity", "a unit is null exactly when its quantity is", "fill both, or none"),
    ("consumed-on-usage", "a consumed quantity stands only on usage, and on no unused commitment",
     "leave it empty there"),
    ("invoice-detail", "an invoice detail has its invoice", "fill InvoiceId, or leave InvoiceDetailId empty"),
    ("description-missing", "each charge is described in a sentence", "fill ChargeDescription"),
    # One row: prices.
    ("sku-required", "usage and purchases have SkuId and SkuPriceId, unless they are corrections",
     "fill them"),
    ("sku-meter", "meter and price of a SKU are null when SkuId is", "fill SkuId, or leave them empty"),
    ("sku-price-details", "details of a price are null when SkuPriceId is", "leave them empty"),
    ("price-required", "usage and purchases have prices, quantity and pricing category, unless corrections",
     "fill them"),
    ("price-without-sku", "from 1.3 on prices and quantities are null when SkuPriceId is",
     "fill SkuPriceId, or leave them empty"),
    ("sku-without-price", "from 1.3 on unit prices are there when SkuPriceId is", "fill them"),
    ("tax-has-price", "a tax has no price, quantity or SKU", "leave them empty"),
    ("quantity-negative", "usage and purchases have no quantity below 0, unless corrections",
     "mark the row as Correction"),
    ("cost-product", "a cost is its unit price times the pricing quantity", "compute it without rounding"),
    ("cost-without-price", "without a unit price list and contracted cost are the billed cost (but on a tax)",
     "set them to BilledCost"),
    ("effective-cost", "the effective cost of a tax or credit is the billed cost", "set it to BilledCost"),
    ("purchase-frequency", "a purchase is not Usage-Based", "write One-Time or Recurring"),
    ("subcategory-parent", "a subcategory belongs to its category", "take one of that category"),
    ("commitment", "what describes a commitment is null exactly when its id is, and usage has a status",
     "fill all, or none"),
    ("capacity-reservation", "the status of a reservation is null when its id is, and usage has one",
     "fill both, or none"),
    ("allocation", "an allocation names its method and its receiver, and a ratio from 0 to 1",
     "fill AllocatedMethodId, AllocatedResourceId and AllocatedMethodDetails"),
    # All rows.
    ("row-repeated", "no charge stands twice", "leave out the second one"),
    ("sku-price-shared", "a SkuPriceId belongs to one SkuId", "make an own SkuPriceId for each SkuId"),
    ("sku-meter-changed", "a SkuId has one meter", "keep the meter, or make another SkuId"),
    ("service-category-changed", "a service has one category and one subcategory", "choose one of them"),
    ("invoice-currency", "an invoice has one currency", "make an invoice for each currency"),
    ("invoice-total", "the charges of an invoice add up to its total, exactly", "add the rounding line"),
    ("invoice-detail-total", "the charges of an invoice detail add up to it, exactly",
     "make the details of the same lines"),
    ("allocated-ratio", "the ratios of what is split of one charge add up to exactly 1",
     "give the rest to the largest remainders"),
    ("invoice-detail-repeated", "an invoice detail stands once", "leave out the second one"),
)  # fmt: skip

RULES = {name: Rule(name, asks, way_out) for name, asks, way_out in _TABLE}
"""By name."""
