"""Policies and discounts by validity (`reference/ledger.md §2, §4`), worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import delete, insert, update
from sqlalchemy.exc import DBAPIError

from accounting.access.viewer import COMMAND_LINE
from accounting.errors import ConflictError, InvalidError
from accounting.prices.discounts import list_discounts, parse_percent, set_discount
from accounting.prices.policies import list_policies, set_policy
from accounting.store.database import Database
from accounting.store.models import PolicyVersion, PriceVersion
from accounting.tenants.tree import find_tenant
from contract.facts import AllocationFact, PresenceFact

if TYPE_CHECKING:
    from tests.accounting.periods.conftest import Ledger

HOUR = 3_600_000
CARD_HOUR = 3_600_000_000_000

At = Callable[..., int]
Allocation = Callable[..., AllocationFact]
Presence = Callable[..., PresenceFact]


def set_share(
    database: Database, value: str, from_ms: int, to_ms: int | None = None, reason: str | None = None
) -> int:
    with database.writing() as session:
        return set_policy(
            session, kind="share", value=value, valid_from_ms=from_ms, valid_to_ms=to_ms, reason=reason,
            by=COMMAND_LINE, now_ms=7,
        ).id  # fmt: skip


def discount(ledger: Ledger, tenant: str, percent: str, from_ms: int = 0, reason: str | None = None) -> int:
    with ledger.database.writing() as session:
        return set_discount(
            session, find_tenant(session, COMMAND_LINE, tenant), percent=Decimal(percent),
            valid_from_ms=from_ms, reason=reason, by=COMMAND_LINE, now_ms=7,
        ).id  # fmt: skip


def two_hours(ledger: Ledger, at: At, allocation: Allocation, presence: Presence) -> None:
    """Tenant `team` holds a tenth of the memory and 40 % of the cores from 10:00 to 12:00, at 2.00."""
    ledger.price("2.00", model="")
    ledger.send(
        [
            presence(at("10:00"), at("12:00"), registered_mib=16_000),
            allocation(
                mem_mib=1_600, core_percent=40, bound_at_ms=at("10:00"),
                ended_at_ms=at("12:00"), end_kind="observed", confirmed_at_ms=at("12:00"),
            ),
        ],
        now_ms=at("13:00"),
    )  # fmt: skip
    ledger.rate(at("13:00"))


def usage(ledger: Ledger) -> list[tuple[int, int, Decimal | None, int | None]]:
    return sorted(
        (line.charge_from_ms, line.quantity, line.amount, line.policy_version_id)
        for _, line in ledger.lines()
        if line.kind == "usage"
    )


def test_a_share_policy_holds_from_its_instant_on_and_stands_on_the_line(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    two_hours(ledger, at, allocation, presence)
    memory = set_share(ledger.database, "memory", at("11:00"), at("11:30"))
    whole = set_share(ledger.database, "whole_card", at("11:30"))
    # Nothing changes before the next rating.
    assert usage(ledger) == [(at("10:00"), CARD_HOUR * 8 // 10, Decimal("1.60"), None)]
    ledger.rate(at("13:00"))
    # dominant max(0.1, 0.4) for an hour, memory 0.1 for half an hour, the whole card for half an hour.
    assert usage(ledger) == [
        (at("10:00"), CARD_HOUR * 4 // 10, Decimal("0.80"), None),
        (at("11:00"), CARD_HOUR // 20, Decimal("0.10"), memory),
        (at("11:30"), CARD_HOUR // 2, Decimal("1.00"), whole),
    ]
    assert ledger.verify().findings == []


def test_a_policy_is_corrected_by_a_version_over_the_same_validity_with_a_reason(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    two_hours(ledger, at, allocation, presence)
    wrong = set_share(ledger.database, "whole_card", 0)
    with pytest.raises(InvalidError, match=r"share policy is whole_card from .* say why with --reason"):
        set_share(ledger.database, "memory", 0)
    right = set_share(ledger.database, "memory", 0, reason="typed the wrong word")
    ledger.rate(at("13:00"))
    assert usage(ledger) == [(at("10:00"), CARD_HOUR // 5, Decimal("0.40"), right)]
    with ledger.database.reading() as session:
        versions = [
            (one.id, one.supersedes_id, one.superseded_at_ms, one.reason) for one in list_policies(session)
        ]
    assert versions == [(wrong, None, 7, None), (right, wrong, None, "typed the wrong word")]


def test_policies_that_would_overlap_are_refused_with_the_way_out(ledger: Ledger) -> None:
    set_share(ledger.database, "memory", 1_000, 2_000)
    with pytest.raises(ConflictError, match="must not overlap: supersede it over the same validity"):
        set_share(ledger.database, "dominant", 1_500, 2_500)


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("idle", "memory", 'idle policy "memory" is unknown; there are keep, even, by_allocation'),
        ("shares", "memory", 'policy "shares" is unknown; there are share, idle, energy, unallocated'),
    ],
)
def test_unknown_policies_are_refused(ledger: Ledger, kind: str, value: str, said: str) -> None:
    with ledger.database.writing() as session, pytest.raises(InvalidError, match=said):
        set_policy(session, kind=kind, value=value, valid_from_ms=0, by=COMMAND_LINE, now_ms=0)


def test_the_database_itself_refuses_live_versions_that_overlap(ledger: Ledger) -> None:
    set_share(ledger.database, "memory", 1_000)
    ledger.price("2.00", from_ms=1_000)
    policy = {"kind": "share", "value": "dominant", "valid_from_ms": 500, "valid_to_ms": 1_001}
    price = {
        "book": "list", "sku": "gpu-slice", "model": "Tesla T4", "currency": "EUR", "unit": "card-hour",
        "unit_price": Decimal(1), "valid_from_ms": 500, "valid_to_ms": 1_001,
    }  # fmt: skip
    recorded = {"recorded_at_ms": 0, "recorded_by": "hand"}
    for table, row in ((PolicyVersion, policy), (PriceVersion, price)):
        with pytest.raises(DBAPIError, match="overlap"), ledger.database.writing() as session:
            session.execute(insert(table), [row | recorded])
        # Up to where the other begins there is room.
        with ledger.database.writing() as session:
            session.execute(insert(table), [row | recorded | {"valid_to_ms": 1_000}])


def test_the_database_itself_lets_no_version_be_edited(ledger: Ledger) -> None:
    set_share(ledger.database, "memory", 1_000)
    change = update(PolicyVersion).values(value="dominant")
    for statement in (change, delete(PolicyVersion)):
        with pytest.raises(DBAPIError, match="never edited"), ledger.database.writing() as session:
            session.execute(statement)


def test_a_tenants_discount_lowers_amounts_and_no_quantity(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    two_hours(ledger, at, allocation, presence)
    discount(ledger, "acme/team", "12.5", at("11:00"))
    ledger.rate(at("13:00"))
    lines = [line for _, line in ledger.lines() if line.kind == "usage"]
    # 0.4 × 2.00 an hour: 0.80, then 0.80 less an eighth.
    assert [(line.quantity, line.unit_price, line.discount_percent, line.amount) for line in lines] == [
        (CARD_HOUR * 4 // 10, Decimal("2.00"), None, Decimal("0.80")),
        (CARD_HOUR * 4 // 10, Decimal("2.00"), Decimal("12.5"), Decimal("0.70")),
    ]
    assert ledger.statement("team").total == Decimal("1.50")
    assert ledger.verify().findings == []


def test_the_nearest_tenants_discount_holds_and_zero_is_one(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    two_hours(ledger, at, allocation, presence)
    discount(ledger, "acme", "50")
    ledger.rate(at("13:00"))
    assert ledger.statement("team").total == Decimal("0.80")
    discount(ledger, "acme/team", "0")
    ledger.rate(at("13:00"))
    assert ledger.statement("team").total == Decimal("1.60")


def test_a_mistyped_discount_is_superseded_and_stays_readable(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    two_hours(ledger, at, allocation, presence)
    wrong = discount(ledger, "acme/team", "50")
    with pytest.raises(InvalidError, match='tenant "acme/team" has 50 per cent off'):
        discount(ledger, "acme/team", "5")
    right = discount(ledger, "acme/team", "5", reason="one key too many")
    ledger.rate(at("13:00"))
    # 1.60 less a twentieth.
    assert ledger.statement("team").total == Decimal("1.52")
    with ledger.database.reading() as session:
        kept = [(one.id, one.percent, one.supersedes_id) for _, one in list_discounts(session)]
    assert kept == [(wrong, Decimal(50), None), (right, Decimal(5), wrong)]


@pytest.mark.parametrize("text", ["-1", "100.1", "NaN", "ten", "0.0000000001"])
def test_a_discount_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="discount"):
        parse_percent(text)


def test_idle_capacity_costs_what_slices_cost_unless_it_has_a_price_and_zero_is_one(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    two_hours(ledger, at, allocation, presence)

    def idle() -> Decimal | None:
        (line,) = [line for _, line in ledger.lines() if line.kind == "idle"]
        return line.amount

    # 0.6 × 2 h at 2.00.
    assert idle() == Decimal("2.40")
    ledger.price("0", model="", sku="gpu-idle")
    ledger.rate(at("13:00"))
    assert idle() == Decimal(0)


def test_an_open_price_that_was_typed_ten_times_too_high_is_superseded_and_the_open_month_is_right(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    ledger.price("32.0", from_ms=at("00:00"))
    held = allocation(
        mem_mib=16_000, core_percent=0, bound_at_ms=at("00:00"),
        ended_at_ms=at("00:00", 7), end_kind="observed", confirmed_at_ms=at("00:00", 7),
    )  # fmt: skip
    ledger.send([presence(at("00:00"), at("00:00", 7), registered_mib=16_000), held], now_ms=at("01:00", 7))
    ledger.rate(at("01:00", 7))
    # Six days of 24 hours.
    assert ledger.statement("team").total == Decimal("4608.00")
    ledger.price("3.20", from_ms=at("00:00"), reason="a slipped point")
    ledger.rate(at("01:00", 7))
    assert ledger.statement("team").total == Decimal("460.80")
    assert ledger.verify().findings == []
