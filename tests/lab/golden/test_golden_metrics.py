"""What a Prometheus sees of the golden month is what the statements say, open and closed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from accounting.access.viewer import COMMAND_LINE
from accounting.ledger.calendar import parse_month
from accounting.periods.close import Closed, close_period
from lab.golden.batches import in_order
from lab.golden.facts import facts_until
from lab.golden.month import GOLDEN_MONTH, MONTH, NOW_MS
from tests import real_prometheus

if TYPE_CHECKING:
    from tests.lab.golden.conftest import Accounting

D = Decimal
TENANTS = {"acme/red": "1080.30", "acme/green": "54.01", "acme/blue": "48.40"}
"""Worked out by hand in test_golden_month.py; idle is 1377.10."""


@pytest.fixture
def told(accounting: Accounting) -> Accounting:
    assert accounting.take(in_order(facts_until(GOLDEN_MONTH, NOW_MS))).rejected == 0
    accounting.rate()
    accounting.publish()
    return accounting


def _page(accounting: Accounting) -> dict[str, list[Any]]:
    families = text_string_to_metric_families(accounting.get("/metrics", accounting.token("operator")).text)
    return {family.name: family.samples for family in families}


def _close(accounting: Accounting, account: str, now_ms: int) -> None:
    accounting.now_ms = now_ms
    accounting.rate()
    for month in ("2026-09", MONTH):
        done = close_period(
            accounting.database,
            account,
            parse_month(month),
            now_ms=now_ms,
            grace_ms=accounting.settings.grace_ms,
            by=COMMAND_LINE,
        )
        assert isinstance(done, Closed), done
    accounting.publish()


def test_costs_over_all_skus_are_the_statements_totals_and_a_sku_is_the_sum_of_its_lines(
    told: Accounting,
) -> None:
    totals: dict[str, Decimal] = defaultdict(Decimal)
    by_sku: dict[tuple[str, str], Decimal] = {}
    for sample in _page(told)["slicemeter_tenant_cost"]:
        if sample.labels["period"] == MONTH:
            amount = D(str(sample.value))
            totals[sample.labels["tenant"]] += amount
            by_sku[sample.labels["tenant"], sample.labels["sku"]] = amount
    assert totals == {tenant: D(total) for tenant, total in TENANTS.items()}
    for tenant in TENANTS:
        lines = told.statement(tenant)["lines"]
        for sku in {line["sku"] for line in lines}:
            exact = sum((D(line["amount"]) for line in lines if line["sku"] == sku), D(0))
            assert by_sku[tenant, sku] == round(exact, 2)


def test_idle_is_apart_from_what_tenants_pay(told: Accounting) -> None:
    page = _page(told)
    idle = [sample for sample in page["slicemeter_idle_cost"] if sample.labels["period"] == MONTH]
    assert sum(D(str(sample.value)) for sample in idle) == D("1377.10")
    assert {sample.labels["account"] for sample in idle} == {"acme-platform"}
    assert not [one for one in page["slicemeter_tenant_cost"] if "idle" in one.labels["tenant"]]


def test_charged_card_time_is_that_of_the_statements_also_without_a_currency(told: Accounting) -> None:
    seconds: dict[str, float] = defaultdict(float)
    for sample in _page(told)["slicemeter_tenant_charged_card_seconds"]:
        if sample.labels["period"] == MONTH:
            seconds[sample.labels["tenant"]] += sample.value
    for tenant in ("acme/red", "acme/green", "acme/blue", "lab/red"):
        charged = told.statement(tenant)["totals"]["charged_ppm_ms"]
        assert seconds[tenant] == pytest.approx(charged / 1e9, rel=1e-12)
    assert seconds["lab/red"] == pytest.approx(745 * 3600 / 4)


def test_the_books_themselves_are_shown_state_due_blockers_and_mapping(told: Accounting) -> None:
    page = _page(told)

    def labels(name: str) -> list[dict[str, str]]:
        return [sample.labels for sample in page[f"slicemeter_{name}"]]

    states = {(each["account"], each["period"]): each["state"] for each in labels("period_info")}
    assert states["acme", MONTH] == "open"
    mapping = {
        (each["cluster"], each["tenant_key"]): each["tenant"] for each in labels("tenant_mapping_info")
    }
    assert mapping["alpha", "red"] == "acme/red"
    assert mapping["gamma", "red"] == "lab/red"
    assert {each["account"] for each in labels("period_close_due_timestamp_seconds")} >= {"acme", "lab"}
    for name in ("unrated_models", "ledger_invariant_violations"):
        assert [sample.value for sample in page[f"slicemeter_{name}"]] == [0]


@contextmanager
def _scraping(program: str, folder: Path, address: str) -> Iterator[str]:
    port = int(address.rpartition(":")[2])
    with real_prometheus.prometheus(program, folder, (port, "/metrics")) as found:
        yield found


@pytest.mark.promtool
def test_a_real_prometheus_sees_the_statements_of_an_open_and_of_a_closed_period(
    told: Accounting, tmp_path: Path, need_tool: Callable[[str, str], str]
) -> None:
    query = f'sum by (tenant) (slicemeter_tenant_cost{{period="{MONTH}"}})'
    state = f'slicemeter_period_info{{account="acme", period="{MONTH}", state="%s"}}'
    with _scraping(need_tool("prometheus", "prometheus"), tmp_path, told.address) as prometheus:
        for wanted in ("open", "closed"):
            if wanted == "closed":
                _close(told, "acme", NOW_MS + 30 * 86_400_000)
            real_prometheus.wait_for(prometheus, state % wanted)
            seen = {
                series["metric"]["tenant"]: round(D(series["value"][1]), 6)
                for series in real_prometheus.ask(prometheus, query)
            }
            assert seen == {tenant: D(total) for tenant, total in TENANTS.items()}
            for tenant, total in TENANTS.items():
                assert told.statement(tenant)["total"] == total
