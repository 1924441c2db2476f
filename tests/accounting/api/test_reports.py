"""What readers get over HTTP, and what a tenant's token never sees."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from accounting.access.viewer import COMMAND_LINE
from accounting.facts.ingest import ingest
from accounting.facts.reading import Scope, read_lines
from accounting.periods.rate import rate
from accounting.prices.book import set_price
from accounting.prices.policies import set_policy
from contract.facts import (
    REPORTER_PATH,
    AllocationFact,
    Fact,
    PresenceFact,
    SliceUsageFact,
    canonical_bytes,
)
from tests.accounting.periods.test_energy_lines import board, bypassing

if TYPE_CHECKING:
    from tests.accounting.api.conftest import Api

HOUR = 3_600_000
CARD_HOUR = 3_600_000_000_000

At = Callable[..., int]
Allocation = Callable[..., AllocationFact]
Presence = Callable[..., PresenceFact]
Usage = Callable[..., SliceUsageFact]

DAY = "from=2026-10-01T00:00:00Z&to=2026-10-02T00:00:00Z"
FOREIGN = ("tenant-b", "rooms-of-b", "pod-b", "uid-b", "GPU-B", "node-b", "Model B")
"""Whatever only tenant B has; none of it may reach A's token."""


@pytest.fixture
def books(api: Api, at: At, allocation: Allocation, presence: Presence, slice_usage: Usage) -> Api:
    """Tenants A and B share a card of cluster a for 2 h; B alone has one of cluster b."""
    now, start = at("12:00"), at("10:00")

    def held(letter: str, **fields: object) -> AllocationFact:
        known: dict[str, object] = {
            "cluster": "a", "pod_uid": f"uid-{letter}", "pod": f"pod-{letter}",
            "namespace": f"rooms-of-{letter}", "tenant_key": f"tenant-{letter}",
            "mem_mib": 0, "core_percent": 80, "bound_at_ms": start, "started_at_ms": start,
            "confirmed_at_ms": now,
        }  # fmt: skip
        return allocation(**(known | fields))

    own_card = {
        "cluster": "b",
        "device_uuid": "GPU-B",
        "node_uid": "node-uid-b",
        "node": "node-b",
        "model": "Model B",
    }
    facts: list[Fact] = [
        presence(start, now, cluster="a"),
        presence(start, now, **own_card),
        held("a"),
        held("b"),
        held("b", **own_card),
    ]
    for letter in "ab":
        use = slice_usage(
            cluster="a", pod_uid=f"uid-{letter}", hour_ms=start, from_ms=start, to_ms=start + HOUR,
            covered_ms=HOUR, sm_ppm_ms=HOUR * 300_000, mem_peak_mib=500,
        )  # fmt: skip
        facts.append(use)
    with api.database.writing() as session:
        for model, price in (("Tesla T4", "0.50"), ("Model B", "7.77")):
            set_price(
                session, sku="gpu-slice", model=model, currency="EUR", unit_price=Decimal(price),
                valid_from_ms=0, by=COMMAND_LINE, now_ms=0,
            )  # fmt: skip
        for cluster in "ab":
            text = b"\n".join(canonical_bytes(fact) for fact in facts if fact.cluster == cluster)
            lines = read_lines(text, Scope(cluster), now_ms=now)
            assert not ingest(session, lines, cluster=cluster, now_ms=now).rejected
    rate(api.database, as_of_ms=now, grace_ms=900_000)
    api.now_ms = now
    return api


def paths(api: Api, tenant: str) -> list[str]:
    """Every reading route of the API, with parameters that it can answer."""
    described = api.request("GET", "/api/v1/openapi.json").json()["paths"]
    del described[REPORTER_PATH]  # that one is for reporters, about themselves
    asked = []
    for path, methods in described.items():
        known = {parameter["name"] for parameter in methods.get("get", {}).get("parameters", [])}
        if "get" in methods:
            asked.append(path.replace("{period}", "2026-10") + (f"?{DAY}" if "from" in known else ""))
    asked += [
        f"/api/v1/costs?period=2026-10&group_by={key}" for key in ("tenant", "model", "day", "cluster", "sku")
    ]
    asked += [f"/api/v1/statements/2026-10?tenant={tenant}&format={form}" for form in ("json", "csv", "html")]
    return asked


def test_a_tenant_sees_its_own_subtree_and_no_trace_of_another(books: Api) -> None:
    token = books.token("tenant", tenant_path="acme/tenant-a")
    seen = 0
    for path in paths(books, "acme/tenant-a"):
        answer = books.request("GET", path, token=token)
        leaked = [word for word in FOREIGN if word in answer.text]
        assert (path, leaked) == (path, [])
        seen += "tenant-a" in answer.text
    assert seen >= 10


