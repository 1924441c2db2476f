"""What is held and not used: figures by hand, over HTTP, on both databases."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from accounting.facts.ingest import ingest
from accounting.facts.reading import Scope, read_lines
from accounting.periods.rate import rate
from contract.facts import AllocationFact, Fact, PresenceFact, SliceUsageFact, canonical_bytes

if TYPE_CHECKING:
    from tests.accounting.api.conftest import Api

At = Callable[..., int]
Allocation = Callable[..., AllocationFact]
Presence = Callable[..., PresenceFact]
Usage = Callable[..., SliceUsageFact]

HOUR = 3_600_000
CARD_HOUR = 3_600_000_000_000
WINDOW = "from=2026-10-01T00:00:00Z&to=2026-10-03T00:00:00Z"


@pytest.fixture
def books(api: Api, at: At, allocation: Allocation, presence: Presence, slice_usage: Usage) -> Api:
    """Two days of one card: `busy` used for 40 hours out of 48, `young` not measured, both half a card.

    `busy` is bound at midnight and runs from 06:00 on. Of its 40 measured hours 38 use 10 % of the card and
    1,000 MiB, two use 40 % and 3,000 MiB; its peak is 3,200 MiB. It holds 50 % and 7,680 MiB.
    """
    start, now = at("00:00"), at("00:00", 3)
    facts: list[Fact] = [
        presence(start, now, cluster="a"),
        allocation(
            cluster="a", pod_uid="busy", pod="busy", mem_mib=7_680, core_percent=50, bound_at_ms=start,
            started_at_ms=at("06:00"), confirmed_at_ms=now, tenant_key="red",
        ),
        allocation(
            cluster="a", pod_uid="young", pod="young", mem_mib=4_000, core_percent=50, bound_at_ms=start,
            started_at_ms=start, confirmed_at_ms=now, tenant_key="blue",
        ),
    ]  # fmt: skip
    for number in range(40):
        hour_ms = at("06:00") + number * HOUR
        is_high = number >= 38
        facts.append(
            slice_usage(
                cluster="a", pod_uid="busy", hour_ms=hour_ms, from_ms=hour_ms, to_ms=hour_ms + HOUR,
                covered_ms=HOUR,
                sm_ppm_ms=HOUR * (400_000 if is_high else 100_000),
                mem_used_mib_ms=HOUR * (3_000 if is_high else 1_000),
                mem_peak_mib=3_200 if is_high else 1_100,
            )
        )  # fmt: skip
    lines = read_lines(b"\n".join(map(canonical_bytes, facts)), Scope("a"), now_ms=now)
    with api.database.writing() as session:
        assert not ingest(session, lines, cluster="a", now_ms=now).rejected
    api.now_ms = now
    rate(api.database, as_of_ms=now, grace_ms=900_000)
    return api


def _rows(api: Api, query: str, role: str = "operator", **scope: str) -> dict[str, dict[str, Any]]:
    token = api.token(role, **scope)
    answer = api.request("GET", f"/api/v1/waste?{WINDOW}{query}", token=token)
    assert answer.status_code == 200, answer.text
    name = "tenant" if "by=tenant" in query else "pod"
    return {row[name]: row for row in json.loads(answer.text)["rows"]}


def test_a_measured_slice_is_judged_by_its_hours_and_gets_a_request_that_would_have_done(books: Api) -> None:
    busy = _rows(books, "")["busy"]
    assert busy["held_not_running_ms"] == 6 * HOUR
    # Half a card for the six hours before it ran.
    assert busy["not_running_ppm_ms"] == 3 * CARD_HOUR
    assert busy["measured_ms"] == 40 * HOUR
    # Reserved 40 × 0.5 = 20 card-hours, used 38 × 0.1 + 2 × 0.4 = 4.6.
    assert busy["idle_core_ppm_ms"] == round(15.4 * CARD_HOUR)
    # Held 40 × 7,680, used 38 × 1,000 + 2 × 3,000 MiB hours.
    assert busy["idle_mem_mib_ms"] == (307_200 - 44_000) * HOUR
    # 38 of 40 hours are 95 %.
    assert (busy["sm_p95_ppm"], busy["mem_p95_mib"], busy["mem_peak_mib"]) == (100_000, 1_000, 3_200)
    # 10 % and a tenth to spare is 11, in steps of 5; 3,200 MiB and a tenth is 3,520, in steps of 256.
    assert (busy["suggested_core_percent"], busy["suggested_mem_mib"]) == (15, 3_584)


def test_a_slice_that_nobody_measured_gets_no_verdict(books: Api) -> None:
    young = _rows(books, "")["young"]
    assert young["measured_ms"] == 0
    for name in ("idle_core_ppm_ms", "idle_mem_mib_ms", "sm_p95_ppm", "mem_p95_mib", "suggested_mem_mib"):
        assert young[name] is None, name


def test_less_than_a_day_of_measurements_suggests_nothing(books: Api) -> None:
    token = books.token("operator")
    path = "/api/v1/waste?from=2026-10-01T06:00:00Z&to=2026-10-02T05:00:00Z"
    [busy] = [row for row in books.request("GET", path, token=token).json()["rows"] if row["pod"] == "busy"]
    assert busy["measured_ms"] == 23 * HOUR
    assert (busy["suggested_core_percent"], busy["suggested_mem_mib"]) == (None, None)
    assert busy["mem_p95_mib"] == 1_000


def test_tenants_are_the_sums_of_their_slices_and_those_that_waste_most_come_first(books: Api) -> None:
    rows = _rows(books, "&by=tenant")
    red, blue = (next(row for path, row in rows.items() if path.endswith(key)) for key in ("/red", "/blue"))
    assert next(iter(rows)).endswith("/red")
    assert red["not_running_ppm_ms"] + red["idle_core_ppm_ms"] == round(18.4 * CARD_HOUR)
    assert (blue["slices"], blue["unmeasured_slices"], blue["idle_core_ppm_ms"]) == (1, 1, 0)


def test_a_tenant_sees_its_own_waste_only(books: Api) -> None:
    [path] = [path for path in _rows(books, "&by=tenant") if path.endswith("/blue")]
    assert set(_rows(books, "", "tenant", tenant_path=path)) == {"young"}


def test_as_csv_it_has_a_column_for_each_figure(books: Api) -> None:
    token = books.token("operator")
    answer = books.request("GET", f"/api/v1/waste?{WINDOW}", token=token, headers={"Accept": "text/csv"})
    heading, first, *_ = answer.text.splitlines()
    assert {"suggested_mem_mib", "idle_core_ppm_ms", "sm_p95_ppm"} <= set(heading.split(","))
    assert "busy" in first


@pytest.mark.parametrize("by", ["slice", "tenant"])
def test_page_by_page_it_is_the_same_list(books: Api, by: str) -> None:
    token = books.token("operator")
    path = f"/api/v1/waste?{WINDOW}&by={by}"
    whole = books.request("GET", path, token=token).json()
    first = books.request("GET", f"{path}&limit=1", token=token).json()
    second = books.request("GET", f"{path}&limit=1&cursor={first['next']}", token=token)
    assert second.status_code == 200, second.text
    assert [*first["rows"], *second.json()["rows"]] == whole["rows"]
    assert second.json()["next"] is None
    assert (len(first["rows"]), len(whole["rows"])) == (1, 2)
