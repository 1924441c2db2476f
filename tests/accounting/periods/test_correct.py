"""Corrections and adjustments: what comes after a close, in lines of its own (`ledger.md §4, §9, §15`)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from accounting.access.viewer import COMMAND_LINE
from accounting.errors import ConflictError, InvalidError, NotFoundError
from accounting.ledger.calendar import parse_month
from accounting.periods.adjust import parse_amount
from accounting.prices.book import list_versions
from accounting.reports.cost import GROUPS, report_cost
from accounting.reports.spans import month_span
from accounting.store.models import AuditLog
from contract.facts import AllocationFact, PresenceFact

if TYPE_CHECKING:
    from tests.accounting.periods.conftest import Ledger

At = Callable[..., int]
Allocation = Callable[..., AllocationFact]
Presence = Callable[..., PresenceFact]

HOUR = 3_600_000
DAY = 24 * HOUR
CARD_HOUR = 3_600_000_000_000


@pytest.fixture
def november(at: At) -> int:
    """4 November 2026, 23:00 UTC: the close grace of October is over."""
    return at("23:00", 31) + 4 * DAY


@pytest.fixture
def closed(october: Ledger, november: int) -> Ledger:
    """October closed in both accounts: 4.50 EUR for the team, and as much idle."""
    october.close("acme", now_ms=november)
    october.close("platform", now_ms=november)
    return october


@pytest.fixture
def late(at: At, allocation: Allocation) -> AllocationFact:
    """A quarter of the same card from 10:00 to 12:00, told after the close."""
    return allocation(
        pod_uid="late",
        pod="late",
        mem_mib=3_840,
        core_percent=0,
        bound_at_ms=at("10:00", 5),
        confirmed_at_ms=at("12:00", 5),
        ended_at_ms=at("12:00", 5),
        end_kind="observed",
    )


def test_a_correction_is_a_delta_line_in_the_open_period_that_names_its_origin(
    closed: Ledger, november: int, late: AllocationFact
) -> None:
    sealed = closed.statement("team")
    closed.send([late], now_ms=november)
    corrected = closed.correct("acme", now_ms=november)
    # 2 h of a quarter at 3.00.
    assert (corrected.into, corrected.revision, corrected.amount) == ("2026-11", 1, Decimal("1.50"))
    (line,) = closed.statement("team", "2026-11").lines
    assert (line.kind, line.amount, line.charged_ppm_ms) == ("correction", Decimal("1.50"), CARD_HOUR // 2)
    assert (line.corrects_period, line.corrects_day, line.corrects_kind) == ("2026-10", "2026-10-05", "usage")
    assert (line.day, line.pod, line.reason) == ("2026-11-05", "late", "facts that came after the close")
    assert closed.statement("team") == sealed


def test_a_second_run_of_the_same_correction_adds_nothing(
    closed: Ledger, november: int, late: AllocationFact
) -> None:
    closed.send([late], now_ms=november)
    closed.correct("acme", now_ms=november)
    lines = closed.lines()
    again = closed.correct("acme", now_ms=november + DAY)
    assert (again.deltas, again.is_written, again.revision) == ([], False, 0)
    assert [line.id for _, line in closed.lines()] == [line.id for _, line in lines]


def test_a_dry_correction_tells_the_deltas_and_posts_none(
    closed: Ledger, november: int, late: AllocationFact
) -> None:
    closed.send([late], now_ms=november)
    dry = closed.correct("acme", now_ms=november, is_dry=True)
    assert ([one.amount for one in dry.deltas], dry.is_written) == ([Decimal("1.50")], False)
    assert closed.statement("team", "2026-11").lines == []


def test_what_one_account_gains_the_idle_of_the_other_loses(
    closed: Ledger, november: int, late: AllocationFact
) -> None:
    closed.send([late], now_ms=november)
    assert closed.correct("acme", now_ms=november).amount == Decimal("1.50")
    corrected = closed.correct("platform", now_ms=november)
    assert corrected.amount == Decimal("-1.50")
    assert [(one.kind, one.quantity) for one in corrected.deltas] == [("idle", -CARD_HOUR // 2)]


def test_a_late_fact_makes_verify_say_pending_not_failed_and_ok_after_the_correction(
    closed: Ledger, november: int, late: AllocationFact
) -> None:
    assert (closed.verify().holds, closed.verify().late) == (True, [])
    closed.send([late], now_ms=november)
    for _ in range(2):
        verified = closed.verify()
        assert verified.holds
        assert [name.split(" on ")[0] for name in verified.late] == [
            "usage of acme/team",
            "idle of platform/idle",
        ]
        # Rating takes the mark away, and a closed period still knows that the day was touched.
        closed.rate(november)
    for account in ("acme", "platform"):
        closed.correct(account, now_ms=november)
    verified = closed.verify()
    assert (verified.findings, verified.late, verified.pending) == ([], [], [])


def test_a_slice_that_turns_out_to_have_ended_earlier_is_paid_back(
    closed: Ledger, november: int, at: At, allocation: Allocation
) -> None:
    # The other witness saw the end at 11:00, an hour earlier: 0.5 × 1 h × 3.00 back.
    earlier = allocation(
        witness="node",
        core_percent=50,
        bound_at_ms=at("09:00", 5),
        started_at_ms=at("09:00", 5),
        confirmed_at_ms=at("11:00", 5),
        ended_at_ms=at("11:00", 5),
        end_kind="observed",
    )
    closed.send([earlier], now_ms=november)
    assert closed.correct("acme", now_ms=november).amount == Decimal("-1.50")
    assert closed.statement("team", "2026-11").total == Decimal("-1.50")
    assert closed.verify().holds


def test_a_mistyped_price_reaches_a_closed_month_only_when_asked_by_delta_with_versions_and_reason(
    ledger: Ledger, at: At, november: int, allocation: Allocation, presence: Presence
) -> None:
    # 20 card-hours on one day, billed at 40.00 (800.00) instead of 4.00 (80.00).
    ledger.price("40.00")
    start, end = at("00:00", 5), at("20:00", 5)
    held = allocation(
        core_percent=100, bound_at_ms=start, confirmed_at_ms=end, ended_at_ms=end, end_kind="observed"
    )
    ledger.send([presence(start, end), held], now_ms=end)
    ledger.rate(end)
    assert ledger.close("acme", now_ms=november).total == Decimal("800.00")
    ledger.price("4.00", reason="40 was typed for 4")
    ledger.rate(november)
    verified = ledger.verify()
    assert (verified.holds, verified.late) == (True, [])
    assert ledger.correct("acme", now_ms=november).deltas == []
    corrected = ledger.correct("acme", now_ms=november, with_versions=True)
    assert [one.amount for one in corrected.deltas] == [Decimal("-720.00")]
    (line,) = ledger.statement("team", "2026-11").lines
    assert line.reason == "price version 2 instead of 1: 40 was typed for 4"
    assert (line.charged_ppm_ms, line.unit_price) == (0, None)
    assert ledger.statement("team").total == Decimal("800.00")
    assert (ledger.verify().holds, ledger.correct("acme", now_ms=november).deltas) == (True, [])
    with ledger.database.reading() as session:
        old = list_versions(session)[0]
        assert (old.unit_price, old.superseded_at_ms is not None) == (Decimal("40.00"), True)


def test_after_a_correction_took_up_a_version_later_facts_are_priced_with_it(
    closed: Ledger, november: int, late: AllocationFact
) -> None:
    closed.price("6.00", reason="agreed in the meeting")
    assert closed.correct("acme", now_ms=november, with_versions=True).amount == Decimal("4.50")
    closed.send([late], now_ms=november)
    assert closed.correct("acme", now_ms=november).amount == Decimal("3.00")
    assert closed.verify().holds


def test_price_typed_as_32_used_for_six_days_and_corrected_is_right_in_both_months(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    # A whole card from 28 October to 6 November, midnight to midnight in Berlin: four days in October,
    # one of them after the clocks went back (25 October), and five in November, at 3.20.
    ledger.price("3.20")
    start = at("23:00", 27)
    typed_ms = at("23:00", 30)
    end = start + 9 * DAY
    held = allocation(
        core_percent=100, bound_at_ms=start, confirmed_at_ms=end, ended_at_ms=end, end_kind="observed"
    )
    ledger.price("32.0", from_ms=typed_ms)
    ledger.send([presence(start, end), held], now_ms=end)
    ledger.rate(end)
    # October: 3 days at 3.20 = 230.40, 1 day at 32.0 = 768.00.
    closing_ms = end + 2 * DAY
    assert ledger.close("acme", now_ms=closing_ms).total == Decimal("998.40")
    # November: 5 days at 32.0 = 3840.00.
    assert ledger.statement("team", "2026-11").total == Decimal("3840.00")
    ledger.price("3.20", from_ms=typed_ms, reason="typed 32.0 for 3.20")
    ledger.rate(closing_ms)
    assert ledger.statement("team", "2026-11").total == Decimal("384.00")
    assert ledger.statement("team").total == Decimal("998.40")
    corrected = ledger.correct("acme", now_ms=closing_ms, with_versions=True)
    # 24 × (3.20 − 32.0)
    assert corrected.amount == Decimal("-691.20")
    assert ledger.statement("team", "2026-11").total == Decimal("384.00") - Decimal("691.20")
    assert ledger.verify().holds
    assert ledger.verify("2026-11").holds


def test_a_late_fact_is_priced_as_of_its_usage_instant(
    ledger: Ledger, at: At, november: int, late: AllocationFact, presence: Presence
) -> None:
    # A quarter of a card, 10:00 to 12:00; 2.40 until 11:00, then 4.00: 0.25 × 2.40 + 0.25 × 4.00.
    ledger.price("2.40")
    ledger.price("4.00", from_ms=at("11:00", 5))
    ledger.send([presence(at("10:00", 5), at("12:00", 5))], now_ms=at("12:00", 5))
    ledger.rate(at("12:00", 5))
    ledger.close("platform", now_ms=november)
    ledger.send([late], now_ms=november)
    ledger.rate(november)
    assert ledger.statement("team").total == Decimal("1.60")
    assert ledger.correct("platform", now_ms=november).amount == Decimal("-1.60")


def test_an_open_period_is_not_corrected_but_rated(october: Ledger, november: int) -> None:
    with pytest.raises(ConflictError, match="only a closed period is corrected"):
        october.correct("acme", now_ms=november)


def test_a_correction_that_needs_a_price_which_the_seal_does_not_know_names_the_model(
    closed: Ledger, november: int, at: At, allocation: Allocation, presence: Presence
) -> None:
    start, end = at("09:00", 6), at("11:00", 6)
    held = allocation(
        pod_uid="other",
        device_uuid="GPU-2",
        model="L4",
        core_percent=100,
        bound_at_ms=start,
        confirmed_at_ms=end,
        ended_at_ms=end,
        end_kind="observed",
    )
    closed.send([presence(start, end, device_uuid="GPU-2", model="L4"), held], now_ms=november)
    with pytest.raises(ConflictError, match="no price known to the seal for L4"):
        closed.correct("acme", now_ms=november)
    closed.price("1.00", model="L4")
    assert closed.correct("acme", now_ms=november, with_versions=True).amount == Decimal("2.00")


def test_corrections_of_a_closed_month_are_sealed_with_the_month_they_were_posted_in(
    closed: Ledger, november: int, late: AllocationFact, at: At
) -> None:
    closed.send([late], now_ms=november)
    closed.correct("acme", now_ms=november)
    december = at("23:00", 31) + 34 * DAY
    closed.rate(december)
    assert closed.close("acme", "2026-11", now_ms=december).total == Decimal("1.50")
    assert closed.verify().holds
    assert closed.verify("2026-11").holds


def test_an_adjustment_is_a_line_of_its_own_with_its_reason_and_counts_in_every_total(
    october: Ledger, at: At
) -> None:
    october.adjust("team", "-0.37", "the card was slow", now_ms=at("12:00", 6))
    october.adjust("team", "0.10", "and a bit", now_ms=at("12:00", 6))
    october.rate(at("13:00", 6))
    statement = october.statement("team")
    # 4.50 − 0.37 + 0.10
    assert statement.total == Decimal("4.23")
    assert [(line.kind, line.amount, line.reason) for line in statement.lines[1:]] == [
        ("adjustment", Decimal("-0.37"), "the card was slow"),
        ("adjustment", Decimal("0.10"), "and a bit"),
    ]
    assert sum(line.shown or 0 for line in statement.lines) + (statement.rounding or 0) == statement.total
    with october.database.reading() as session:
        for group in GROUPS:
            report = report_cost(session, COMMAND_LINE, month_span(parse_month("2026-10")), [group])
            # With the idle half of the card, 4.50.
            assert sum(row.amount or 0 for row in report.rows) == Decimal("8.73"), group
        reasons = session.scalars(select(AuditLog.after).where(AuditLog.action == "adjust")).all()
    assert october.verify().holds
    assert '"reason":"the card was slow"' in reasons[0]


def test_an_adjustment_after_the_close_goes_into_the_open_period(closed: Ledger, at: At) -> None:
    closed.adjust("team", "1.00", "forgotten", now_ms=at("12:00", 20))
    assert closed.statement("team", "2026-11").total == Decimal("1.00")
    assert closed.statement("team").total == Decimal("4.50")


@pytest.mark.parametrize(
    ("amount", "reason", "message"),
    [
        ("1.00", " ", "needs its reason"),
        ("1.001", "r", "finer than EUR, which has 2 digits"),
        ("0", "r", "is 0 or beyond"),
        ("NaN", "r", "is no number"),
        ("ten", "r", "is no number"),
    ],
)
def test_an_adjustment_that_cannot_be_is_refused(
    october: Ledger, at: At, amount: str, reason: str, message: str
) -> None:
    with pytest.raises(InvalidError, match=message):
        october.adjust("team", amount, reason, now_ms=at("12:00", 6))


def test_an_adjustment_of_nobody_is_refused(october: Ledger, at: At) -> None:
    with pytest.raises(NotFoundError, match='no tenant "nobody"'):
        october.adjust("nobody", "1", "r", now_ms=at("12:00", 6))
    assert parse_amount("-12.50") == Decimal("-12.50")