def test_figures_of_whole_cards_are_for_operators(books: Api) -> None:
    token = books.token("tenant", tenant_path="acme/tenant-a")
    assert books.request("GET", f"/api/v1/capacity?{DAY}", token=token).status_code == 403
    assert books.request("GET", "/api/v1/verify/2026-10", token=token).status_code == 403
    usage = books.request("GET", f"/api/v1/usage?{DAY}", token=token).json()
    assert usage["reconciliation"]["cards"] is None


def test_totals_of_a_tenant_are_its_own(books: Api) -> None:
    token = books.token("tenant", tenant_path="acme/tenant-a")
    # Two slices of 0.80 on one card: each pays half of it, own share 1.6, for 2 h at 0.50.
    usage = books.request("GET", f"/api/v1/usage?{DAY}", token=token).json()
    (row,) = usage["rows"]
    assert row["charged_ppm_ms"] == usage["totals"]["charged_ppm_ms"] == CARD_HOUR
    assert row["own_ppm_ms"] == CARD_HOUR * 16 // 10
    assert row["discount_ppm_ms"] == CARD_HOUR * 6 // 10
    assert (row["sm_ppm_ms"], row["mem_peak_mib"]) == (HOUR * 300_000, 500)
    assert (row["held_ms"], row["ended_at"], row["end"]) == (2 * HOUR, None, "open")
    costs = books.request("GET", "/api/v1/costs?period=2026-10", token=token).json()
    assert [(one["tenant"], one["shown"], one["lines"]) for one in costs["rows"]] == [
        ("acme/tenant-a", "0.50", 1)
    ]
    assert [one["shown"] for one in costs["totals"]] == ["0.50"]
    assert books.request("GET", "/api/v1/tenants", token=token).json()["totals"] == {
        "tenants": 1,
        "unmapped": 1,
    }
    allocations = books.request("GET", f"/api/v1/allocations?{DAY}", token=token).json()
    assert allocations["totals"] == {"allocations": 1, "open": 1}
    assert allocations["rows"][0]["witnesses"] == ["cluster"]


def test_foreign_tenant_looks_like_one_that_does_not_exist(books: Api) -> None:
    token = books.token("tenant", tenant_path="acme/tenant-a")
    foreign = books.request("GET", "/api/v1/statements/2026-10?tenant=acme/tenant-b", token=token)
    absent = books.request("GET", "/api/v1/statements/2026-10?tenant=acme/tenant-x", token=token)
    assert foreign.status_code == absent.status_code == 404
    assert foreign.text.replace("tenant-b", "") == absent.text.replace("tenant-x", "")
    for account in ("platform", "nowhere"):
        path = f"/api/v1/statements/2026-10?tenant=acme/tenant-a&account={account}"
        answer = books.request("GET", path, token=token)
        assert (answer.status_code, account in answer.json()["detail"]) == (404, True)


def test_token_of_a_tenant_that_has_not_appeared_sees_nothing(books: Api) -> None:
    token = books.token("tenant", tenant_path="acme/tenant")
    usage = books.request("GET", f"/api/v1/usage?{DAY}", token=token).json()
    assert (usage["rows"], usage["totals"]["charged_ppm_ms"]) == ([], 0)
    for path in ("tenants", "prices", "periods", "costs?period=2026-10"):
        assert books.request("GET", f"/api/v1/{path}", token=token).json()["rows"] == []


def test_reporter_reads_nothing(books: Api) -> None:
    token = books.token("reporter", cluster="a")
    for path in paths(books, "acme/tenant-a"):
        assert (path, books.request("GET", path, token=token).status_code) == (path, 403)


def test_operator_sees_that_charged_and_idle_and_down_are_present(books: Api) -> None:
    token = books.token("operator")
    capacity = books.request("GET", f"/api/v1/capacity?{DAY}", token=token).json()
    # Two cards for 2 h; on the second 0.80 is held.
    assert capacity["totals"] == {
        "present_ppm_ms": 4 * CARD_HOUR,
        "charged_ppm_ms": CARD_HOUR * 36 // 10,
        "idle_ppm_ms": CARD_HOUR * 4 // 10,
        "down_ppm_ms": 0,
        "confirmed_ms": 4 * HOUR,
    }
    assert len(capacity["rows"]) == 4
    assert capacity["reconciliation"]["unexplained_ppm_ms"] == 0
    assert capacity["reconciliation"]["coverage"]["ratio"] == "1"
    usage = books.request("GET", f"/api/v1/usage?{DAY}", token=token).json()
    assert usage["reconciliation"]["cards"] == capacity["totals"]
    assert usage["totals"]["charged_ppm_ms"] == capacity["totals"]["charged_ppm_ms"]
    only = books.request("GET", f"/api/v1/capacity?{DAY}&cluster=b", token=token).json()
    assert only["totals"]["present_ppm_ms"] == 2 * CARD_HOUR
    assert books.request("GET", "/api/v1/verify/2026-10", token=token).json()["holds"] is True


