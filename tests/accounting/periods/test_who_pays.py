"""Who pays what, from facts to lines; every expected value is worked out beside it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select

from accounting.access.viewer import COMMAND_LINE
from accounting.ledger.calendar import parse_month
from accounting.ledger.rounding import to_currency
from accounting.reports.capacity import report_capacity
from accounting.reports.cost import GROUPS, report_cost
from accounting.reports.grouping import Filters
from accounting.reports.quote import Wanted, make_quote
from accounting.reports.spans import month_span
from accounting.store.models import LedgerLine
from contract.facts import AllocationFact, Fact, NodeStateFact, PresenceFact

if TYPE_CHECKING:
    from tests.accounting.periods.conftest import Ledger

HOUR = 3_600_000
DAY = 24 * HOUR
CARD_HOUR = 3_600_000_000_000
CARD_MINUTE = CARD_HOUR // 60

At = Callable[..., int]
Allocation = Callable[..., AllocationFact]
Presence = Callable[..., PresenceFact]
State = Callable[..., NodeStateFact]


def held(start: int, end: int) -> dict[str, Any]:
    """A slice from its bind to an end that was seen."""
    return {
        "bound_at_ms": start, "started_at_ms": start, "confirmed_at_ms": end, "ended_at_ms": end,
        "end_kind": "observed",
    }  # fmt: skip


def stored(ledger: Ledger, **where: str) -> list[tuple[Any, ...]]:
    """Lines with their ids and every column, in order."""
    columns = list(LedgerLine.__table__.columns)
    with ledger.database.reading() as session:
        rows = session.execute(select(*columns).filter_by(**where).order_by(LedgerLine.id)).all()
    return [tuple(row) for row in rows]


def owed(ledger: Ledger, **where: str) -> Decimal:
    """The exact sum of some lines."""
    with ledger.database.reading() as session:
        amounts = session.scalars(select(LedgerLine.amount).filter_by(**where)).all()
    return sum((amount or Decimal(0) for amount in amounts), Decimal(0))


def test_two_pods_of_one_namespace_and_name_are_two_allocations_each_with_its_own_time(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    # A StatefulSet's pod is replaced by one of the same name: half a card, one hour, then two.
    ledger.send(
        [
            presence(at("09:00"), at("12:00")),
            allocation(pod_uid="first", core_percent=50, **held(at("09:00"), at("10:00"))),
            allocation(pod_uid="second", core_percent=50, **held(at("10:00"), at("12:00"))),
        ],
        now_ms=at("12:00"),
    )
    ledger.rate(at("12:00"))
    usage = [line for _, line in ledger.lines() if line.kind == "usage"]
    assert {(line.namespace, line.pod) for line in usage} == {("team", "train")}
    assert len({line.resource_key for line in usage}) == 2
    assert sorted(line.quantity for line in usage) == [CARD_HOUR // 2, CARD_HOUR]


def test_a_plain_init_container_pays_only_while_it_ran(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    # It holds the whole card for ten minutes; what the app container holds begins with the pod's bind.
    ledger.send(
        [
            presence(at("09:00"), at("10:00")),
            allocation(
                container="setup", container_kind="init", mem_mib=0, core_percent=60,
                **held(at("09:05"), at("09:15")),
            ),
            allocation(mem_mib=0, core_percent=40, **held(at("09:00"), at("10:00"))),
        ],
        now_ms=at("10:00"),
    )  # fmt: skip
    ledger.rate(at("10:00"))
    usage = {line.container: line.quantity for _, line in ledger.lines() if line.kind == "usage"}
    assert usage == {"setup": 6 * CARD_MINUTE, "main": 24 * CARD_MINUTE}


def test_an_over_booked_scaled_card_lowers_each_share_by_one_factor_and_leaves_no_idle(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    # Registered 32,000 MiB on 16,000 physical. X holds 0.50 of what is registered, Y 0.75: together 1.25,
    # so the factor is 0.8 and they pay 24 and 36 minutes of the hour, 6 and 9 less than their own shares.
    ledger.price("3.00")
    hour = held(at("09:00"), at("10:00"))
    ledger.send(
        [
            presence(at("09:00"), at("10:00"), registered_mib=32_000, physical_mib=16_000),
            allocation(pod_uid="x", mem_mib=16_000, core_percent=0, tenant_key="x", **hour),
            allocation(pod_uid="y", mem_mib=24_000, core_percent=0, tenant_key="y", **hour),
        ],
        now_ms=at("10:00"),
    )  # fmt: skip
    ledger.rate(at("10:00"))
    lines = {path: (line.own_quantity, line.quantity, line.amount) for path, line in ledger.lines()}
    assert lines == {
        "acme/x": (30 * CARD_MINUTE, 24 * CARD_MINUTE, Decimal("1.20")),
        "acme/y": (45 * CARD_MINUTE, 36 * CARD_MINUTE, Decimal("1.80")),
    }
    for key, discount in (("x", 6), ("y", 9)):
        (line,) = ledger.statement(key).lines
        assert line.discount_ppm_ms == discount * CARD_MINUTE
        assert line.own_ppm_ms - line.discount_ppm_ms == line.charged_ppm_ms
    # What was quoted for an hour of X is its own share, whoever came beside it.
    with ledger.database.reading() as session:
        quoted = make_quote(
            session, COMMAND_LINE, Wanted("Tesla T4", 16_000, 0, HOUR, None, 32_000), at_ms=at("10:00"),
            tenant_name="acme/x",
        )  # fmt: skip
    # 30 card-minutes at 3.00; 1.20 was charged.
    assert quoted.amount == Decimal("1.5")


def test_slices_that_together_fill_a_card_leave_no_idle(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    # 0.4 + 0.6 of a card for an hour.
    ledger.send(
        [
            presence(at("09:00"), at("10:00")),
            allocation(pod_uid="x", mem_mib=0, core_percent=40, **held(at("09:00"), at("10:00"))),
            allocation(pod_uid="y", mem_mib=0, core_percent=60, **held(at("09:00"), at("10:00"))),
        ],
        now_ms=at("10:00"),
    )
    ledger.rate(at("10:00"))
    assert sorted(line.quantity for _, line in ledger.lines()) == [24 * CARD_MINUTE, 36 * CARD_MINUTE]
    (hour,) = ledger.hours()
    assert (hour.charged_ppm_ms, hour.idle_ppm_ms, hour.down_ppm_ms) == (CARD_HOUR, 0, 0)


def test_a_whole_card_pod_without_a_core_request_pays_the_whole_card_and_with_two_cards_for_both(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    whole: dict[str, Any] = {"mem_mib": 15_360, "core_percent": 0, **held(at("09:00"), at("10:00"))}
    for card in ("GPU-1", "GPU-2"):
        facts: list[Fact] = [presence(at("09:00"), at("10:00"), device_uuid=card)]
        facts.append(allocation(device_uuid=card, **whole))
        ledger.send(facts, now_ms=at("10:00"))
    ledger.rate(at("10:00"))
    assert [(path, line.quantity) for path, line in ledger.lines()] == [("acme/team", CARD_HOUR)] * 2


def test_the_number_of_advertised_slots_changes_no_amount(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    ledger.price("3.00")
    for card, slots in (("GPU-1", 1), ("GPU-2", 10), ("GPU-3", 1_000)):
        seen = presence(at("09:00"), at("10:00"), device_uuid=card, slots=slots)
        slice_ = allocation(device_uuid=card, core_percent=30, **held(at("09:00"), at("10:00")))
        ledger.send([seen, slice_], now_ms=at("10:00"))
    ledger.rate(at("10:00"))
    amounts = [line.amount for _, line in ledger.lines() if line.kind == "usage"]
    assert amounts == [Decimal("0.90")] * 3


def test_a_cluster_without_devices_has_no_idle_cost(ledger: Ledger, at: At) -> None:
    ledger.price("3.00")
    ledger.rate(at("12:00"))
    assert ledger.lines() == []
    with ledger.database.reading() as session:
        wanted = Filters(cluster="d")
        assert not report_capacity(session, (at("00:00"), at("12:00")), filters=wanted).rows


def test_a_rerating_deletes_only_lines_that_rating_made_of_that_card_and_those_days(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    # One card key in two clusters, two days of it, and an adjustment by hand on the same day.
    ledger.price("3.00")
    start, end = at("09:00", 5), at("09:00", 7)
    for cluster in ("c", "d"):
        facts: list[Fact] = [
            presence(start, end, cluster=cluster),
            allocation(cluster=cluster, core_percent=50, **held(start, end)),
        ]
        ledger.send(facts, now_ms=end)
    ledger.rate(end + DAY)  # by then time alone changes nothing any more
    ledger.adjust("acme/team", "-1.00", "an hour lost", now_ms=at("10:00", 5))
    of_d = stored(ledger, cluster="d")
    by_hand = stored(ledger, kind="adjustment")
    assert of_d
    assert by_hand
    late = allocation(pod_uid="late", mem_mib=0, core_percent=20, **held(at("10:00", 6), at("12:00", 6)))
    ledger.send([late], now_ms=end)
    ledger.rate(end + DAY)
    assert stored(ledger, cluster="d") == of_d
    assert stored(ledger, kind="adjustment") == by_hand
    # A fifth of the card for two hours came to c, and nothing else changed.
    usage = sum(line.quantity for _, line in ledger.lines() if line.cluster == "c" and line.kind == "usage")
    assert usage == 48 * CARD_HOUR // 2 + 2 * CARD_HOUR // 5
    assert ledger.verify().holds


def test_a_node_without_a_usage_source_and_one_that_is_gone_lower_no_coverage(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence, node_state: State
) -> None:
    # No use is ever reported, and the node is gone for good after three days.
    ledger.price("1.00")
    start, end = at("00:00", 2), at("00:00", 5)
    ledger.send(
        [
            presence(start, end),
            node_state(start, end, ready=True, heartbeat_at_ms=end),
            allocation(core_percent=50, **held(start, end)),
        ],
        now_ms=end,
    )
    november = at("00:00", 31) + 6 * DAY
    ledger.rate(november)
    found = ledger.preflight("acme", now_ms=november)
    assert (found.is_clear, found.coverage.ratio) == (True, Decimal(1))
    (line,) = {line.use for line in ledger.statement("team").lines}
    assert line is None


def test_a_new_price_alters_no_closed_period_and_no_open_one_before_a_rerating(
    october: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    # Half a T4 for three hours of 5 October at 3.00; acme closes, the platform's idle half stays open.
    november = at("00:00", 31) + 6 * DAY
    october.close("acme", now_ms=november)
    (first,) = {line.price_version_id for _, line in october.lines()}
    october.price("4.00", reason="a new list")
    assert october.statement("team").total == Decimal("4.50")
    assert october.statement("platform/idle").total == Decimal("4.50")
    october.rate(november)
    # 0.5 × 3 h × 4.00 in the open month only.
    assert october.statement("team").total == Decimal("4.50")
    assert october.statement("platform/idle").total == Decimal("6.00")
    versions = {path: line.price_version_id for path, line in october.lines()}
    assert versions["acme/team"] == first
    assert versions["platform/idle"] == (first or 0) + 1


def test_an_open_month_is_provisional_and_a_closed_one_final(october: Ledger, at: At) -> None:
    assert october.statement("team").is_provisional
    october.close("acme", now_ms=at("00:00", 31) + 6 * DAY)
    assert not october.statement("team").is_provisional
    assert october.statement("platform/idle").is_provisional


@pytest.mark.parametrize(
    ("currency", "unit", "digits"), [("EUR", "0.01", 2), ("JPY", "1", 0), ("KWD", "0.001", 3)]
)
def test_the_total_is_the_sum_over_every_grouping_with_adjustments_in_every_currency(
    *,
    ledger: Ledger,
    at: At,
    allocation: Allocation,
    presence: Presence,
    currency: str,
    unit: str,
    digits: int,
) -> None:
    ledger.account("pay", currency=currency)
    ledger.account("platform-pay", "platform", currency=currency)
    ledger.cluster("e", account="pay", platform="platform-pay")
    # Seventh parts of a price that no currency can pay out evenly, for three tenants on two days.
    ledger.price("10.007", currency=currency)
    start, end = at("12:00", 5), at("12:00", 7)
    facts: list[Any] = [presence(start, end, cluster="e")]
    for number, key in enumerate(("a", "b", "c")):
        times = held(start + number * 1_234_567, end - number * 7)
        facts.append(
            allocation(
                cluster="e", pod_uid=f"pod-{key}", tenant_key=key, mem_mib=2_194, core_percent=0, **times
            )
        )
    ledger.send(facts, now_ms=end)
    ledger.rate(end)
    ledger.adjust("pay/b", f"-{unit}", "the smallest coin", now_ms=end)
    amount = owed(ledger, account="pay")
    with ledger.database.reading() as session:
        october = month_span(parse_month("2026-10"))
        reports = [report_cost(session, COMMAND_LINE, october, [group]) for group in GROUPS]
    for report in reports:
        of_group = [row.amount or Decimal(0) for row in report.rows if row.currency == currency]
        assert sum(of_group, Decimal(0)) == owed(ledger, currency=currency)
    stated = ledger.statement("pay")
    assert stated.total is not None
    assert stated.rounding is not None
    assert stated.total == to_currency(amount, currency)
    assert stated.total.as_tuple().exponent == -digits
    assert sum((line.shown or Decimal(0) for line in stated.lines), stated.rounding) == stated.total
    # A statement for each tenant, rounded once each, differs from that of all by what rounding left over.
    each = [ledger.statement(f"pay/{key}") for key in ("a", "b", "c")]
    assert sum((one.amount or Decimal(0) for one in each), Decimal(0)) == amount
