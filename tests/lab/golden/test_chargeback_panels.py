"""The dashboard "Chargeback month" over the golden month: every panel's figure is the statement's.

Each panel's own expression is asked of a real Prometheus that scrapes the real service; the amounts were
worked out by hand in test_golden_month.py.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dashboards.writing import dashboard_files
from lab.golden.batches import in_order
from lab.golden.facts import facts_until
from lab.golden.month import GOLDEN_MONTH, MONTH, NOW_MS
from tests import real_prometheus

if TYPE_CHECKING:
    from tests.lab.golden.conftest import Accounting

D = Decimal
TOTALS = {"acme/red": D("1080.30"), "acme/green": D("54.01"), "acme/blue": D("48.40")}
IDLE = D("1377.10")


def _asked(title: str, account: str) -> str:
    [panel] = [
        each for each in json.loads(dashboard_files()["chargeback.json"])["panels"] if each["title"] == title
    ]
    [target] = panel["targets"]
    text = target["expr"].replace("$period", MONTH).replace("$account", account)
    return re.sub(r"\$\w+", ".*", text)


def _rows(prometheus: str, title: str, *labels: str, account: str = ".*") -> dict[tuple[str, ...], Decimal]:
    found = real_prometheus.ask(prometheus, _asked(title, account))
    return {tuple(each["metric"][label] for label in labels): round(D(each["value"][1]), 6) for each in found}


@pytest.mark.promtool
def test_every_figure_of_the_chargeback_month_is_the_statements(
    accounting: Accounting, tmp_path: Path, need_tool: Callable[[str, str], str]
) -> None:
    assert accounting.take(in_order(facts_until(GOLDEN_MONTH, NOW_MS))).rejected == 0
    accounting.rate()
    accounting.publish()
    statements = {tenant: accounting.statement(tenant) for tenant in (*TOTALS, "lab/red")}
    by_sku: dict[tuple[str, str, str], Decimal] = defaultdict(Decimal)
    hours: dict[str, Decimal] = defaultdict(Decimal)
    for tenant, statement in statements.items():
        for line in statement["lines"]:
            if line["amount"] is not None:
                by_sku[tenant, line["sku"], statement["currency"]] += D(line["amount"])
    port = int(accounting.address.rpartition(":")[2])
    program = need_tool("prometheus", "prometheus")
    with real_prometheus.prometheus(program, tmp_path, (port, "/metrics")) as prometheus:
        real_prometheus.wait_for(prometheus, f'slicemeter_period_info{{period="{MONTH}"}}')
        acme = _rows(prometheus, "Tenants", "tenant", "currency", account="acme")
        assert acme == {(tenant, "EUR"): total for tenant, total in TOTALS.items()}
        assert {key[0]: D(statements[key[0]]["total"]) for key in acme} == TOTALS
        assert _rows(prometheus, "Charged", "currency", account="acme") == {("EUR",): D("1182.71")}
        assert _rows(prometheus, "Idle", "currency") == {("EUR",): IDLE}
        skus = _rows(prometheus, "Tenants by SKU", "tenant", "sku", "currency", account="acme")
        assert skus == {key: round(amount, 2) for key, amount in by_sku.items()}
        for (tenant, _), seconds in _rows(prometheus, "Card-hours by model", "tenant", "model").items():
            hours[tenant] += seconds
        for tenant, statement in statements.items():
            charged = D(statement["totals"]["charged_ppm_ms"]) / 10**9 / 3600
            assert hours[tenant] == pytest.approx(charged, abs=D("0.00001"))
        # A quarter of a T4 through a month of 745 hours, in an account without a currency.
        assert round(hours["lab/red"], 4) == D("186.25")
        [(_, all_hours)] = _rows(prometheus, "Card-hours charged").items()
        assert all_hours == pytest.approx(sum(hours.values()), abs=D("0.00001"))
        states = _rows(prometheus, "State of the period", "account", "state")
        assert states["acme", "open"] == 1
        assert not any(state == "closed" for _, state in states)