@pytest.mark.parametrize("group_by", ["tenant", "model", "day", "cluster", "sku"])
def test_every_grouping_comes_to_the_same_total(books: Api, group_by: str) -> None:
    token = books.token("operator")
    costs = books.request("GET", f"/api/v1/costs?period=2026-10&group_by={group_by}", token=token).json()
    # 2 h at 0.50 on the shared card, 2 h at 7.77 on the other, idle included.
    assert [one["amount"] for one in costs["totals"]] == ["16.54"]
    assert sum(Decimal(one["amount"]) for one in costs["rows"]) == Decimal("16.54")
    assert all(isinstance(one["amount"], str) for one in costs["rows"])


def test_statement_says_the_same_in_every_form(books: Api) -> None:
    token = books.token("tenant", tenant_path="acme/tenant-a")
    path = "/api/v1/statements/2026-10?tenant=acme/tenant-a"
    as_json = books.request("GET", path, token=token)
    document = json.loads(as_json.text)
    assert as_json.headers["content-type"] == "application/json"
    assert (document["total"], document["rounding"], document["currency"]) == ("0.50", "0.00", "EUR")
    assert [line["shown"] for line in document["lines"]] == ["0.50"]
    as_csv = books.request("GET", f"{path}&format=csv", token=token)
    assert as_csv.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(as_csv.text)))
    assert sum(Decimal(row["shown"]) for row in rows) == Decimal("0.50")
    assert rows[-1]["kind"] == "rounding"
    as_html = books.request("GET", f"{path}&format=html", token=token)
    assert as_html.headers["content-type"] == "text/html; charset=utf-8"
    assert "0.50 EUR" in as_html.text
    assert books.request("GET", f"{path}&format=docx", token=token).status_code == 422


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/usage?from=2026-10-01T00:00:00",
        "/api/v1/usage?from=yesterday",
        "/api/v1/usage?from=2026-10-02T00:00:00Z&to=2026-10-01T00:00:00Z",
        "/api/v1/usage?from=2020-10-02T00:00:00Z&to=2026-10-01T00:00:00Z",
        "/api/v1/costs?period=2026-13",
        "/api/v1/costs?period=2026-10&group_by=colour",
        "/api/v1/costs?period=2026-10&group_by=tenant,tenant",
        "/api/v1/costs?period=2026-10&window=7d",
        "/api/v1/costs?window=fortnight",
        "/api/v1/costs?window=7d&tz=Mars/Olympus",
        "/api/v1/costs?basis=usage",
        "/api/v1/usage?window=7d&from=2026-10-02T00:00:00Z",
        "/api/v1/usage?sku=gpu-slice",
        "/api/v1/capacity?group_by=tenant",
        "/api/v1/statements/October?tenant=acme/tenant-a",
    ],
)
def test_a_time_or_word_that_cannot_be_is_refused_as_a_problem(books: Api, path: str) -> None:
    answer = books.request("GET", path, token=books.token("operator"))
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


EDGES = [
    ("1971-01-01T00:00:00Z", "1971-01-01T00:00:01Z", 200),
    ("9998-12-31T23:00:00-14:00", "9998-12-31T23:59:59-14:00", 200),
    ("1970-01-01T00:00:00Z", "1970-01-01T00:00:01Z", 422),
    ("9999-12-31T00:00:00Z", "9999-12-31T23:59:59Z", 422),
]


@pytest.mark.parametrize("report", ["usage", "allocations", "capacity"])
@pytest.mark.parametrize(("begins", "ends", "status"), EDGES)
def test_window_at_the_edge_of_time_is_answered_or_refused(
    books: Api, report: str, begins: str, ends: str, status: int
) -> None:
    operator = books.token("operator")
    for query in (f"from={quote(begins)}&to={quote(ends)}", f"to={quote(ends)}"):
        answer = books.request("GET", f"/api/v1/{report}?{query}", token=operator)
        assert answer.status_code == status, answer.text


