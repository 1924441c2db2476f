"""From an amount back to what it is made of; each expected value is worked out beside it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from accounting.access.viewer import COMMAND_LINE, Viewer
from accounting.errors import InvalidError, NotFoundError
from accounting.periods.explain import Explanation, explain_day, explain_line
from accounting.prices.discounts import set_discount
from accounting.prices.policies import set_policy
from accounting.reports.explanation import explanation_document, explanation_table
from accounting.tenants.tree import find_tenant
from contract.facts import AllocationFact, PresenceFact, SliceUsageFact
from tests.accounting.periods.test_energy_lines import KWH, an_hour

if TYPE_CHECKING:
    from tests.accounting.periods.conftest import Ledger

HOUR = 3_600_000
CARD_MINUTE = 60_000_000_000

At = Callable[..., int]
Allocation = Callable[..., AllocationFact]
Presence = Callable[..., PresenceFact]
Usage = Callable[..., SliceUsageFact]

DAY = date(2026, 10, 1)


def explained(
    ledger: Ledger, tenant: str, viewer: Viewer = COMMAND_LINE, day: date = DAY
) -> list[Explanation]:
    with ledger.database.reading() as session:
        found = explain_day(session, viewer, tenant, day)
        session.expunge_all()
        return found


def shared_card(ledger: Ledger, at: At, allocation: Allocation, presence: Presence) -> None:
    """The example of segments: X 0.50 from 09:00 to 09:40, Y 0.75 from 09:30 to 10:00."""
    ledger.price("3.00", model="")
    facts: list[PresenceFact | AllocationFact] = [presence(at("09:00"), at("10:00"), registered_mib=16_000)]
    for pod, mib, start, end in (("x", 8_000, "09:00", "09:40"), ("y", 12_000, "09:30", "10:00")):
        facts.append(
            allocation(
                pod_uid=pod, pod=f"pod-{pod}", mem_mib=mib, core_percent=10, tenant_key=pod,
                bound_at_ms=at(start), ended_at_ms=at(end), end_kind="observed", confirmed_at_ms=at(end),
            )
        )  # fmt: skip
    ledger.send(facts, now_ms=at("12:00"))
    ledger.rate(at("12:00"))


def test_a_days_line_shows_segments_that_add_up_to_it(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    shared_card(ledger, at, allocation, presence)
    (one,) = explained(ledger, "acme/y")
    # 09:30–09:40: own 7.5 of 10 minutes, scaled by 1/1.25 to 6. 09:40–10:00: 15, with 5 idle.
    assert [(s.from_ms, s.to_ms, s.own_quantity, s.quantity) for s in one.steps] == [
        (at("09:30"), at("09:40"), CARD_MINUTE * 15 // 2, CARD_MINUTE * 6),
        (at("09:40"), at("10:00"), CARD_MINUTE * 15, CARD_MINUTE * 15),
    ]
    assert [step.idle_ppm_ms for step in one.steps] == [0, CARD_MINUTE * 5]
    assert [[(n.pod, n.charged_ppm_ms) for n in step.neighbours] for step in one.steps] == [
        [("pod-x", CARD_MINUTE * 4)],
        [],
    ]
    assert one.adds_up
    assert one.line.quantity == CARD_MINUTE * 21
    share = one.steps[0].share
    assert share is not None
    assert (share.policy, share.mem_mib, share.registered_mib, share.core_percent) == (
        "dominant",
        12_000,
        16_000,
        10,
    )
    assert share.own_units * 4 == share.whole * 3


def test_a_tenant_sees_its_neighbours_only_as_others(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    shared_card(ledger, at, allocation, presence)
    tenant = Viewer(name="t", role="tenant", tenant_path="acme/y")
    (one,) = explained(ledger, "acme/y", tenant)
    assert [step.neighbours for step in one.steps] == [[], []]
    assert [(step.others, step.others_charged_ppm_ms) for step in one.steps] == [(1, CARD_MINUTE * 4), (0, 0)]
    said = f"{explanation_document(one)} {explanation_table(one)}"
    assert "pod-x" not in said
    assert "acme/x" not in said


def test_a_foreign_line_looks_like_one_that_does_not_exist(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    shared_card(ledger, at, allocation, presence)
    tenant = Viewer(name="t", role="tenant", tenant_path="acme/y")
    (foreign,) = [line.id for path, line in ledger.lines() if path == "acme/x"]
    said = []
    for line_id in (foreign, 10**9):
        with ledger.database.reading() as session, pytest.raises(NotFoundError) as refused:
            explain_line(session, tenant, line_id)
        said.append(str(refused.value).replace(str(line_id), "N"))
    assert said[0] == said[1]
    with pytest.raises(NotFoundError):
        explained(ledger, "acme/x", tenant)


def test_every_line_of_a_busy_day_is_explained_to_the_last_unit(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence, slice_usage: Usage
) -> None:
    ledger.price("2.00", model="")
    ledger.price("2.50", model="", from_ms=at("10:20"))
    ledger.price("0.40", model="", sku="gpu-energy")
    with ledger.database.writing() as session:
        for kind, value, from_ms in (
            ("share", "whole_card", at("10:40")),
            ("energy", "none", at("10:30")),
            ("unallocated", "price", at("10:10")),
        ):
            set_policy(session, kind=kind, value=value, valid_from_ms=from_ms, by=COMMAND_LINE, now_ms=0)
    ledger.send(an_hour(at, allocation, presence, slice_usage), now_ms=at("12:00"))
    ledger.rate(at("12:00"))
    with ledger.database.writing() as session:
        root = find_tenant(session, COMMAND_LINE, "acme")
        set_discount(session, root, percent=Decimal(7), valid_from_ms=at("10:50"), by=COMMAND_LINE, now_ms=0)
    ledger.rate(at("12:00"))
    lines = [line.id for _, line in ledger.lines()]
    with ledger.database.reading() as session:
        found = [explain_line(session, COMMAND_LINE, line_id) for line_id in lines]
        assert all(one.steps for one in found)
        assert [one.line.id for one in found if not one.adds_up] == []
        session.expunge_all()
    # x: slice time cut at 10:20, 10:40 and 10:50; energy cut at 10:30 and 10:50 too, beside prices.
    assert len([one for one in found if one.tenant == "acme/x" and one.line.kind == "usage"]) == 4
    assert {one.line.kind for one in found} == {"usage", "idle", "energy", "unallocated"}


def test_energy_is_explained_by_what_it_was_drawn_for(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence, slice_usage: Usage
) -> None:
    ledger.price("0.40", model="", sku="gpu-energy")
    ledger.send(an_hour(at, allocation, presence, slice_usage), now_ms=at("12:00"))
    ledger.rate(at("12:00"))
    (one,) = [one for one in explained(ledger, "acme/x") if one.line.kind == "energy"]
    assert [(s.source, s.quantity, s.pod) for s in one.steps] == [
        ("idle_held", KWH * 1_375 // 10_000, "team/train · main"),
        ("active", KWH * 3 // 10, "team/train · main"),
    ]


def test_a_superseded_price_stays_beside_the_one_that_holds(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    shared_card(ledger, at, allocation, presence)
    ledger.price("0.30", model="", reason="a slipped point")
    ledger.rate(at("12:00"))
    (one,) = explained(ledger, "acme/y")
    assert [(version.unit_price, version.reason) for version in one.prices] == [
        (Decimal("0.30"), "a slipped point"),
        (Decimal("3.00"), None),
    ]
    table = explanation_table(one)
    # 21 card-minutes at 0.30.
    assert "× 0.3 EUR = 0.105 EUR" in table
    assert "price version 1: 3 EUR a card-hour from 1970-01-01T00:00:00Z, superseded" in table
    assert "2 steps: 0.3500, which adds up to the line" in table


def test_measured_hours_stand_beside_and_what_was_not_measured_is_null(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence, slice_usage: Usage
) -> None:
    ten, noon = at("10:00"), at("12:00")
    ledger.price("2.00", model="")
    ledger.send(
        [
            presence(ten, noon, registered_mib=16_000),
            allocation(bound_at_ms=ten, ended_at_ms=noon, end_kind="observed", confirmed_at_ms=noon),
            slice_usage(
                hour_ms=ten, from_ms=ten, to_ms=ten + HOUR, covered_ms=HOUR, sm_ppm_ms=CARD_MINUTE * 6,
                mem_peak_mib=3_000,
            ),
        ],
        now_ms=noon,
    )  # fmt: skip
    ledger.rate(noon)
    (one,) = explained(ledger, "acme/team")
    measured = [(hour.hour_ms, None if hour.use is None else hour.use.sm_ppm_ms) for hour in one.measured]
    assert measured == [(ten, CARD_MINUTE * 6), (ten + HOUR, None)]
    assert one.coverage is not None
    assert (one.coverage.confirmed_ms, one.coverage.present_ms) == (2 * HOUR, 2 * HOUR)


def test_a_fact_that_came_after_the_rating_shows_as_a_difference(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    shared_card(ledger, at, allocation, presence)
    late = allocation(
        pod_uid="z", mem_mib=16_000, core_percent=0, tenant_key="z", bound_at_ms=at("09:50"),
        ended_at_ms=at("10:00"), end_kind="observed", confirmed_at_ms=at("10:00"),
    )  # fmt: skip
    ledger.send([late], now_ms=at("12:00"))
    (one,) = explained(ledger, "acme/y")
    assert not one.adds_up
    assert "is not the line: facts came after it was made" in explanation_table(one)


def test_a_day_out_of_all_time_is_refused(ledger: Ledger) -> None:
    with pytest.raises(InvalidError, match="no ledger reaches to 0001-01-01"):
        explained(ledger, "acme", day=date(1, 1, 1))


def test_a_mistyped_price_is_explained_with_both_versions_in_the_open_month_and_on_the_delta_line(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    # A whole card on 31 October and 1 November, from midnight in Berlin; 32.0 was typed for 3.20.
    start = at("23:00", 30)
    end = start + 48 * HOUR
    held = allocation(
        core_percent=100, bound_at_ms=start, confirmed_at_ms=end, ended_at_ms=end, end_kind="observed"
    )
    ledger.price("3.20")
    ledger.price("32.0", from_ms=start)
    ledger.send([presence(start, end), held], now_ms=end)
    ledger.rate(end)
    november_6 = end + 4 * 24 * HOUR
    assert ledger.close("acme", now_ms=november_6).total == Decimal("768.00")  # 24 × 32.0
    ledger.price("3.20", from_ms=start, reason="typed 32.0 for 3.20")
    ledger.rate(november_6)
    ledger.correct("acme", now_ms=november_6, with_versions=True)

    (open_line,) = explained(ledger, "acme/team", day=date(2026, 11, 1))
    assert (open_line.state, open_line.line.amount) == ("open", Decimal("76.80"))
    both = [(Decimal("3.20"), "typed 32.0 for 3.20"), (Decimal("32.0"), None)]
    assert [(version.unit_price, version.reason) for version in open_line.prices] == both

    (delta,) = explained(ledger, "acme/team", day=date(2026, 11, 6))
    assert (delta.line.kind, delta.line.amount) == ("correction", Decimal("-691.20"))  # 24 × (3.20 − 32.0)
    assert [(version.unit_price, version.reason) for version in delta.prices] == both
    assert "typed 32.0 for 3.20" in (delta.line.reason or "")
    assert [(origin.amount, origin.unit_price) for origin in delta.origin] == [
        (Decimal("768.0"), Decimal("32.0"))
    ]
    sealed = explained(ledger, "acme/team", day=date(2026, 10, 31))
    assert [(one.line.amount, one.state, one.adds_up) for one in sealed] == [
        (Decimal("768.0"), "closed", True)
    ]
