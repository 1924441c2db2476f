"""One slice, asked about in every way that there is: the share is one."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from accounting.access.viewer import COMMAND_LINE
from accounting.facts.ingest import ingest
from accounting.facts.reading import Scope, read_lines
from accounting.periods.rate import rate
from accounting.prices.book import set_price
from contract.facts import AllocationFact, Fact, PresenceFact, canonical_bytes

if TYPE_CHECKING:
    from tests.accounting.api.conftest import Api

CARD_HOUR = 3_600_000_000_000


@pytest.fixture
def shared(
    api: Api,
    at: Callable[..., int],
    allocation: Callable[..., AllocationFact],
    presence: Callable[..., PresenceFact],
) -> Api:
    """X 0.50 and Y 0.75 of a card for two hours: X pays 0.40 of it, 0.8 card-hours, 2.40 EUR at 3.00."""
    start, end = at("09:00", 5), at("11:00", 5)
    times: dict[str, Any] = {
        "cluster": "a", "mem_mib": 0, "bound_at_ms": start, "confirmed_at_ms": end, "ended_at_ms": end,
        "end_kind": "observed",
    }  # fmt: skip
    facts: list[Fact] = [
        presence(start, end, cluster="a"),
        allocation(pod_uid="x", pod="x", tenant_key="x", core_percent=50, **times),
        allocation(pod_uid="y", pod="y", tenant_key="y", core_percent=75, **times),
    ]
    with api.database.writing() as session:
        set_price(
            session, sku="gpu-slice", model="", currency="EUR", unit_price=Decimal(3), valid_from_ms=0,
            by=COMMAND_LINE, now_ms=0,
        )  # fmt: skip
        lines = read_lines(b"\n".join(map(canonical_bytes, facts)), Scope("a"), now_ms=end)
        assert not ingest(session, lines, cluster="a", now_ms=end).rejected
    rate(api.database, as_of_ms=end, grace_ms=900_000)
    api.now_ms = end
    return api


def test_statement_csv_usage_focus_and_explain_show_the_same_share_for_the_same_slice(shared: Api) -> None:
    token = shared.token("tenant", tenant_path="acme/x")

    def get(path: str) -> bytes:
        answer = shared.request("GET", f"/api/v1/{path}", token=token)
        assert answer.status_code == 200, (path, answer.text)
        return answer.content

    own, charged = CARD_HOUR, 8 * CARD_HOUR // 10  # 0.50 × 2 h, and 0.40 × 2 h
    (line,) = json.loads(get("statements/2026-10?tenant=acme/x"))["lines"]
    assert (line["own_ppm_ms"], line["charged_ppm_ms"], line["card_factor"]) == (own, charged, "0.8")
    assert (line["charged_card_hours"], line["amount"]) == ("0.800000", "2.4")

    (row, *_) = csv.DictReader(io.StringIO(get("statements/2026-10?tenant=acme/x&format=csv").decode()))
    assert (row["own_card_hours"], row["card_hours"], Decimal(row["amount"])) == (
        "1.000000", "0.800000", Decimal("2.40"),
    )  # fmt: skip
    assert b"0.8" in get("statements/2026-10?tenant=acme/x&format=html")

    (used,) = json.loads(get("usage?from=2026-10-05T00:00:00Z&to=2026-10-06T00:00:00Z"))["rows"]
    assert (used["own_ppm_ms"], used["charged_ppm_ms"]) == (own, charged)

    explained = json.loads(get(f"explain/{line['line']}"))
    steps = explained["steps"]
    assert sum(step["own_quantity"] for step in steps) == own
    assert sum(step["quantity"] for step in steps) == charged
    assert {step["share"]["own_ratio"] for step in steps} == {"0.5"}

    (costs,) = json.loads(get("costs?period=2026-10"))["rows"]
    assert (costs["own_ppm_ms"], costs["charged_ppm_ms"], costs["amount"]) == (own, charged, "2.4")

    (charge,) = csv.DictReader(io.StringIO(get("exports/2026-10?tenant=acme/x&format=focus").decode()))
    assert Decimal(charge["EffectiveCost"]) == Decimal("2.40")
    assert Decimal(charge["ConsumedQuantity"]) == Decimal(1)
    assert Decimal(charge["PricingQuantity"]) == Decimal("0.8")


def names_in(document: object) -> set[str]:
    """Every name of a field, however deep."""
    if isinstance(document, dict):
        return set(document).union(*map(names_in, document.values()))
    return set().union(*map(names_in, document)) if isinstance(document, list) else set()


def test_a_tenant_sees_coverage_as_a_ratio_and_no_time_of_whole_cards(shared: Api) -> None:
    asked = (
        "statements/2026-10?tenant=acme/x",
        "costs?period=2026-10",
        "usage?from=2026-10-05T00:00:00Z&to=2026-10-06T00:00:00Z",
        "explain?tenant=acme/x&day=2026-10-05",
    )
    token = shared.token("tenant", tenant_path="acme/x")
    for path in asked:
        document = shared.request("GET", f"/api/v1/{path}", token=token).json()
        times = {"present_ms", "confirmed_ms", "present_ppm_ms"}
        assert names_in(document) & times == set(), path
    costs = shared.request("GET", f"/api/v1/{asked[1]}", token=token).json()
    # The card was confirmed for all of its two hours.
    assert costs["reconciliation"]["coverage"] == {"ratio": "1"}
