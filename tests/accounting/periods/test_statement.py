"""A tenant's month (`reference/ledger.md §4`)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from accounting.access.viewer import Viewer
from accounting.errors import InvalidError, NotFoundError
from contract.facts import AllocationFact, PresenceFact, SliceUsageFact, UnallocatedUseFact

if TYPE_CHECKING:
    from tests.accounting.periods.conftest import Ledger

HOUR = 3_600_000
CARD_HOUR = 3_600_000_000_000

At = Callable[..., int]
Allocation = Callable[..., AllocationFact]
Presence = Callable[..., PresenceFact]
Usage = Callable[..., SliceUsageFact]


def three_days(ledger: Ledger, at: At, allocation: Allocation, presence: Presence) -> int:
    """A whole card for 30 minutes on each of three days."""
    now = at("12:00", 4)
    facts: list[AllocationFact | PresenceFact] = [presence(at("00:00", 1), now)]
    for day in (1, 2, 3):
        start, end = at("10:00", day), at("10:30", day)
        facts.append(
            allocation(
                pod_uid=f"pod-{day}",
                core_percent=100,
                bound_at_ms=start,
                started_at_ms=start,
                ended_at_ms=end,
                end_kind="observed",
                confirmed_at_ms=end,
            )
        )
    ledger.send(facts, now_ms=now)
    return now


def test_shown_lines_and_the_rounding_line_are_the_total(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    now = three_days(ledger, at, allocation, presence)
    # Half a card-hour a day: 1.234, 2.345 and 3.456.
    ledger.price("2.468", to_ms=at("00:00", 2))
    ledger.price("4.69", from_ms=at("00:00", 2), to_ms=at("00:00", 3))
    ledger.price("6.912", from_ms=at("00:00", 3))
    ledger.rate(now)
    statement = ledger.statement("team")
    assert [line.amount for line in statement.lines] == [Decimal("1.234"), Decimal("2.345"), Decimal("3.456")]
    assert [line.shown for line in statement.lines] == [Decimal("1.23"), Decimal("2.34"), Decimal("3.46")]
    assert (statement.amount, statement.total) == (Decimal("7.035"), Decimal("7.04"))
    assert statement.rounding == Decimal("0.01")
    assert statement.sums.charged_ppm_ms == 3 * CARD_HOUR // 2
    assert statement.is_provisional
    assert ledger.verify().holds


def test_tenant_is_found_by_path_or_by_a_code_that_only_one_has(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    ledger.account("other")
    ledger.cluster("e", account="other")
    now = at("12:00")
    for cluster in ("c", "e"):
        held = allocation(cluster=cluster, bound_at_ms=at("09:00"), confirmed_at_ms=now)
        ledger.send([presence(at("09:00"), now, cluster=cluster), held], now_ms=now)
    ledger.rate(now)
    assert ledger.statement("acme/team").tenant == "acme/team"
    with pytest.raises(InvalidError, match="acme/team, other/team"):
        ledger.statement("team")
    with pytest.raises(NotFoundError, match="nobody"):
        ledger.statement("nobody")
    mine = Viewer("test", "tenant", tenant_path="other")
    assert ledger.statement("team", viewer=mine).tenant == "other/team"
    with pytest.raises(NotFoundError, match="acme/team"):
        ledger.statement("acme/team", viewer=mine)


def test_statement_of_an_organisation_holds_its_teams(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    now = at("12:00")
    ledger.send(
        [
            presence(at("09:00"), now),
            allocation(
                pod_uid="a",
                tenant_key="a",
                core_percent=20,
                mem_mib=0,
                bound_at_ms=at("09:00"),
                confirmed_at_ms=now,
            ),
            allocation(
                pod_uid="b",
                tenant_key="b",
                core_percent=30,
                mem_mib=0,
                bound_at_ms=at("09:00"),
                confirmed_at_ms=now,
            ),
        ],
        now_ms=now,
    )
    ledger.rate(now)
    statement = ledger.statement("acme")
    assert [line.tenant for line in statement.lines] == ["acme/a", "acme/b"]
    assert statement.sums.charged_ppm_ms == 3 * CARD_HOUR // 2


def test_measured_use_stands_beside_its_day_and_absent_use_is_not_measured(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence, slice_usage: Usage
) -> None:
    # Midnight in Berlin is 22:00 UTC.
    now = at("23:00")
    held = {"core_percent": 30, "bound_at_ms": at("21:00"), "confirmed_at_ms": now}
    hours = [
        slice_usage(
            hour_ms=at("21:00"),
            from_ms=at("21:00"),
            to_ms=at("22:00"),
            covered_ms=HOUR,
            sm_ppm_ms=700,
            mem_peak_mib=900,
        ),
        slice_usage(
            hour_ms=at("22:00"),
            from_ms=at("22:00"),
            to_ms=now,
            covered_ms=HOUR,
            sm_ppm_ms=300,
            mem_peak_mib=400,
        ),
    ]
    unseen = allocation(pod_uid="unseen", pod="unseen", **held)
    ledger.send([presence(at("21:00"), now), allocation(**held), unseen, *hours], now_ms=now)
    ledger.rate(now)
    statement = ledger.statement("team")
    measured = {(line.day, line.pod): line.use for line in statement.lines}
    assert measured["2026-10-01", "unseen"] is None
    first, second = measured["2026-10-01", "train"], measured["2026-10-02", "train"]
    assert first is not None
    assert second is not None
    assert (first.sm_ppm_ms, first.mem_peak_mib) == (700, 900)
    assert (second.sm_ppm_ms, second.mem_peak_mib) == (300, 400)
    assert statement.use is not None
    assert (statement.use.sm_ppm_ms, statement.use.mem_peak_mib, statement.use.covered_ms) == (
        1000,
        900,
        2 * HOUR,
    )


def test_measured_hour_that_a_price_divides_is_shown_once(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence, slice_usage: Usage
) -> None:
    now = at("11:00")
    ledger.price("1")
    ledger.price("2", from_ms=at("10:15"))
    use = slice_usage(hour_ms=at("10:00"), from_ms=at("10:00"), to_ms=now, covered_ms=HOUR, sm_ppm_ms=400)
    ledger.send(
        [presence(at("10:00"), now), allocation(bound_at_ms=at("10:00"), confirmed_at_ms=now), use],
        now_ms=now,
    )
    ledger.rate(now)
    lines = ledger.statement("team").lines
    assert [line.use.sm_ppm_ms for line in lines if line.use is not None] == [100, 300]


def test_coverage_counts_what_was_bridged_as_unconfirmed(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    now = at("12:00")
    ended = {"ended_at_ms": at("06:00"), "end_kind": "observed", "confirmed_at_ms": at("06:00")}
    ledger.send(
        [
            presence(at("04:00"), at("06:00")),
            presence(at("08:00"), at("10:00")),
            allocation(bound_at_ms=at("04:00"), **ended),
        ],
        now_ms=now,
    )
    ledger.rate(now)
    coverage = ledger.statement("team").coverage
    assert (coverage.confirmed_ms, coverage.present_ms) == (4 * HOUR, 6 * HOUR)
    assert coverage.ratio == Decimal("0.666667")


def test_use_without_an_allocation_is_listed_and_costs_nothing(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence, slice_usage: Usage
) -> None:
    now = at("11:00")
    ledger.price("1")
    known = slice_usage(hour_ms=at("10:00"), from_ms=at("10:00"), to_ms=now, covered_ms=HOUR, sm_ppm_ms=42)
    fields = {name: getattr(known, name) for name in known.__struct_fields__ if name != "pod_uid"}
    bypassing = UnallocatedUseFact(
        pod_uid="bypass",  # type: ignore[arg-type]
        namespace="team",
        pod="bypass",
        tenant_key="team",  # type: ignore[arg-type]
        **fields,
    )
    held = allocation(core_percent=100, bound_at_ms=at("10:00"), confirmed_at_ms=now)
    ledger.send([presence(at("10:00"), now), held, bypassing], now_ms=now)
    ledger.rate(now)
    statement = ledger.statement("team")
    assert [(one.pod, one.use.sm_ppm_ms) for one in statement.unallocated] == [("bypass", 42)]
    assert statement.total == Decimal("1.00")
    assert ledger.statement("platform/idle").unallocated == []


def test_month_in_which_nothing_was_held_is_an_empty_statement(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    now = three_days(ledger, at, allocation, presence)
    ledger.rate(now)
    statement = ledger.statement("team", "2026-09")
    assert (list(statement.lines), statement.total, statement.use) == ([], Decimal("0.00"), None)
