"""October 2026 in Berlin, 745 hours, three clusters: every total worked out by hand.

The scenario is `lab/golden/month.py`.

Prices per card-hour: A100 2.40 until 16 October noon (372 hours into the month), then 3.00 (373 hours);
L4 0.80, an idle L4 0.20. An idle A100 costs what a slice of it costs. Shares are max(memory, cores).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from lab.golden.batches import in_order, shuffled
from lab.golden.facts import facts_until
from lab.golden.month import A100, ENDS_MS, GOLDEN_MONTH, L4_FIRST, L4_SECOND, MONTH, NOW_MS, STARTS_MS
from lab.golden.world import at

if TYPE_CHECKING:
    from tests.lab.golden.conftest import Accounting

D = Decimal

# The A100, by hours of the month. For 12 of the first 372 hours red (0.5) and green (0.7) over-book it by
# 0.2, so that each pays its share times 1/1.2: red 0.5/1.2 = 5/12, green 0.7/1.2 = 7/12, idle nothing.
A100_OVERBOOKED_H = 12
A100_RED_CHEAP = (372 - 12) * D("0.5") + 12 * D(5) / 12  # 180 + 5 = 185 card-hours
A100_RED_DEAR = 373 * D("0.5")  # 186.5
A100_GREEN = 12 * D(7) / 12  # 7
A100_IDLE_CHEAP = (372 - 12) * D("0.5")  # 180
A100_IDLE_DEAR = 373 * D("0.5")  # 186.5

# Pods on the two L4 of gpu-2, in card-hours. The node was gone for 57 hours (Friday 22:00 to Monday 07:00),
# but its outbox shows living processes for 5 of them: 52 hours are down, on either card.
DOWN_H = 57 - 5
WHOLE = 48 * D(1)  # 5 October 06:00 to 7 October 06:00, no core request: the whole card
SERVE = (6 * 24 - DOWN_H) * D("0.5")  # 14 to 20 October less the time that was down: 92 × 0.5 = 46
MISSED = 10 * D("0.25")  # 06:00 to 16:00, although the cluster witness missed it at 10:00
NIGHT = 16 * D("0.25")  # 24 October 20:00Z to 25 October 12:00Z
GHOST = 2 * D("0.5")  # 08:00 to 09:45, last confirmed, and 15 minutes of grace
QUICK = D(36) / 3600  # 36 s of a whole card: 0.01
PAIR = 10 * D("0.25")  # on each of its two cards
EDGE = 1 * D("0.5")  # its hour in October; three more are November's

# Cluster beta: 40 % by cores, a third by memory, from 1 to 11 October.
BETA_RED = 240 * D("0.4")  # 96

# Cluster gamma, an account without a currency: a quarter of the T4 all month.
GAMMA_RED = 745 * D("0.25")  # 186.25

L4, L4_IDLE = D("0.80"), D("0.20")
CHEAP, DEAR = D("2.40"), D("3.00")

RED = A100_RED_CHEAP * CHEAP + A100_RED_DEAR * DEAR + BETA_RED * L4
GREEN = A100_GREEN * CHEAP + (SERVE + QUICK + EDGE) * L4
BLUE = (WHOLE + MISSED + NIGHT + GHOST + 2 * PAIR) * L4

L4_FIRST_IDLE = 745 - DOWN_H - (WHOLE + GHOST + QUICK + PAIR + EDGE)
L4_SECOND_IDLE = 745 - DOWN_H - (SERVE + MISSED + NIGHT + PAIR)
BETA_IDLE = 745 - BETA_RED
IDLE = (
    A100_IDLE_CHEAP * CHEAP + A100_IDLE_DEAR * DEAR + (L4_FIRST_IDLE + L4_SECOND_IDLE + BETA_IDLE) * L4_IDLE
)


def test_the_arithmetic_above_is_what_a_calculator_says() -> None:
    by_hand = {"red": RED, "green": GREEN, "blue": BLUE, "idle": IDLE}
    assert by_hand == {"red": D("1080.30"), "green": D("54.008"), "blue": D("48.40"), "idle": D("1377.098")}
    # Together they are every present card-hour at its price.
    a100 = 372 * CHEAP + 373 * DEAR
    assert A100_RED_CHEAP + A100_GREEN + A100_IDLE_CHEAP == 372
    assert A100_RED_DEAR + A100_IDLE_DEAR == 373
    l4_held = WHOLE + GHOST + QUICK + 2 * PAIR + EDGE + SERVE + MISSED + NIGHT + BETA_RED
    l4_idle = 3 * 745 - 2 * DOWN_H - l4_held
    assert sum(by_hand.values()) == a100 + l4_held * L4 + l4_idle * L4_IDLE


TOTALS = [
    ("acme/red", RED, "1080.30", A100_RED_CHEAP + A100_RED_DEAR + BETA_RED),
    ("acme/green", GREEN, "54.01", A100_GREEN + SERVE + QUICK + EDGE),
    ("acme/blue", BLUE, "48.40", WHOLE + MISSED + NIGHT + GHOST + 2 * PAIR),
]


def card_hours(ppm_ms: int) -> Decimal:
    return D(ppm_ms) / 3_600_000_000_000


@pytest.mark.parametrize(("tenant", "amount", "total", "hours"), TOTALS)
def test_a_tenants_statement_is_what_was_worked_out_by_hand(
    billed: Accounting, tenant: str, amount: Decimal, total: str, hours: Decimal
) -> None:
    statement = billed.statement(tenant)
    assert (statement["currency"], statement["total"]) == ("EUR", total)
    assert D(statement["amount"]) == amount
    assert card_hours(statement["totals"]["charged_ppm_ms"]) == hours
    assert statement["reconciliation"]["unrated_models"] == []
    shown = sum((D(line["shown"]) for line in statement["lines"]), D(0))
    assert shown + D(statement["rounding"]) == D(total)


def test_idle_capacity_belongs_to_the_platform_and_costs_what_was_worked_out(billed: Accounting) -> None:
    operator = billed.token("operator")
    query = {"tenant": "platform/idle", "account": "acme-platform"}
    statement = billed.get(f"/api/v1/statements/{MONTH}", operator, **query).json()
    assert (D(statement["amount"]), statement["total"]) == (IDLE, "1377.10")


def test_a_showback_account_is_stated_in_card_hours_without_amounts(billed: Accounting) -> None:
    statement = billed.statement("lab/red")
    assert (statement["currency"], statement["total"], statement["amount"]) == (None, None, None)
    assert card_hours(statement["totals"]["charged_ppm_ms"]) == GAMMA_RED
    assert statement["reconciliation"]["unrated_models"] == []
    assert {line["amount"] for line in statement["lines"]} == {None}


def lines_of(statement: dict[str, Any], pod: str) -> list[dict[str, Any]]:
    return [line for line in statement["lines"] if line["pod"] == pod]


def charged(lines: Sequence[dict[str, Any]]) -> Decimal:
    return sum((card_hours(line["charged_ppm_ms"]) for line in lines), D(0))


def test_the_month_begins_and_ends_at_midnight_in_berlin(billed: Accounting) -> None:
    statement = billed.statement("acme/red")
    assert (statement["from"], statement["to"]) == ("2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z")
    days = [line["day"] for line in lines_of(statement, "train") if line["cluster"] == "alpha"]
    assert (days[0], days[-1], len(set(days))) == ("2026-10-01", "2026-10-31", 31)
    (edge,) = lines_of(billed.statement("acme/green"), "edge")
    assert (edge["from"], edge["to"], charged([edge])) == (
        "2026-10-31T22:00:00Z",
        "2026-10-31T23:00:00Z",
        D("0.5"),
    )


def test_the_pod_of_the_long_night_pays_its_16_hours_on_two_days(billed: Accounting) -> None:
    saturday, sunday = lines_of(billed.statement("acme/blue"), "night")
    assert (saturday["day"], charged([saturday])) == ("2026-10-24", 2 * D("0.25"))
    assert (sunday["day"], charged([sunday])) == ("2026-10-25", 14 * D("0.25"))


def test_sunday_the_25th_has_25_hours(billed: Accounting) -> None:
    lines = lines_of(billed.statement("acme/red"), "train")
    by_day = {
        day: charged([line for line in lines if line["day"] == day]) for day in ("2026-10-24", "2026-10-25")
    }
    assert by_day == {"2026-10-24": 24 * D("0.5"), "2026-10-25": 25 * D("0.5")}


def test_the_price_of_a_day_changes_at_noon_and_splits_its_line(billed: Accounting) -> None:
    lines = [line for line in lines_of(billed.statement("acme/red"), "train") if line["day"] == "2026-10-16"]
    assert [(line["to"], line["unit_price"], D(line["amount"])) for line in lines] == [
        ("2026-10-16T10:00:00Z", "2.4", 12 * D("0.5") * CHEAP),
        ("2026-10-16T22:00:00Z", "3", 12 * D("0.5") * DEAR),
    ]


def test_over_booking_makes_nobody_dearer_and_shows_the_discount(billed: Accounting) -> None:
    (burst,) = lines_of(billed.statement("acme/green"), "burst")
    assert card_hours(burst["own_ppm_ms"]) == 12 * D("0.7")
    assert card_hours(burst["charged_ppm_ms"]) == 7
    assert card_hours(burst["discount_ppm_ms"]) == D("1.4")
    assert burst["card_factor"] == "0.833333"
    monday = [line for line in lines_of(billed.statement("acme/red"), "train") if line["day"] == "2026-10-12"]
    # 12 hours alone at 0.5, 12 hours at 5/12 with a discount of 1/12 each.
    assert charged(monday) == 6 + 5
    assert sum(line["discount_ppm_ms"] for line in monday) == 3_600_000_000_000


def test_time_bound_but_not_running_is_charged_and_shown(billed: Accounting) -> None:
    lines = lines_of(billed.statement("acme/blue"), "whole")
    assert charged(lines) == 48
    assert sum(line["held_not_running_ppm_ms"] for line in lines) == 3_600_000_000_000


def test_the_weekend_costs_nothing_but_the_hours_in_which_processes_lived(billed: Accounting) -> None:
    by_day = {line["day"]: charged([line]) for line in lines_of(billed.statement("acme/green"), "serve")}
    # Friday whole; Saturday (from Friday 22:00Z) until 01:00Z; Sunday nothing; Monday from 05:00Z to 22:00Z.
    assert by_day["2026-10-16"] == 24 * D("0.5")
    assert by_day["2026-10-17"] == 3 * D("0.5")
    assert "2026-10-18" not in by_day
    assert by_day["2026-10-19"] == 17 * D("0.5")


@pytest.mark.parametrize(
    ("pod", "begins", "ends", "hours"),
    [
        ("ghost", "2026-10-28T08:00:00Z", "2026-10-28T10:00:00Z", GHOST),
        ("missed", "2026-10-21T06:00:00Z", "2026-10-21T16:00:00Z", MISSED),
    ],
)
def test_an_end_that_nobody_saw_or_only_one_inferred(
    billed: Accounting, pod: str, begins: str, ends: str, hours: Decimal
) -> None:
    (line,) = lines_of(billed.statement("acme/blue"), pod)
    assert (line["from"], line["to"], charged([line])) == (begins, ends, hours)


def test_36_seconds_are_billed_as_36_seconds(billed: Accounting) -> None:
    (line,) = lines_of(billed.statement("acme/green"), "quick")
    assert (D(line["amount"]), line["shown"]) == (D("0.008"), "0.01")


def test_a_pod_with_two_cards_pays_for_both(billed: Accounting) -> None:
    lines = lines_of(billed.statement("acme/blue"), "pair")
    assert {line["device_uuid"]: charged([line]) for line in lines} == {
        L4_FIRST.uuid: PAIR,
        L4_SECOND.uuid: PAIR,
    }


def test_what_was_measured_stands_beside_what_is_charged(billed: Accounting) -> None:
    statement = billed.statement("acme/red")
    alpha = [line for line in lines_of(statement, "train") if line["cluster"] == "alpha"]
    # 30 % of the card for 745 hours, 100 W: 745 h × 100 W = 74.5 kWh = 268,200,000,000 mJ.
    assert sum(line["use"]["sm_ppm_ms"] for line in alpha) == 745 * 3_600_000 * 300_000
    assert sum(line["use"]["energy_active_mj"] for line in alpha) == 745 * 3_600_000 * 100
    beta = [line for line in lines_of(statement, "train") if line["cluster"] == "beta"]
    assert {line["use"] for line in beta} == {None}


def test_use_without_an_allocation_is_listed_and_costs_nothing(billed: Accounting) -> None:
    statement = billed.statement("lab")
    (bypass,) = statement["unallocated_use"]
    assert (bypass["tenant_key"], bypass["pod"]) == ("blue", "bypass")
    # Half the card and 20 W for three hours.
    assert bypass["use"]["sm_ppm_ms"] == 3 * 3_600_000 * 500_000
    assert bypass["use"]["energy_active_mj"] == 3 * 3_600_000 * 20
    assert card_hours(statement["totals"]["charged_ppm_ms"]) == GAMMA_RED
    assert billed.statement("lab/red")["unallocated_use"] == []


DEVICES = [
    ("alpha", A100.uuid, A100_RED_CHEAP + A100_RED_DEAR + A100_GREEN, D(0)),
    ("alpha", L4_FIRST.uuid, WHOLE + GHOST + QUICK + PAIR + EDGE, D(DOWN_H)),
    ("alpha", L4_SECOND.uuid, SERVE + MISSED + NIGHT + PAIR, D(DOWN_H)),
    ("beta", A100.uuid, BETA_RED, D(0)),
    ("gamma", "GPU-00000000-0000-0000-0000-000000000004", GAMMA_RED, D(0)),
]


@pytest.mark.parametrize(("cluster", "device_uuid", "held", "down"), DEVICES)
def test_charged_and_idle_and_down_are_present_for_every_device_and_hour(
    billed: Accounting, cluster: str, device_uuid: str, held: Decimal, down: Decimal
) -> None:
    window = {"from": "2026-09-30T22:00:00Z", "to": "2026-10-31T23:00:00Z", "cluster": cluster}
    rows = billed.get("/api/v1/capacity", billed.token("operator"), **window).json()["rows"]
    hours = [row for row in rows if row["device_uuid"] == device_uuid]
    assert len(hours) == 745
    for row in hours:
        assert row["present_ppm_ms"] == 3_600_000_000_000
        assert row["charged_ppm_ms"] + row["idle_ppm_ms"] + row["down_ppm_ms"] == row["present_ppm_ms"]
        assert min(row["charged_ppm_ms"], row["idle_ppm_ms"], row["down_ppm_ms"]) >= 0
    sums = {
        name: card_hours(sum(row[f"{name}_ppm_ms"] for row in hours)) for name in ("charged", "idle", "down")
    }
    assert sums == {"charged": held, "idle": 745 - held - down, "down": down}


def test_the_month_verifies(billed: Accounting) -> None:
    verified = billed.get(f"/api/v1/verify/{MONTH}", billed.token("operator")).json()
    assert (verified["holds"], verified["findings"], verified["pending"]) == (True, [], [])


def test_csv_and_html_state_the_same_total(billed: Accounting) -> None:
    reader = billed.token("tenant", "acme/green")
    answers = {
        form: billed.get(f"/api/v1/statements/{MONTH}", reader, tenant="acme/green", format=form)
        for form in ("csv", "html")
    }
    assert all(answer.status_code == 200 for answer in answers.values())
    rows = list(csv.DictReader(io.StringIO(answers["csv"].text)))
    assert sum((D(row["shown"]) for row in rows), D(0)) == D("54.01")
    assert sum((D(row["amount"]) for row in rows if row["kind"] == "usage"), D(0)) == GREEN
    assert "54.01" in answers["html"].text


def texts(value: object) -> set[str]:
    """Every text in a JSON document."""
    if isinstance(value, dict):
        return {text for one in value.values() for text in texts(one)}
    if isinstance(value, list):
        return {text for one in value for text in texts(one)}
    return {value} if isinstance(value, str) else set()


def test_a_tenants_token_shows_nothing_of_another_tenant(billed: Accounting) -> None:
    green = billed.token("tenant", "acme/green")
    missing = billed.get(f"/api/v1/statements/{MONTH}", green, tenant="acme/nobody")
    for other in ("acme/red", "acme/blue", "lab/red", "red", "acme", "platform/idle"):
        foreign = billed.get(f"/api/v1/statements/{MONTH}", green, tenant=other)
        assert (foreign.status_code, missing.status_code) == (404, 404)
        assert foreign.json()["detail"].replace(f'"{other}"', '"acme/nobody"') == missing.json()["detail"]
    window = {"from": "2026-09-30T22:00:00Z", "to": "2026-10-31T23:00:00Z"}
    pages = [
        billed.get("/api/v1/tenants", green),
        billed.get("/api/v1/usage", green, **window),
        billed.get("/api/v1/allocations", green, **window),
        billed.get("/api/v1/costs", green, period=MONTH),
        billed.get("/api/v1/periods", green),
        billed.get("/api/v1/prices", green),
    ]
    shown = set[str]()
    for page in pages:
        assert page.status_code == 200
        shown |= texts(page.json())
    assert {"acme/green", "burst", "serve", "edge"} <= shown
    pods = {"train", "whole", "missed", "night", "ghost", "pair", "notebook", "bypass"}
    others = {"red", "blue", "acme/red", "acme/blue", "lab/red", "platform/idle", "lab", "beta", "gamma"}
    assert not shown & (pods | others)
    assert billed.get("/api/v1/capacity", green, **window).status_code == 403
    assert billed.get(f"/api/v1/verify/{MONTH}", green).status_code == 403


def totals(accounting: Accounting) -> dict[str, str]:
    return {tenant: accounting.statement(tenant)["total"] for tenant, *_ in TOTALS}


EXPECTED = {tenant: total for tenant, _, total, _ in TOTALS}


@pytest.mark.slow
def test_a_month_told_week_by_week_and_rated_each_time_ends_in_the_same_statements(
    accounting: Accounting,
) -> None:
    weeks = [at(f"2026-10-{day:02d}T09:30Z") for day in (4, 11, 17, 18, 25)]
    for now_ms in [*weeks, at("2026-11-01T00:30Z"), NOW_MS]:
        accounting.now_ms = now_ms
        accounting.take(in_order(facts_until(GOLDEN_MONTH, now_ms)))
        accounting.rate()
    assert totals(accounting) == EXPECTED
    verified = accounting.get(f"/api/v1/verify/{MONTH}", accounting.token("operator")).json()
    assert (verified["holds"], verified["pending"]) == (True, [])


@pytest.mark.slow
def test_before_the_outbox_arrives_the_whole_weekend_is_down(accounting: Accounting) -> None:
    saturday_ms = at("2026-10-17T12:00Z")
    accounting.now_ms = saturday_ms
    accounting.take(in_order(facts_until(GOLDEN_MONTH, saturday_ms)))
    accounting.rate()
    by_day = {line["day"]: charged([line]) for line in lines_of(accounting.statement("acme/green"), "serve")}
    # Friday until the last heartbeat at 20:00Z: 22 of its 24 hours. Nothing is known of the five after it.
    assert by_day["2026-10-16"] == 22 * D("0.5")
    assert "2026-10-17" not in by_day
    accounting.now_ms = NOW_MS
    accounting.take(in_order(facts_until(GOLDEN_MONTH, NOW_MS)))
    accounting.rate()
    assert totals(accounting) == EXPECTED


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_the_order_of_telling_changes_nothing(accounting: Accounting, seed: int) -> None:
    told = facts_until(GOLDEN_MONTH, NOW_MS)
    first = accounting.take(shuffled(told, seed=seed, repeated=0.5))
    assert first.stored == len(told)
    assert first.rejected == 0
    assert accounting.take(shuffled(told, seed=seed + 10)).stored == 0
    accounting.rate()
    assert totals(accounting) == EXPECTED


def test_the_month_has_745_hours() -> None:
    assert ENDS_MS - STARTS_MS == 745 * 3_600_000
