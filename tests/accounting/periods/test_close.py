"""Closing: what blocks it, what it seals, and what nobody can change afterwards (`ledger.md §9, §15`)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DatabaseError

from accounting.errors import InvalidError, NotFoundError
from accounting.ledger.calendar import Month, month_bounds_ms, parse_month
from accounting.periods import close
from accounting.periods.close import Closed
from accounting.periods.preflight import Preflight
from accounting.periods.sealing import make_seal
from accounting.reports.rendering import FORMATS, render_statement
from accounting.store.models import AuditLog, BillingPeriod, IssuedStatement, LedgerLine
from contract.facts import AllocationFact, PresenceFact, SliceUsageFact

if TYPE_CHECKING:
    from tests.accounting.periods.conftest import Ledger

At = Callable[..., int]
Allocation = Callable[..., AllocationFact]
Presence = Callable[..., PresenceFact]
Usage = Callable[..., SliceUsageFact]

HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture
def november(at: At) -> int:
    """Midnight in Berlin at which October ends."""
    return at("23:00", 31)


def checks(preflight: Closed | Preflight) -> list[str]:
    assert isinstance(preflight, Preflight)
    return [one.check for one in preflight.blockers]


def test_a_month_closes_with_a_number_a_hash_and_the_ingest_number_it_took_in(
    october: Ledger, november: int
) -> None:
    closed = october.close("acme", now_ms=november + 4 * DAY)
    # 3 h of half a card at 3.00.
    assert (closed.number, closed.currency, closed.total) == ("SM-000001", "EUR", Decimal("4.50"))
    assert len(closed.sha256) == 64
    assert (closed.ingest_watermark, closed.closed_by, closed.was_closed) == (1, "command line", False)
    assert october.statement("team").state == "closed"


def test_closing_twice_is_closing_once(october: Ledger, november: int) -> None:
    first = october.close("acme", now_ms=november + 4 * DAY)
    second = october.close("acme", now_ms=november + 5 * DAY)
    assert second.was_closed
    assert (second.number, second.sha256, second.closed_at_ms) == (
        first.number,
        first.sha256,
        first.closed_at_ms,
    )
    with october.database.reading() as session:
        assert len(session.scalars(select(IssuedStatement)).all()) == 1


def test_a_month_that_is_not_over_does_not_close_and_no_override_helps(
    october: Ledger, november: int
) -> None:
    assert checks(october.try_to_close("acme", now_ms=november - 1)) == ["period_is_over"]
    assert checks(october.try_to_close("acme", now_ms=november - 1, override="early")) == ["period_is_over"]


def test_a_month_waits_for_its_close_grace_unless_overridden_with_a_reason(
    october: Ledger, november: int
) -> None:
    # Three local days after the end; Berlin is on winter time by then.
    assert checks(october.try_to_close("acme", now_ms=november + 3 * DAY - 1)) == ["close_grace"]
    with pytest.raises(InvalidError, match="an override needs its reason"):
        october.try_to_close("acme", now_ms=november + 3 * DAY - 1, override=" ")
    assert october.close("acme", now_ms=november + 3 * DAY - 1, override="the auditors are here")
    with october.database.reading() as session:
        assert (
            session.scalar(select(BillingPeriod.override_reason).where(BillingPeriod.state == "closed"))
            == "the auditors are here"
        )


def test_the_day_that_the_close_grace_ends_the_month_closes(october: Ledger, november: int) -> None:
    assert october.close("acme", now_ms=november + 3 * DAY)


def test_a_model_without_a_price_stops_the_close_with_its_name_and_an_explicit_zero_lets_it_close(
    october: Ledger, november: int, at: At, allocation: Allocation, presence: Presence
) -> None:
    start, end = at("09:00", 6), at("10:00", 6)
    held = allocation(
        pod_uid="other",
        device_uuid="GPU-2",
        model="L4",
        bound_at_ms=start,
        confirmed_at_ms=end,
        ended_at_ms=end,
        end_kind="observed",
    )
    october.send([presence(start, end, device_uuid="GPU-2", model="L4"), held], now_ms=end)
    now = november + 4 * DAY
    blocked = october.try_to_close("acme", now_ms=now)
    assert checks(blocked) == ["priced"]
    assert isinstance(blocked, Preflight)
    assert 'model "L4" has no price' in blocked.blockers[0].detail
    assert checks(october.try_to_close("acme", now_ms=now, override="never mind")) == ["priced"]
    october.price("0", model="L4")
    assert october.close("acme", now_ms=now).total == Decimal("4.50")


def test_a_showback_account_closes_without_prices_and_states_no_money(
    ledger: Ledger, november: int, at: At, allocation: Allocation, presence: Presence
) -> None:
    ledger.account("show", currency=None, zone="Europe/Berlin")
    ledger.cluster("e", account="show")
    start, end = at("09:00", 5), at("12:00", 5)
    held = allocation(
        cluster="e", bound_at_ms=start, confirmed_at_ms=end, ended_at_ms=end, end_kind="observed"
    )
    ledger.send([presence(start, end, cluster="e"), held], now_ms=end)
    ledger.rate(end)
    closed = ledger.close("show", now_ms=november + 4 * DAY)
    assert (closed.currency, closed.total) == (None, None)


def test_a_month_whose_coverage_is_under_the_threshold_does_not_close_without_an_override_and_a_reason(
    ledger: Ledger, november: int, at: At, allocation: Allocation, presence: Presence
) -> None:
    # Confirmed 09:00 to 10:00 and 14:00 to 15:00; the four hours between are bridged: 2 of 6 h.
    ledger.price("3.00")
    held = allocation(
        bound_at_ms=at("09:00", 5),
        confirmed_at_ms=at("09:00", 5),
        ended_at_ms=at("09:10", 5),
        end_kind="observed",
    )
    reports = [presence(at("09:00", 5), at("10:00", 5)), presence(at("14:00", 5), at("15:00", 5))]
    ledger.send([*reports, held], now_ms=at("15:00", 5))
    ledger.rate(at("15:00", 5))
    now = november + 4 * DAY
    blocked = ledger.try_to_close("acme", now_ms=now)
    assert checks(blocked) == ["coverage"]
    assert isinstance(blocked, Preflight)
    assert "33.33 % of the devices' presence is confirmed, less than 95.00 %" in blocked.blockers[0].detail
    assert ledger.close("acme", now_ms=now, override="the node was being moved")


def test_a_month_closes_only_after_those_before_it(october: Ledger, at: At, november: int) -> None:
    december = month_bounds_ms(parse_month("2026-11"), "Europe/Berlin")[1]
    october.rate(december)
    blocked = october.try_to_close("acme", "2026-11", now_ms=december + 4 * DAY)
    assert checks(blocked) == ["earlier_period_open"]
    october.close("acme", now_ms=december + 4 * DAY)
    assert october.close("acme", "2026-11", now_ms=december + 4 * DAY).number == "SM-000002"


def test_the_preflight_lists_everything_that_blocks_and_changes_nothing(
    october: Ledger, november: int, at: At, allocation: Allocation
) -> None:
    start = at("09:00", 7)
    lost = allocation(
        pod_uid="lost",
        device_uuid="GPU-9",
        bound_at_ms=start,
        confirmed_at_ms=start,
        ended_at_ms=start + HOUR,
        end_kind="observed",
    )
    october.send([lost], now_ms=start + HOUR)
    found = october.preflight("acme", now_ms=november + DAY)
    assert checks(found) == ["close_grace", "pending", "device_known"]
    assert "c/node-uid-1/GPU-9 2026-10-07T00:00:00Z" in found.blockers[1].detail
    assert found == october.preflight("acme", now_ms=november + DAY)
    assert found.state == "open"


def test_an_account_without_such_a_period_is_told_so(october: Ledger, november: int) -> None:
    with pytest.raises(NotFoundError, match="has no period 2026-09"):
        october.try_to_close("acme", "2026-09", now_ms=november)
    with pytest.raises(NotFoundError, match='no account "nobody"'):
        october.try_to_close("nobody", now_ms=november)


def test_months_tile_without_a_hole_also_where_nothing_was_held(october: Ledger) -> None:
    april = month_bounds_ms(Month(2027, 4), "Europe/Berlin")[0]
    october.rate(april)
    with october.database.reading() as session:
        periods = session.scalars(
            select(BillingPeriod).where(BillingPeriod.account == "acme").order_by(BillingPeriod.starts_at_ms)
        ).all()
        bounds = [(one.starts_at_ms, one.ends_at_ms) for one in periods]
    # October 2026 to April 2027 in Berlin: 745, 720, 744, 744, 672, 743 and 720 hours.
    assert [(end - start) // HOUR for start, end in bounds] == [745, 720, 744, 744, 672, 743, 720]
    assert all(end == start for (_, end), (start, _) in pairwise(bounds))


_COLUMNS = ", ".join(
    column.name for column in LedgerLine.__table__.columns if column.name not in {"id", "revision"}
)
INSERTED_AGAIN = (
    f"INSERT INTO ledger_line ({_COLUMNS}, revision) "
    f"SELECT {_COLUMNS}, 7 FROM ledger_line WHERE account = 'acme'"
)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger_line SET amount = '4.51' WHERE account = 'acme'",
        "DELETE FROM ledger_line WHERE account = 'acme'",
        "UPDATE ledger_line SET period_id = (SELECT period_id FROM statement) WHERE account = 'platform'",
        INSERTED_AGAIN,
        "UPDATE billing_period SET state = 'open' WHERE state = 'closed'",
        "UPDATE billing_period SET sha256 = 'x' WHERE state = 'closed'",
        "DELETE FROM billing_period WHERE state = 'closed'",
        "UPDATE statement SET total = '1'",
        "DELETE FROM statement",
        "UPDATE sealed_use SET sha256 = 'x'",
        "DELETE FROM sealed_use",
    ],
)
def test_a_closed_period_accepts_no_insert_update_or_delete(
    october: Ledger, november: int, slice_usage: Usage, at: At, statement: str
) -> None:
    used = slice_usage(hour_ms=at("09:00", 5), from_ms=at("09:00", 5), to_ms=at("10:00", 5), covered_ms=HOUR)
    october.send([used], now_ms=at("12:00", 5))
    october.close("acme", now_ms=november + 4 * DAY)
    refused = pytest.raises(DatabaseError, match=r"is sealed|insert-only|permission denied")
    with refused, october.database.writing() as session:
        session.execute(text(statement))


def test_a_statement_of_a_closed_month_is_byte_identical_when_made_again(
    october: Ledger, at: At, slice_usage: Usage, allocation: Allocation, presence: Presence
) -> None:
    november = at("23:00", 31)

    def used(**fields: int) -> SliceUsageFact:
        hour = at("09:00", 5)
        return slice_usage(hour_ms=hour, from_ms=hour, to_ms=hour + HOUR, covered_ms=HOUR, **fields)

    october.send([used(sm_ppm_ms=5_000, revision=1)], now_ms=at("12:00", 5))
    october.close("acme", now_ms=november + 4 * DAY)
    before = [render_statement(october.statement("team"), form) for form in FORMATS]
    assert october.statement("team").lines[0].use is not None
    # Late facts of every kind: other use, another slice, more presence; rated, on a later day.
    late = allocation(
        pod_uid="late",
        bound_at_ms=at("10:00", 5),
        confirmed_at_ms=at("11:00", 5),
        ended_at_ms=at("11:00", 5),
        end_kind="observed",
    )
    october.send(
        [used(sm_ppm_ms=9_000, revision=2), late, presence(at("12:00", 5), at("20:00", 5))],
        now_ms=november + 5 * DAY,
    )
    october.rate(november + 6 * DAY)
    assert [render_statement(october.statement("team"), form) for form in FORMATS] == before


def test_a_fact_that_comes_while_a_frozen_month_is_sealed_changes_no_line_of_it(
    october: Ledger, november: int, at: At, allocation: Allocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = allocation(
        pod_uid="late",
        core_percent=50,
        bound_at_ms=at("10:00", 5),
        confirmed_at_ms=at("11:00", 5),
        ended_at_ms=at("11:00", 5),
        end_kind="observed",
    )

    def meanwhile(*args: object, **kwargs: object) -> object:
        october.send([late], now_ms=november + 4 * DAY)
        october.rate(november + 4 * DAY)
        return make_seal(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(close, "make_seal", meanwhile)
    assert october.close("acme", now_ms=november + 4 * DAY).total == Decimal("4.50")
    verified = october.verify()
    assert verified.holds
    assert [name.split(" on ")[0] for name in verified.late] == ["usage of acme/team"]


def test_closing_is_on_the_audit_log_with_who_and_what_was_passed_over(
    october: Ledger, november: int
) -> None:
    october.close("acme", now_ms=november + DAY, override="the auditors are here")
    with october.database.reading() as session:
        rows = session.execute(
            select(AuditLog.actor, AuditLog.action, AuditLog.object, AuditLog.after)
            .where(AuditLog.action.like("period%"))
            .order_by(AuditLog.seq)
        ).all()
    assert [tuple(row)[:3] for row in rows] == [
        ("command line", "period freeze", "acme 2026-10"),
        ("command line", "period close", "acme 2026-10"),
    ]
    assert '"passed_over":"close_grace"' in rows[0][3]
    assert '"reason":"the auditors are here"' in rows[0][3]
    assert '"statement":"SM-000001"' in rows[1][3]
