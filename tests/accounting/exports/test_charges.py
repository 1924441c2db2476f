"""Lines of the ledger as charges of FOCUS, worked out by hand (`reference/focus-mapping.md §4, §7`)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from accounting.access.viewer import COMMAND_LINE
from accounting.errors import InvalidError
from accounting.ledger.calendar import parse_month
from accounting.periods.distribution import post_distribution
from accounting.prices.discounts import set_discount
from accounting.prices.policies import set_policy
from accounting.tenants.tree import find_tenant
from contract.facts import AllocationFact, DeviceUsageFact, PresenceFact, SliceUsageFact, UnallocatedUseFact
from contract.ids import ClusterCode, DeviceUuid, EpochId, NodeUid, PodUid, TenantKey
from tests.accounting.exports.files import exported, rows, total

if TYPE_CHECKING:
    from tests.accounting.periods.conftest import Ledger

At = Callable[..., int]
Allocation = Callable[..., AllocationFact]
Presence = Callable[..., PresenceFact]
Usage = Callable[..., SliceUsageFact]

HOUR = 3_600_000
KWH = 3_600_000_000
H200 = "NVIDIA H200"


@pytest.fixture
def h200(ledger: Ledger, at: At, allocation: Allocation, presence: Presence) -> Ledger:
    """The worked example: 4.00 EUR an hour; nlp 25 % by memory, less 20 %; cv 25 % by cores; half idle."""
    ledger.price("4.00", model=H200)
    facts: list[PresenceFact | AllocationFact] = [
        presence(at("13:00"), at("14:00"), model=H200, registered_mib=144_000)
    ]
    for key, mib, cores in (("nlp", 36_000, 10), ("cv", 18_000, 25)):
        facts.append(
            allocation(
                pod_uid=key, pod=f"pod-{key}", tenant_key=TenantKey(key), model=H200, mem_mib=mib,
                core_percent=cores, bound_at_ms=at("13:00"), started_at_ms=at("13:00"),
                confirmed_at_ms=at("14:00"), ended_at_ms=at("14:00"), end_kind="observed",
            )
        )  # fmt: skip
    ledger.send(facts, now_ms=at("14:00"))
    ledger.rate(at("14:00"))
    with ledger.database.writing() as session:
        set_discount(
            session, find_tenant(session, COMMAND_LINE, "nlp"), percent=Decimal(20), valid_from_ms=0,
            by=COMMAND_LINE, now_ms=1,
        )  # fmt: skip
    ledger.rate(at("14:00"))
    return ledger


PRICES = (
    "SkuId",
    "PricingQuantity",
    "ListUnitPrice",
    "ContractedUnitPrice",
    "ListCost",
    "ContractedCost",
    "BilledCost",
    "EffectiveCost",
)


def test_the_worked_example_of_a_shared_h200(h200: Ledger) -> None:
    found = {
        row["SubAccountId"]: tuple(row[name] for name in PRICES)
        for account in ("acme", "platform")
        for row in rows(exported(h200, "focus", account=account))
    }
    assert found == {
        "acme/nlp": ("gpu-slice:nvidia-h200", "0.25", "4.0", "3.2", "1.0", "0.8", "0.8", "0.8"),
        "acme/cv": ("gpu-slice:nvidia-h200", "0.25", "4.0", "4.0", "1.0", "1.0", "1.0", "1.0"),
        "platform/idle": ("gpu-idle:nvidia-h200", "0.5", "4.0", "4.0", "2.0", "2.0", "2.0", "2.0"),
    }


def test_each_charge_says_what_it_is_for(h200: Ledger) -> None:
    row = next(row for row in rows(exported(h200, "focus")) if row["SubAccountId"] == "acme/cv")
    expected = {
        "ChargePeriodStart": "2026-10-01T13:00:00Z",
        "ChargePeriodEnd": "2026-10-01T14:00:00Z",
        "BillingPeriodStart": "2026-09-30T22:00:00Z",
        "BillingPeriodEnd": "2026-10-31T23:00:00Z",
        "ChargeCategory": "Usage",
        "ChargeFrequency": "Usage-Based",
        "ConsumedQuantity": "0.25",
        "ConsumedUnit": "GPU-Hours",
        "ResourceName": "team/pod-cv",
        "ResourceType": "GPU slice",
        "ServiceCategory": "Compute",
        "SkuPriceId": "gpu-slice:nvidia-h200@1",
        "InvoiceId": "SM-acme-2026-10-provisional",
        "x_GpuModel": "NVIDIA H200",
        "x_CoveragePct": "100",
    }
    assert {name: row[name] for name in expected} == expected
    assert (
        row["ChargeDescription"]
        == "Slice of NVIDIA H200 on node-1, held by team/pod-cv (main), 0.25 card-hours"
    )


def test_1_2_names_its_providers_as_it_was_and_prices_in_the_billing_currency(h200: Ledger) -> None:
    row = next(
        row for row in rows(exported(h200, "focus", version="1.2")) if row["SubAccountId"] == "acme/nlp"
    )
    assert not row.keys() & {"ServiceProviderName", "HostProviderName", "InvoiceDetailId"}
    expected = {
        "ProviderName": "SM",
        "PublisherName": "SM",
        "PricingCurrency": "EUR",
        "PricingCurrencyListUnitPrice": "4.0",
        "PricingCurrencyContractedUnitPrice": "3.2",
        "PricingCurrencyEffectiveCost": "0.8",
        "CommitmentDiscountStatus": "",
    }
    assert {name: row[name] for name in expected} == expected


def test_over_booking_shows_as_consumed_less_priced_quantity(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    ledger.price("3.00")
    facts: list[PresenceFact | AllocationFact] = [presence(at("13:00"), at("14:00"))]
    for key, cores in (("a", 100), ("b", 50)):
        facts.append(
            allocation(
                pod_uid=key, tenant_key=TenantKey(key), core_percent=cores, mem_mib=0,
                bound_at_ms=at("13:00"), confirmed_at_ms=at("14:00"), ended_at_ms=at("14:00"),
                end_kind="observed",
            )
        )  # fmt: skip
    ledger.send(facts, now_ms=at("14:00"))
    ledger.rate(at("14:00"))
    charges = {row["SubAccountId"]: row for row in rows(exported(ledger, "focus"))}
    # 1.5 cards' worth on one card: two thirds of each share is charged, 2 EUR and 1 EUR of 3.
    assert [
        (charges[tenant]["ConsumedQuantity"], charges[tenant]["x_CardFactor"])
        for tenant in ("acme/a", "acme/b")
    ] == [("1.0", "0.666667"), ("0.5", "0.666667")]
    assert total(list(charges.values())) == 3


def test_a_sum_that_is_no_whole_cent_gets_a_rounding_charge(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    ledger.price("1.00")
    held = allocation(
        core_percent=100, bound_at_ms=at("13:00"), confirmed_at_ms=at("13:20"),
        ended_at_ms=at("13:20"), end_kind="observed",
    )  # fmt: skip
    ledger.send([presence(at("13:00"), at("14:00")), held], now_ms=at("14:00"))
    ledger.rate(at("14:00"))
    usage, rounding = rows(exported(ledger, "focus"))
    # 20 minutes at 1.00: a third, to the last digit that is kept.
    assert (usage["BilledCost"], usage["PricingQuantity"]) == ("0.33333333333333333", "0.33333333333333")
    assert (rounding["ChargeCategory"], rounding["BilledCost"]) == ("Adjustment", "-0.00333333333333333")
    assert total([usage, rounding]) == Decimal("0.33")


def test_an_adjustment_is_one_with_its_reason(october: Ledger, at: At) -> None:
    october.adjust("acme/team", "-1.25", "an outage", now_ms=at("12:00", 6))
    october.adjust("acme/team", "-1.25", "another outage", now_ms=at("12:00", 6))
    found = [row for row in rows(exported(october, "focus")) if row["ChargeCategory"] == "Adjustment"]
    assert [
        (row["ChargeDescription"], row["BilledCost"], row["ListCost"], row["SkuId"]) for row in found
    ] == [
        ("Adjustment: an outage", "-1.25", "-1.25", ""),
        ("Adjustment: another outage", "-1.25", "-1.25", ""),
    ]


def test_idle_capacity_that_is_handed_on_moves_and_changes_no_total(h200: Ledger) -> None:
    with h200.database.writing() as session:
        set_policy(session, kind="idle", value="even", valid_from_ms=0, by=COMMAND_LINE, now_ms=1)
    with h200.database.writing() as session:
        assert post_distribution(session, "acme", parse_month("2026-10")) == 3
    moved = [
        row
        for account in ("acme", "platform")
        for row in rows(exported(h200, "focus", account=account))
        if row["x_LineKind"] == "distribution"
    ]
    # Half a card-hour idle at 4.00, in two equal parts.
    assert {row["SubAccountId"]: row["BilledCost"] for row in moved} == {
        "acme/cv": "1.0",
        "acme/nlp": "1.0",
        "platform/idle": "-2.0",
    }
    assert {row["ChargeCategory"] for row in moved} == {"Adjustment"}
    assert total(rows(exported(h200, "focus", account="platform"))) == 0


def use_without_allocation(hour_ms: int) -> UnallocatedUseFact:
    fields: dict[str, Any] = dict.fromkeys(
        (
            "unknown_ms", "sm_down_ppm_ms", "mem_used_mib_ms", "mem_peak_mib", "blocked_ms", "over_limit_ms",
        ),
        0,
    )  # fmt: skip
    return UnallocatedUseFact(
        cluster=ClusterCode("c"), pod_uid=PodUid("bypass"), container="main", device_uuid=DeviceUuid("GPU-1"),
        node_uid=NodeUid("node-uid-1"), hour_ms=hour_ms, epoch=EpochId("e1"), revision=1, from_ms=hour_ms,
        to_ms=hour_ms + HOUR, covered_ms=HOUR, sm_ppm_ms=HOUR * 250_000, energy_active_mj=KWH // 10,
        source="nvml", namespace="other", pod="sneaky", tenant_key=TenantKey("sneaky"), **fields,
    )  # fmt: skip


def test_energy_is_in_kwh_and_use_without_an_allocation_in_hours(
    ledger: Ledger, at: At, presence: Presence
) -> None:
    with ledger.database.writing() as session:
        set_policy(session, kind="unallocated", value="price", valid_from_ms=0, by=COMMAND_LINE, now_ms=1)
    ledger.price("4.00")
    ledger.price("0.30", sku="gpu-energy", model="")
    hour_ms = at("13:00")
    board = DeviceUsageFact(
        cluster=ClusterCode("c"), device_uuid=DeviceUuid("GPU-1"), node_uid=NodeUid("node-uid-1"),
        hour_ms=hour_ms, epoch=EpochId("e1"), revision=1, from_ms=hour_ms, to_ms=hour_ms + HOUR,
        covered_ms=HOUR, busy_ppm_ms=0, energy_mj=KWH // 2, energy_idle_mj=KWH * 4 // 10,
        energy_unattributed_mj=0, sm_unattributed_ppm_ms=0,
    )  # fmt: skip
    ledger.send(
        [presence(hour_ms, hour_ms + HOUR), board, use_without_allocation(hour_ms)], now_ms=at("15:00")
    )
    ledger.rate(at("15:00"))
    found = {
        (row["SubAccountId"], row["SkuId"]): (row["PricingQuantity"], row["PricingUnit"], row["BilledCost"])
        for account in ("acme", "platform")
        for row in rows(exported(ledger, "focus", account=account))
    }
    assert found == {
        # A quarter of the card by SM time at 4.00, and 0.1 kWh at 0.30.
        ("acme/sneaky", "gpu-unallocated:tesla-t4"): ("0.25", "GPU-Hours", "1.0"),
        ("acme/sneaky", "gpu-energy"): ("0.1", "kWh", "0.03"),
        # What the idle board drew.
        ("platform/idle", "gpu-idle:tesla-t4"): ("1.0", "GPU-Hours", "4.0"),
        ("platform/idle", "gpu-energy"): ("0.4", "kWh", "0.12"),
    }


def test_a_model_without_a_price_is_refused_with_its_name_and_the_way_out(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    held = allocation(bound_at_ms=at("13:00"), confirmed_at_ms=at("14:00"))
    ledger.send([presence(at("13:00"), at("14:00")), held], now_ms=at("14:00"))
    ledger.rate(at("14:00"))
    with pytest.raises(InvalidError, match=r"no price for Tesla T4, .* slicemeter accounting price set"):
        exported(ledger, "focus")
    (line,) = [row for row in rows(exported(ledger, "csv")) if row["kind"] == "usage"]
    assert (line["amount"], line["shown"], line["card_hours"]) == ("", "", "0.3")


def test_an_account_in_no_national_currency_is_refused(ledger: Ledger) -> None:
    ledger.account("credits", currency="GPU")
    with pytest.raises(InvalidError, match="needs a national currency"):
        exported(ledger, "focus", account="credits")


def test_1_2_has_no_other_dataset(ledger: Ledger) -> None:
    with pytest.raises(InvalidError, match=r"FOCUS 1\.2 has no dataset invoice-detail"):
        exported(ledger, "focus", version="1.2", dataset="invoice-detail")


def test_a_month_without_lines_is_a_file_with_a_heading(ledger: Ledger) -> None:
    assert rows(exported(ledger, "focus")) == []
    assert rows(exported(ledger, "csv")) == []
    assert exported(ledger, "json") == b"[]\n"