@pytest.mark.parametrize(
    ("month", "status"),
    [("1971-01", 200), ("9998-12", 200), ("1970-01", 422), ("9999-12", 422), ("0001-01", 422)],
)
def test_month_at_the_edge_of_time_is_answered_or_refused(books: Api, month: str, status: int) -> None:
    operator = books.token("operator")
    for path in (f"costs?period={month}", f"verify/{month}", f"statements/{month}?tenant=acme/tenant-a"):
        assert books.request("GET", f"/api/v1/{path}", token=operator).status_code == status, path


def test_prices_a_tenant_sees_are_those_on_its_lines(books: Api) -> None:
    rows = books.request(
        "GET", "/api/v1/prices", token=books.token("tenant", tenant_path="acme/tenant-a")
    ).json()["rows"]
    assert [(row["model"], row["unit_price"]) for row in rows] == [("Tesla T4", "0.5")]
    rows = books.request("GET", "/api/v1/prices", token=books.token("operator")).json()["rows"]
    assert [row["model"] for row in rows] == ["Tesla T4", "Model B"]


def test_a_tenant_explains_its_own_lines_and_sees_neighbours_only_as_others(books: Api) -> None:
    token = books.token("tenant", tenant_path="acme/tenant-a")
    answer = books.request("GET", "/api/v1/explain?tenant=acme/tenant-a&day=2026-10-01", token=token)
    (row,) = answer.json()["rows"]
    # Two slices of 80 % each: for two hours half a card each, 0.8 own.
    assert row["quantity"] == CARD_HOUR
    assert row["reconciliation"] == {
        "steps": 2, "own_quantity": CARD_HOUR * 16 // 10, "quantity": CARD_HOUR, "adds_up": True,
    }  # fmt: skip
    assert row["steps"][0]["others"] == {"slices": 1, "charged_ppm_ms": CARD_HOUR // 2}
    assert row["steps"][0]["card_factor"] == "0.625"
    assert row["steps"][0]["share"]["own_ratio"] == "0.8"
    assert "-b" not in answer.text
    alone = books.request("GET", f"/api/v1/explain/{row['line']}", token=token)
    assert alone.json() == row


def test_explaining_a_foreign_line_or_tenant_answers_as_if_it_were_not_there(books: Api) -> None:
    operator, tenant = books.token("operator"), books.token("tenant", tenant_path="acme/tenant-a")
    day = "day=2026-10-01"
    rows = books.request("GET", f"/api/v1/explain?tenant=acme/tenant-b&{day}", token=operator).json()["rows"]
    assert len(rows) == 2
    for path in (f"/api/v1/explain/{rows[0]['line']}", f"/api/v1/explain?tenant=acme/tenant-b&{day}"):
        assert books.request("GET", path, token=tenant).status_code == 404, path
    for path in ("explain/0", "explain/99999999999999999999", "explain?tenant=acme&day=0001-01-01"):
        assert books.request("GET", f"/api/v1/{path}", token=operator).status_code == 422, path


def test_a_quote_is_for_the_askers_own_tenant_and_an_upper_bound(books: Api) -> None:
    token = books.token("tenant", tenant_path="acme/tenant-a")
    path = "/api/v1/quote?model=Tesla%20T4&mem_mib=3840&core_percent=80&hours=2.5"
    quoted = books.request("GET", path, token=token).json()
    # max(0.25, 0.80) × 2.5 h = 2 card-hours at 0.50.
    assert quoted["tenant"] == "acme/tenant-a"
    assert (quoted["share"], quoted["at_most_ppm_ms"], quoted["at_most"]) == ("0.8", 2 * CARD_HOUR, "1.00")
    foreign = books.request("GET", f"{path}&tenant=acme/tenant-b", token=token)
    assert foreign.status_code == 404
    for wrong in ("hours=0", "hours=ten", "hours=NaN", "hours=1&mig=huge"):
        refused = "/api/v1/quote?model=Tesla%20T4&mem_mib=3840&" + wrong
        assert books.request("GET", refused, token=token).status_code == 422, wrong


def test_stranded_capacity_is_for_operators_and_says_what_is_free_of_both(books: Api) -> None:
    path = "/api/v1/capacity/stranded?from=2026-10-01T10:00:00Z&to=2026-10-01T12:00:00Z"
    report = books.request("GET", path, token=books.token("operator")).json()
    # Cluster a: cores 1.6 of 1, memory untouched. Cluster b: cores 0.8; 0.2 × 2 h are free of both.
    stranded = [(row["cluster"], row["memory_free_ppm_ms"], row["stranded_ppm_ms"]) for row in report["rows"]]
    assert stranded == [("a", 2 * CARD_HOUR, 0), ("b", 2 * CARD_HOUR, CARD_HOUR * 4 // 10)]
    assert report["totals"]["stranded_card_hours"] == "0.400000"
    refused = books.request("GET", path, token=books.token("tenant", tenant_path="acme/tenant-a"))
    assert refused.status_code == 403


def test_unallocated_use_is_listed_for_its_tenant_alone_and_energy_beside_capacity(
    books: Api, at: At
) -> None:
    start, noon = at("10:00"), at("12:00")
    told: list[Fact] = [
        bypassing(start, cluster="a", tenant_key="tenant-a", energy_active_mj=7),
        board(start, cluster="a", energy_mj=10, energy_idle_mj=2),
    ]
    lines = read_lines(b"\n".join(map(canonical_bytes, told)), Scope("a"), now_ms=noon)
    with books.database.writing() as session:
        assert not ingest(session, lines, cluster="a", now_ms=noon).rejected
    rate(books.database, as_of_ms=noon, grace_ms=900_000)
    window = "from=2026-10-01T10:00:00Z&to=2026-10-01T12:00:00Z"
    seen = {}
    for letter in "ab":
        token = books.token("tenant", tenant_path=f"acme/tenant-{letter}")
        found = books.request("GET", f"/api/v1/usage?{window}", token=token).json()["unallocated_use"]
        seen[letter] = [one["pod"] for one in found]
    assert seen == {"a": ["sneaky"], "b": []}
    capacity = books.request("GET", f"/api/v1/capacity?{window}", token=books.token("operator")).json()
    assert capacity["energy"] == {
        "energy_mj": 10, "active_mj": 0, "unallocated_mj": 7, "unattributed_mj": 0,
        "idle_mj": 2, "idle_held_mj": 0, "residual_mj": 1,
    }  # fmt: skip


def test_policies_are_shown_to_every_reader(books: Api) -> None:
    with books.database.writing() as session:
        set_policy(session, kind="energy", value="none", valid_from_ms=0, by=COMMAND_LINE, now_ms=0)
    token = books.token("tenant", tenant_path="acme/tenant-a")
    (row,) = books.request("GET", "/api/v1/policies", token=token).json()["rows"]
    assert (row["kind"], row["value"], row["superseded_at"]) == ("energy", "none", None)


def test_periods_are_those_of_the_viewers_accounts(books: Api) -> None:
    rows = books.request(
        "GET", "/api/v1/periods", token=books.token("tenant", tenant_path="acme/tenant-a")
    ).json()["rows"]
    assert [(row["account"], row["period"], row["from"], row["state"]) for row in rows] == [
        ("acme", "2026-10", "2026-09-30T22:00:00Z", "open")
    ]


@pytest.mark.parametrize("report", ["usage", "capacity", "allocations"])
def test_pages_hold_every_row_once_and_the_totals_of_all(books: Api, report: str) -> None:
    token = books.token("operator")
    whole = books.request("GET", f"/api/v1/{report}?{DAY}", token=token).json()
    assert whole["next"] is None
    rows: list[object] = []
    cursor = ""
    for _ in whole["rows"]:
        page = books.request("GET", f"/api/v1/{report}?{DAY}&limit=1{cursor}", token=token).json()
        assert page["totals"] == whole["totals"]
        rows += page["rows"]
        cursor = f"&cursor={page['next']}"
    assert rows == whole["rows"]
    assert len(rows) >= 3
    assert books.request("GET", f"/api/v1/{report}?limit=0", token=token).status_code == 422
    assert books.request("GET", f"/api/v1/{report}?{DAY}&cursor=x", token=token).status_code == 422


def test_every_route_is_documented(api: Api) -> None:
    described = api.request("GET", "/api/v1/openapi.json").json()["paths"]
    page = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
    for path, methods in described.items():
        for method in methods:
            assert f"`{method.upper()} {path}" in page


def test_a_parameter_that_a_route_does_not_know_is_refused_for_it_would_have_narrowed_nothing(
    books: Api,
) -> None:
    token = books.token("admin")
    misspelt = books.request("GET", f"/api/v1/costs?{DAY}&tennant=tenant-a", token=token)
    assert misspelt.status_code == 422
    assert 'query parameter "tennant" is unknown here; did you mean "tenant"?' in misspelt.text.replace(
        "\\", ""
    )
    other = books.request("GET", "/api/v1/policies?zzz=1", token=token)
    assert (other.status_code, "there are" in other.text) == (422, True)
    assert books.request("GET", "/healthz?from=probe").status_code != 422
