"""Lines of the ledger as charges of FOCUS: the dataset Cost and Usage.

Invariant: the billed costs of a file add up to the statement's total, to the last digit: each charge has
its line's exact amount, and one more row holds what rounding the sum once makes of it.
Source: `reference/focus-mapping.md §3, §4`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeAlias

from accounting.exports.columns import Column, Value
from accounting.focus.model import FocusColumn, Version, columns_of
from accounting.ledger.calendar import local_date
from accounting.ledger.pricing import SKU_ENERGY, SKU_IDLE, SKU_SLICE, SKU_UNALLOCATED
from accounting.ledger.rounding import (
    EXACT,
    MJ,
    PPM_MS,
    amount_of,
    card_factor,
    card_hours,
    plain,
    to_currency,
)
from accounting.periods.coverage import Coverage
from accounting.periods.ledger_stream import Device, Frame, Streamed
from accounting.store.models import LedgerLine
from contract.units import MJ_PER_KWH

Charge: TypeAlias = dict[str, Value]
"""A row by column; what is not in it is null."""

SERVICE = "HAMi GPU Sharing"
CATEGORY, SUBCATEGORY = "Compute", "Containers"

QUANTITY_DIGITS, PRICE_DIGITS, COST_DIGITS = 14, 16, 17
"""After the point. A ppm·ms is 2.8e-13 hours, so no two quantities look alike."""

_DIGITS = {"cost": COST_DIGITS, "price": PRICE_DIGITS, "quantity": QUANTITY_DIGITS}
_METERS = {
    SKU_SLICE: "GPU slice hours",
    SKU_IDLE: "GPU idle hours",
    SKU_UNALLOCATED: "GPU hours without an allocation",
    SKU_ENERGY: "GPU energy",
}
_UNITS = {PPM_MS: "GPU-Hours", MJ: "kWh"}

_NOT_EMITTED = frozenset(
    {
        "BillingAccountType",
        "SubAccountType",
        "AvailabilityZone",
        "RegionId",
        "RegionName",
        "CapacityReservationId",
        "CapacityReservationStatus",
        "CommitmentDiscountCategory",
        "CommitmentDiscountId",
        "CommitmentDiscountName",
        "CommitmentDiscountQuantity",
        "CommitmentDiscountType",
        "CommitmentDiscountUnit",
        "CommitmentProgramEligibilityDetails",
        "ContractApplied",
        "AllocatedMethodDetails",
        "AllocatedMethodId",
        "AllocatedResourceId",
        "AllocatedResourceName",
        "AllocatedTags",
    }
)
_ONLY_IN_1_2 = frozenset(
    {
        # The official validator of 1.2 asks for these, although their conditions do not hold for us.
        "PricingCurrency",
        "PricingCurrencyContractedUnitPrice",
        "PricingCurrencyEffectiveCost",
        "PricingCurrencyListUnitPrice",
        "CommitmentDiscountStatus",
    }
)
OWN_COLUMNS = (
    Column("x_CardFactor", "decimal", 6),
    Column("x_ClusterId"),
    Column("x_CorrectsPeriod"),
    Column("x_CoveragePct", "decimal", 4),
    Column("x_DiscountPercent", "decimal", 17),
    Column("x_GpuModel"),
    Column("x_GpuUuid"),
    Column("x_LineKind"),
    Column("x_NodeName"),
    Column("x_PolicyVersion", "count"),
    Column("x_UsageRevision", "count"),
)


def charge_columns(version: Version) -> list[Column]:
    """The columns of the dataset in a version: those of FOCUS that we can fill, then ours."""
    found = [
        file_column(column)
        for name, column in columns_of("cost-and-usage", version).items()
        if name not in _NOT_EMITTED and (version == "1.2" or name not in _ONLY_IN_1_2)
    ]
    return [*found, *OWN_COLUMNS]


def file_column(column: FocusColumn) -> Column:
    """A column of FOCUS as a file holds it."""
    if column.kind in _DIGITS:
        return Column(column.name, "decimal", _DIGITS[column.kind], has_point=True)
    return Column(column.name, "instant" if column.kind == "instant" else "text")


@dataclass(slots=True)
class Charges:
    """Makes charges of lines, and adds them up.

    Attributes:
        frame: What they are of; its account has a currency.
        coverage: By device.
        methods: By policy version: what the policy says.
        billed: The sum of the charges made so far.
    """

    frame: Frame
    coverage: Mapping[Device, Coverage]
    methods: Mapping[int, str]
    billed: Decimal = Decimal(0)
    unrated: set[str] = field(default_factory=set)
    """Models of lines that have no amount for want of a price; such lines make no charge."""

    @property
    def currency(self) -> str:
        """Of every cost."""
        assert self.frame.currency is not None
        return self.frame.currency

    @property
    def invoice(self) -> str:
        """The number of the newest statement of a closed month; a provisional one of its own before."""
        if self.frame.documents:
            return self.frame.documents[-1].number
        return f"{self.frame.issuer}-{self.frame.account}-{self.frame.period}-provisional"

    @property
    def total(self) -> Decimal:
        """What the statement says: the sum, rounded once."""
        return to_currency(self.billed, self.currency)

    def of(self, lines: Iterable[Streamed]) -> Iterator[Charge]:
        """A charge for each line, then the rounding, then the credit note where the statement is void."""
        for one in lines:
            if one.line.amount is None:
                self.unrated.add(one.line.model)
            else:
                self.billed = EXACT.add(self.billed, one.line.amount)
                yield self._charge(one, one.line.amount)
        total = self.total
        residue = EXACT.subtract(total, self.billed)
        if residue:
            self.billed = total
            yield self._whole("Adjustment", "rounding", residue, f"Rounding of the sum to {self.currency}")
        note = self.frame.documents[-1].note if self.frame.documents else None
        if note is not None:
            what = f"Credit note {note} voids statement {self.invoice}"
            yield self._whole("Credit", "credit-note", EXACT.minus(total), what) | self._invoiced(
                note, self.frame.root, "credit-note", ""
            )

    def _charge(self, one: Streamed, amount: Decimal) -> Charge:
        line = one.line
        is_correction = line.kind == "correction"
        kind = (line.corrects_kind or "") if is_correction else line.kind
        is_usage = kind in {"usage", "energy", "idle", "unallocated"}
        sku = _sku_id(line) if is_usage else ""
        detail = f"correction-{kind}" if is_correction else kind
        return (
            self._base()
            | self._invoiced(self.invoice, one.tenant, detail, sku)
            | _costs(amount)
            | (self._priced(line, sku, amount) if is_usage else {})
            | _resource(line, kind)
            | self._own(line, kind, one.corrects_period)
            | {
                "SubAccountId": one.tenant,
                "SubAccountName": one.tenant_name,
                "ChargeCategory": "Usage" if is_usage else "Adjustment",
                "ChargeClass": "Correction" if is_correction else None,
                "ChargeFrequency": "Usage-Based" if is_usage else "One-Time",
                "ChargeDescription": self._description(line, kind),
                "ChargePeriodStart": line.charge_from_ms // 1_000 * 1_000,
                "ChargePeriodEnd": -(-line.charge_to_ms // 1_000) * 1_000,
                "PricingCurrencyEffectiveCost": amount,
            }
        )

    def _base(self) -> Charge:
        frame = self.frame
        return {
            "BillingAccountId": frame.account,
            "BillingAccountName": frame.account,
            "BillingCurrency": frame.currency,
            "BillingPeriodStart": frame.starts_at_ms,
            "BillingPeriodEnd": frame.ends_at_ms,
            "HostProviderName": frame.issuer,
            "InvoiceIssuerName": frame.issuer,
            "ServiceProviderName": frame.issuer,
            "ProviderName": frame.issuer,
            "PublisherName": frame.issuer,
            "ServiceCategory": CATEGORY,
            "ServiceName": SERVICE,
            "ServiceSubcategory": SUBCATEGORY,
            "PricingCurrency": frame.currency,
        }

    def _whole(self, category: str, kind: str, amount: Decimal, description: str) -> Charge:
        """A charge over all that the file is of."""
        frame = self.frame
        return (
            self._base()
            | self._invoiced(self.invoice, frame.root, kind, "")
            | _costs(amount)
            | {
                "SubAccountId": frame.root,
                "SubAccountName": frame.root_name,
                "ChargeCategory": category,
                "ChargeFrequency": "One-Time",
                "ChargeDescription": description,
                "ChargePeriodStart": frame.starts_at_ms,
                "ChargePeriodEnd": frame.ends_at_ms,
                "PricingCurrencyEffectiveCost": amount,
                "x_LineKind": kind,
                "x_UsageRevision": 0,
            }
        )

    def _invoiced(self, invoice: str, tenant: str, kind: str, sku: str) -> Charge:
        parts = (invoice, tenant, kind, sku) if sku else (invoice, tenant, kind)
        return {"InvoiceId": invoice, "InvoiceDetailId": ":".join(parts)}

    def _priced(self, line: LedgerLine, sku: str, amount: Decimal) -> Charge:
        """SKU, quantities and prices; of a correction between prices only the SKU: it has no one price."""
        found: Charge = {"SkuId": sku, "SkuMeter": _METERS[line.sku]}
        price = line.unit_price
        if price is None or line.price_version_id is None:
            return found
        percent = line.discount_percent
        if amount_of(line.quantity, price, unit=line.unit, percent=percent) != amount:
            return found
        net = EXACT.divide(EXACT.multiply(price, 100 - (percent or Decimal(0))), Decimal(100))
        list_price, contracted_price = _digits(price, PRICE_DIGITS), _digits(net, PRICE_DIGITS)
        unit = _UNITS[line.unit]
        return found | {
            "SkuPriceId": f"{sku}@{line.price_version_id}",
            "SkuPriceDetails": self._details(line),
            "ConsumedQuantity": quantity(line.own_quantity, line.unit),
            "ConsumedUnit": unit,
            "PricingQuantity": quantity(line.quantity, line.unit),
            "PricingUnit": unit,
            "PricingCategory": "Standard",
            "ListUnitPrice": list_price,
            "ContractedUnitPrice": contracted_price,
            "PricingCurrencyListUnitPrice": list_price,
            "PricingCurrencyContractedUnitPrice": contracted_price,
            "ListCost": amount_of(line.quantity, price, unit=line.unit),
        }

    def _details(self, line: LedgerLine) -> str | None:
        if line.sku == SKU_ENERGY:
            return None
        found = {"GpuCount": 1, "InstanceSeries": line.model}
        method = self._method(line)
        return _json(found if method is None else found | {"x_AllocationMethod": method})

    def _method(self, line: LedgerLine) -> str | None:
        if line.policy_version_id is not None:
            return self.methods.get(line.policy_version_id)
        return "dominant" if line.sku == SKU_SLICE else None

    def _own(self, line: LedgerLine, kind: str, corrects_period: str | None) -> Charge:
        coverage = self.coverage.get((line.cluster, line.node_uid, line.device_uuid))
        ratio = None if coverage is None else coverage.ratio
        return {
            "x_CardFactor": card_factor(line.own_quantity, line.quantity) if line.unit == PPM_MS else None,
            "x_ClusterId": line.cluster or None,
            "x_CorrectsPeriod": corrects_period,
            "x_CoveragePct": None if ratio is None else _digits(ratio * 100, 4),
            "x_DiscountPercent": line.discount_percent,
            "x_GpuModel": line.model or None,
            "x_GpuUuid": line.device_uuid or None,
            "x_LineKind": kind,
            "x_NodeName": line.node or None,
            "x_PolicyVersion": line.policy_version_id,
            "x_UsageRevision": line.revision,
        }

    def _description(self, line: LedgerLine, kind: str) -> str:
        if line.kind == "adjustment":
            return f"Adjustment: {line.reason}"
        amount = (
            f"{plain(card_hours(line.quantity, 4))} card-hours"
            if line.unit == PPM_MS
            else f"{plain(quantity(line.quantity, MJ).quantize(Decimal('0.0001')))} kWh"
        )
        text = f"{_thing(line, kind)}, {amount}"
        if line.kind != "correction":
            return text if kind != "distribution" else f"{text} ({line.reason})"
        day = local_date(line.corrects_day_ms or 0, self.frame.time_zone).isoformat()
        return f"Correction of {day}: {text} ({line.reason})"


def _costs(amount: Decimal) -> Charge:
    return dict.fromkeys(("BilledCost", "EffectiveCost", "ContractedCost", "ListCost"), amount)


def quantity(whole: int, unit: str) -> Decimal:
    """A whole quantity of the ledger in what FOCUS counts: hours of a card, or kWh."""
    if unit == PPM_MS:
        return card_hours(whole, QUANTITY_DIGITS)
    return _digits(EXACT.divide(Decimal(whole), Decimal(MJ_PER_KWH)), QUANTITY_DIGITS)


def _digits(number: Decimal, digits: int) -> Decimal:
    return number.quantize(Decimal(1).scaleb(-digits), context=EXACT)


def _slug(model: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-") or "unknown"


def _sku_id(line: LedgerLine) -> str:
    return line.sku if line.sku == SKU_ENERGY else f"{line.sku}:{_slug(line.model)}"


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _resource(line: LedgerLine, kind: str) -> Charge:
    """What the charge is for: a slice, a card, the idle cards of a model; nothing on an adjustment."""
    if not line.cluster:
        return {}
    root = f"hami://{line.cluster}"
    if kind == "usage":
        where = f"{root}/{line.namespace}/{line.resource_key}/{line.container}/{line.device_uuid}"
        name, what = f"{line.namespace}/{line.pod}", "GPU slice"
    elif line.sku == SKU_UNALLOCATED:
        where = f"hami://{line.resource_key}"
        name, what = f"{line.namespace}/{line.pod}", "GPU use"
    elif kind == "distribution":
        where = f"{root}/idle/{_slug(line.model)}"
        name, what = f"{line.model} in {line.cluster}", "GPU pool"
    else:
        where = f"{root}/{line.node}/{line.device_uuid}"
        name, what = f"{line.node}/{line.model}", "GPU"
    tags = {
        "k8s/cluster": line.cluster,
        "k8s/node": line.node,
        "k8s/namespace": line.namespace,
        "k8s/pod": line.pod,
        "k8s/container": line.container,
    }
    return {
        "ResourceId": where,
        "ResourceName": name,
        "ResourceType": what,
        "Tags": _json({key: value for key, value in tags.items() if value}),
    }


def _thing(line: LedgerLine, kind: str) -> str:
    where = f"{line.model} on {line.node}" if line.node else line.model
    if line.sku == SKU_ENERGY:
        return f"Energy of {where}" + (", without an allocation" if kind == "unallocated" else "")
    pod = f"{line.namespace}/{line.pod} ({line.container})"
    match kind:
        case "usage":
            return f"Slice of {where}, held by {pod}"
        case "unallocated":
            return f"Use of {where} without an allocation, by {pod}"
        case "distribution":
            return f"Idle capacity of {line.model} in {line.cluster}"
        case _:
            return f"Idle capacity of {where}"
