"""Roll-ups are what their lines and device hours add up to, after whatever was done to these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import func, select, text

from accounting.access.viewer import COMMAND_LINE
from accounting.ledger.calendar import parse_month
from accounting.periods.rollups import rebuild_rollups
from accounting.reports.capacity import report_capacity
from accounting.reports.cost import report_cost
from accounting.reports.ledger_sums import SummedLines, source_of, sum_lines
from accounting.reports.spans import month_span
from accounting.reports.usage import CardSums
from accounting.store.models import LedgerLine, RollupDay, RollupHour
from contract.facts import AllocationFact, PresenceFact
from contract.ids import DeviceUuid, TenantKey

if TYPE_CHECKING:
    from accounting.store.database import Database
    from tests.accounting.periods.conftest import Ledger

At = Callable[..., int]
Allocation = Callable[..., AllocationFact]
Presence = Callable[..., PresenceFact]

HOUR = 3_600_000
CARD_HOUR = 1_000_000 * HOUR
OCTOBER = month_span(parse_month("2026-10"))


@pytest.fixture
def rated(ledger: Ledger, at: At, allocation: Allocation, presence: Presence) -> Ledger:
    """Two tenants' halves of one card for two hours, and another card that nobody held, at 3.00 an hour."""
    now = at("12:00")
    ledger.price("3.00")
    halves = [
        allocation(
            pod_uid=key, tenant_key=TenantKey(key), namespace=key, core_percent=50, mem_mib=100,
            bound_at_ms=at("10:00"), confirmed_at_ms=now,
        )
        for key in ("a", "b")
    ]  # fmt: skip
    seen = [presence(at("10:00"), now), presence(at("10:00"), now, device_uuid=DeviceUuid("GPU-2"))]
    ledger.send([*seen, *halves], now_ms=now)
    ledger.rate(now)
    return ledger


def by_all(database: Database, source: Any) -> dict[tuple[object, ...], SummedLines]:
    names = ("tenant_id", "cluster", "namespace", "sku", "day_ms")
    with database.reading() as session:
        rows = sum_lines(session, source, [], names)
    return {
        (one.account, one.kind, one.model, one.currency, *(getattr(one, name) for name in names)): one
        for one in rows
    }


def test_the_roll_up_of_a_day_is_what_its_lines_come_to(rated: Ledger) -> None:
    # Half a card for two hours each; one whole card idle.
    sums = by_all(rated.database, RollupDay).values()
    assert sorted((one.kind, one.namespace, one.lines, one.quantity, one.amount) for one in sums) == [
        ("idle", "", 1, 2 * CARD_HOUR, Decimal(6)),
        ("usage", "a", 1, CARD_HOUR, Decimal(3)),
        ("usage", "b", 1, CARD_HOUR, Decimal(3)),
    ]
    with rated.database.reading() as session:
        hour = RollupHour
        cards = (func.sum(hour.device_count), func.sum(hour.present_ppm_ms), func.sum(hour.charged_ppm_ms))
        found = session.execute(
            select(hour.hour_ms, *cards).group_by(hour.hour_ms).order_by(hour.hour_ms)
        ).all()
    assert [tuple(map(int, row[1:])) for row in found] == [(2, 2 * CARD_HOUR, CARD_HOUR)] * 2


def test_both_sources_give_the_same_sums_whatever_became_of_the_lines(
    rated: Ledger, at: At, allocation: Allocation
) -> None:
    def same() -> None:
        assert by_all(rated.database, RollupDay) == by_all(rated.database, LedgerLine)
        assert rated.verify().holds

    same()
    rated.send(
        [allocation(pod_uid="late", bound_at_ms=at("11:00"), confirmed_at_ms=at("13:00"))], now_ms=at("13:00")
    )
    rated.rate(at("13:00"))
    same()
    rated.adjust("a", "-1.25", "goodwill", now_ms=at("13:00"))
    same()
    closing = at("00:00", 31) + 5 * 24 * HOUR
    rated.rate(closing)
    rated.close("acme", now_ms=closing, override="a test")
    rated.send(
        [allocation(pod_uid="later", bound_at_ms=at("10:00"), confirmed_at_ms=at("11:00"))], now_ms=closing
    )
    rated.rate(closing)
    rated.correct("acme", now_ms=closing)
    same()
    rated.rate(closing)
    same()
    with rated.database.reading() as session:
        assert session.scalar(select(func.count()).where(~RollupDay.is_merged)) == 0
        assert session.scalar(select(func.count()).where(~RollupHour.is_merged)) == 0


@pytest.mark.parametrize("group_by", [("tenant",), ("model", "kind"), ("namespace",), ("day", "sku")])
def test_a_cost_report_says_the_same_from_the_roll_up_and_from_the_lines(
    rated: Ledger, group_by: Sequence[str]
) -> None:
    def totals(keys: Sequence[str]) -> dict[tuple[str, ...], tuple[int, Decimal | None]]:
        with rated.database.reading() as session:
            rows = report_cost(session, COMMAND_LINE, OCTOBER, keys).rows
        sums: dict[tuple[str, ...], tuple[int, Decimal | None]] = {}
        for row in rows:
            lines, amount = sums.get(row.keys[: len(group_by)], (0, Decimal(0)))
            sums[row.keys[: len(group_by)]] = (lines + row.lines, (amount or Decimal(0)) + (row.amount or 0))
        return sums

    # A pod stands on lines alone, so asking for it too takes the other source.
    assert source_of(group_by, ()) is RollupDay
    assert source_of([*group_by, "pod"], ()) is LedgerLine
    assert totals(group_by) == totals([*group_by, "pod"]) != {}


def test_a_report_of_whole_clusters_has_the_coverage_of_all_their_cards(rated: Ledger) -> None:
    with rated.database.reading() as session:
        covered = report_cost(session, COMMAND_LINE, OCTOBER, ("tenant",)).coverage
    assert (covered.confirmed_ms, covered.present_ms) == (4 * HOUR, 4 * HOUR)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE rollup_day SET amount = '2.99' WHERE kind = 'usage'", "acme 2026-10-01"),
        ("DELETE FROM rollup_day WHERE kind = 'idle'", "platform 2026-10-01"),
        ("UPDATE rollup_hour SET idle_ppm_ms = idle_ppm_ms + 1", "c 2026-10-01T10:00:00Z"),
    ],
)
def test_verify_names_the_first_day_whose_roll_up_differs_and_a_rebuild_mends_it(
    rated: Ledger, change: str, named: str
) -> None:
    with rated.database.writing() as session:
        session.execute(text(change))
    found = rated.verify().findings
    assert [(one.check, one.subject) for one in found] == [("rollup", named)]
    assert "migrate --rebuild-rollups" in found[0].detail
    with rated.database.writing() as session:
        rebuild_rollups(session)
    assert rated.verify().holds


def test_capacity_says_the_same_from_the_roll_up_and_from_the_devices(rated: Ledger, at: At) -> None:
    day = (at("00:00"), at("00:00", 2))

    def totals(*keys: str) -> tuple[int, CardSums]:
        with rated.database.reading() as session:
            found = report_capacity(session, day, group_by=keys)
        return sum(group.hours for group in found.groups), found.sums

    # A device stands in its own hours alone, so asking for it takes the other source.
    assert (
        totals("cluster", "model", "day")
        == totals("device")
        == (
            4,
            CardSums(4 * CARD_HOUR, 2 * CARD_HOUR, 2 * CARD_HOUR, 0, 4 * HOUR),
        )
    )
