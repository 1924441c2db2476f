"""Budgets over the golden month: spent is the statement's total, a threshold is told once."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from accounting.access.viewer import COMMAND_LINE
from accounting.budgets.book import Wish, set_budget
from accounting.budgets.standing import note_crossings, standings
from accounting.errors import ConflictError, InvalidError
from accounting.ledger.calendar import Month, parse_month
from accounting.prices.versioning import Recording
from accounting.tenants.tree import find_tenant
from lab.golden.batches import in_order
from lab.golden.facts import facts_until
from lab.golden.month import GOLDEN_MONTH, MONTH, NOW_MS
from lab.golden.world import at

if TYPE_CHECKING:
    from tests.lab.golden.conftest import Accounting

D = Decimal
OCTOBER: Month = parse_month(MONTH)


@pytest.fixture
def told(accounting: Accounting) -> Accounting:
    assert accounting.take(in_order(facts_until(GOLDEN_MONTH, NOW_MS))).rejected == 0
    accounting.rate()
    return accounting


def _set(accounting: Accounting, tenant: str, amount: str, reason: str | None = None, **wish: Any) -> int:
    with accounting.database.writing() as session:
        wished = Wish(D(amount), wish.pop("first", OCTOBER), **wish)
        recording = Recording(COMMAND_LINE, accounting.now_ms, reason)
        return set_budget(session, find_tenant(session, COMMAND_LINE, tenant), wished, recording).id


def _standings(accounting: Accounting) -> dict[str, Any]:
    with accounting.database.reading() as session:
        return {each.tenant: each for each in standings(session, COMMAND_LINE, OCTOBER)}


def _note(accounting: Accounting) -> list[tuple[str, int]]:
    with accounting.database.writing() as session:
        found = standings(session, COMMAND_LINE, OCTOBER)
        return [(one.tenant, percent) for one, percent in note_crossings(session, found, accounting.now_ms)]


def test_spent_is_the_statements_total_of_a_leaf_and_of_a_whole_account(told: Accounting) -> None:
    _set(told, "acme/red", "2000")
    _set(told, "acme", "1500")
    found = _standings(told)
    # red 1080.30; the account: 1080.30 + 54.008 + 48.40, rounded once.
    assert found["acme/red"].spent == D("1080.30")
    assert found["acme/red"].left == D("919.70")
    assert found["acme/red"].used_ratio == D("0.540150")
    assert found["acme"].spent == D("1182.71")
    assert found["acme"].forecast == D("1182.71"), "October is over: nothing is added"


def test_each_threshold_is_told_once_and_anew_for_a_changed_budget(told: Accounting) -> None:
    _set(told, "acme/red", "2000", percents=(50, 80, 100))
    assert _note(told) == [("acme/red", 50)]
    assert _note(told) == []
    _set(told, "acme/red", "1200", "half of it was meant for November", percents=(50, 80, 100))
    assert _note(told) == [("acme/red", 50), ("acme/red", 80)]
    crossed = [(one.percent, one.crossed_at_ms) for one in _standings(told)["acme/red"].crossings]
    assert crossed == [(50, NOW_MS), (80, NOW_MS), (100, None)]


def test_halfway_through_the_month_the_forecast_adds_the_rest_at_the_last_weeks_rate(
    accounting: Accounting,
) -> None:
    accounting.now_ms = at("2026-10-15T22:00Z")  # midnight in Berlin: 15 days are over, 385 hours are left
    accounting.take(in_order(facts_until(GOLDEN_MONTH, accounting.now_ms)))
    accounting.rate()
    _set(accounting, "acme/red", "2000")
    found = _standings(accounting)["acme/red"]
    # On the A100 red holds half of it at 2.40 (1.20 an hour) all through the last week; in alpha's other
    # cluster beta it held its slice until the 11th at noon: the answer is spent plus the week's mean.
    week = [line for line in accounting.statement("acme/red")["lines"] if line["day"] >= "2026-10-09"]
    rate = sum((D(line["amount"]) for line in week), D(0)) / (7 * 24)
    assert found.forecast == round(D(accounting.statement("acme/red")["amount"]) + rate * 385, 2)


def test_a_budget_is_refused_where_nothing_can_be_spent_or_versions_would_overlap(told: Accounting) -> None:
    with pytest.raises(InvalidError, match="showback"):
        _set(told, "lab/red", "10")
    with pytest.raises(InvalidError, match="finer than EUR has digits"):
        _set(told, "acme/red", "10.005")
    with pytest.raises(InvalidError, match=r"thresholds \(0\)"):
        _set(told, "acme/red", "10", percents=(0,))
    _set(told, "acme/red", "2000")
    with pytest.raises(InvalidError, match="say why"):
        _set(told, "acme/red", "2500")
    with pytest.raises(ConflictError, match="must not overlap"):
        _set(told, "acme/red", "2500", first=parse_month("2026-09"), last=OCTOBER)


def test_a_budget_of_nothing_takes_the_budget_away(told: Accounting) -> None:
    _set(told, "acme/red", "2000")
    _set(told, "acme/red", "0", "the team has gone")
    assert _standings(told) == {}


def test_a_tenant_reads_the_budgets_and_the_forecast_of_its_own_subtree_only(told: Accounting) -> None:
    _set(told, "acme/red", "2000")
    _set(told, "acme/green", "100")
    reader = told.token("tenant", "acme/red")
    for path in (
        f"/api/v1/budgets?period={MONTH}",
        f"/api/v1/forecast?period={MONTH}",
        "/api/v1/budgets/versions",
    ):
        rows = told.get(path, reader).json()["rows"]
        assert {row["tenant"] for row in rows} == {"acme/red"}, path


def test_over_http_a_budget_is_recorded_once_however_often_the_request_is_retried(told: Accounting) -> None:
    headers = {"Authorization": f"Bearer {told.token('operator')}", "Idempotency-Key": "b-1"}
    body = {"tenant": "acme/red", "amount": "2000", "first": MONTH}
    url = f"{told.address}/api/v1/budgets"
    answers = [httpx.post(url, json=body, headers=headers, timeout=60) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].content == answers[1].content
    versions = told.get("/api/v1/budgets/versions", told.token("operator")).json()["rows"]
    assert [row["amount"] for row in versions] == ["2000"]


def test_prometheus_sees_budget_use_and_forecast_of_the_month_that_is_open_now(told: Accounting) -> None:
    told.now_ms = at("2026-10-31T12:00Z")
    _set(told, "acme/red", "2000")
    told.publish()
    text = told.get("/metrics", told.token("operator")).text
    samples = {
        (sample.name, sample.labels.get("tenant")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["slicemeter_budget_amount", "acme/red"] == 2000
    assert samples["slicemeter_budget_used_ratio", "acme/red"] == pytest.approx(0.54015)
    assert ("slicemeter_forecast_cost", "acme/red") in samples
    assert ("slicemeter_forecast_cost", "acme/green") in samples
