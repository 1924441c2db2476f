"""The golden month by every format, read back by DuckDB, against the hand arithmetic of the month.

Totals by tenant are those of `test_golden_month`: 1,080.30 (red), 54.008 shown as 54.01 (green), 48.40
(blue), and 1,377.098 shown as 1,377.10 for what was idle.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest
from focus_data_toolkit.model.validator import lint_focus_1_4_structure

from lab.golden.month import MONTH

if TYPE_CHECKING:
    from tests.lab.golden.conftest import Accounting

D = Decimal

# By hand, in test_golden_month: exact amount, card-hours.
RED, RED_HOURS = D("1080.30"), D("185") + D("186.5") + D("96")
GREEN, GREEN_HOURS = D("54.008"), D("7") + D("46") + D("0.01") + D("0.5")
BLUE, BLUE_HOURS = D("48.40"), D("48") + D("2.5") + D("4") + D("1") + 2 * D("2.5")
ACME = {
    "acme/red": (RED, RED_HOURS),
    "acme/green": (GREEN, GREEN_HOURS),
    "acme/blue": (BLUE, BLUE_HOURS),
}
ACME_TOTAL = D("1182.71")  # 1080.30 + 54.008 + 48.40 = 1182.708
IDLE_TOTAL = D("1377.10")
GAMMA_HOURS = D("186.25")

READ = {
    "csv": "read_csv('{path}', header = true, all_varchar = true)",
    "json": "read_json('{path}', format = 'array', columns = {{tenant: 'VARCHAR', kind: 'VARCHAR', "
    "amount: 'VARCHAR', shown: 'VARCHAR', card_hours: 'VARCHAR', charged_ppm_ms: 'BIGINT'}})",
    "parquet": "read_parquet('{path}')",
    "focus": "read_csv('{path}', header = true, all_varchar = true)",
    "focus-parquet": "read_parquet('{path}')",
}


@pytest.fixture
def read(billed: Accounting, tmp_path: Path) -> Iterator[Reader]:
    with duckdb.connect() as connection:
        yield Reader(billed, tmp_path, connection)


class Reader:
    """Exports over HTTP, then asks DuckDB about the file."""

    def __init__(self, billed: Accounting, folder: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self.billed = billed
        self.folder = folder
        self.connection = connection

    def export(self, form: str, token: str, **query: str) -> Path:
        answer = self.billed.get(f"/api/v1/exports/{MONTH}", token, format=form, **query)
        assert answer.status_code == 200, answer.text
        path = self.folder / f"{form}-{len(list(self.folder.iterdir()))}"
        path.write_bytes(answer.content)
        return path

    def ask(self, form: str, path: Path, what: str) -> list[tuple[object, ...]]:
        source = READ[form].format(path=path)
        return self.connection.sql(f"SELECT {what.format(source=source)}").fetchall()


LEDGER_SUMS = (
    "tenant, sum(amount::DECIMAL(38,17)), sum(card_hours::DECIMAL(38,6)), sum(charged_ppm_ms::HUGEINT) "
    "FROM {source} WHERE kind <> 'rounding' GROUP BY tenant"
)
FOCUS_SUMS = (
    "SubAccountId, sum(BilledCost::DECIMAL(38,17)), sum(PricingQuantity::DECIMAL(38,14)), "
    "sum(ListCost::DECIMAL(38,17)) FROM {source} WHERE ChargeCategory = 'Usage' GROUP BY SubAccountId"
)


@pytest.mark.parametrize("form", READ)
def test_every_format_gives_each_tenant_what_was_worked_out_by_hand(read: Reader, form: str) -> None:
    operator = read.billed.token("operator")
    path = read.export(form, operator, account="acme")
    is_focus = form.startswith("focus")
    found = {row[0]: row[1:] for row in read.ask(form, path, FOCUS_SUMS if is_focus else LEDGER_SUMS)}
    assert {tenant: (sums[0], sums[1]) for tenant, sums in found.items()} == ACME
    for tenant, (amount, hours) in ACME.items():
        # No discounts: list cost is the amount; in the ledger's files the exact quantity stands beside.
        assert found[tenant][2] == (amount if is_focus else hours * 3_600_000_000_000)
    shown = "sum(BilledCost::DECIMAL(38,17))" if is_focus else "sum(shown::DECIMAL(38,17))"
    assert read.ask(form, path, f"{shown} FROM {{source}}") == [(ACME_TOTAL,)]


@pytest.mark.parametrize("form", READ)
def test_every_format_gives_a_tenants_own_statement_to_its_own_token(read: Reader, form: str) -> None:
    path = read.export(form, read.billed.token("tenant", "acme/green"), tenant="acme/green")
    if form.startswith("focus"):
        what = "DISTINCT SubAccountId, (SELECT sum(BilledCost::DECIMAL(38,17)) FROM {source}) FROM {source}"
    else:
        what = "DISTINCT tenant, (SELECT sum(shown::DECIMAL(38,17)) FROM {source}) FROM {source}"
    assert read.ask(form, path, what) == [("acme/green", D("54.01"))]


@pytest.mark.parametrize("form", READ)
def test_idle_capacity_is_the_platforms_in_every_format(read: Reader, form: str) -> None:
    operator = read.billed.token("operator")
    path = read.export(form, operator, account="acme-platform", tenant="platform/idle")
    column = "BilledCost" if form.startswith("focus") else "shown"
    assert read.ask(form, path, f"sum({column}::DECIMAL(38,17)) FROM {{source}}") == [(IDLE_TOTAL,)]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_a_showback_account_is_exported_in_card_hours_without_amounts(read: Reader, form: str) -> None:
    path = read.export(form, read.billed.token("operator"), account="lab")
    what = "sum(card_hours::DECIMAL(38,6)), count(amount), count(shown) FROM {source}"
    assert read.ask(form, path, what) == [(GAMMA_HOURS, 0, 0)]


@pytest.mark.parametrize("form", ["focus", "focus-parquet"])
def test_focus_of_a_showback_account_is_refused_with_the_way_out(read: Reader, form: str) -> None:
    operator = read.billed.token("operator")
    answer = read.billed.get(f"/api/v1/exports/{MONTH}", operator, format=form, account="lab")
    assert answer.status_code == 422
    assert "csv, json or parquet" in answer.json()["detail"]


CONDITIONS = {"SupportsUnitPricing", "SupportsMultiplePricingCategories"}


@pytest.mark.parametrize("account", ["acme", "acme-platform"])
@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        ("cost-and-usage", "Cost and Usage"),
        ("invoice-detail", "Invoice Detail"),
        ("billing-period", "Billing Period"),
    ],
)
def test_an_independent_lint_passes_the_golden_month(
    read: Reader, account: str, dataset: str, name: str
) -> None:
    path = read.export("focus", read.billed.token("operator"), account=account, focus_dataset=dataset)
    relation = read.connection.sql(f"SELECT * FROM {READ['focus'].format(path=path)}")
    rows = [
        {column: value or "" for column, value in zip(relation.columns, row, strict=True)}
        for row in relation.fetchall()
    ]
    report = lint_focus_1_4_structure(name, rows, supported_conditions=CONDITIONS)
    assert (report.messages(), report.row_count) == ([], len(rows))
    assert rows


def test_charges_add_up_to_the_invoice_details_made_of_the_same_lines(read: Reader) -> None:
    operator = read.billed.token("operator")
    charges = read.export("focus", operator, account="acme")
    details = read.export("focus", operator, account="acme", focus_dataset="invoice-detail")
    sums = "InvoiceDetailId, sum(BilledCost::DECIMAL(38,17)) FROM {source} GROUP BY 1 ORDER BY 1"
    assert read.ask("focus", charges, sums) == read.ask("focus", details, sums)


def test_parquet_holds_decimals_and_utc_timestamps(read: Reader) -> None:
    operator = read.billed.token("operator")
    for form, columns in (
        ("parquet", {"amount": "DECIMAL(38,17)", "from": "TIMESTAMP WITH TIME ZONE"}),
        (
            "focus-parquet",
            {
                "BilledCost": "DECIMAL(38,17)",
                "ListUnitPrice": "DECIMAL(38,16)",
                "PricingQuantity": "DECIMAL(38,14)",
                "ChargePeriodStart": "TIMESTAMP WITH TIME ZONE",
            },
        ),
    ):
        path = read.export(form, operator, account="acme")
        described = dict(
            row[:2]
            for row in read.connection.sql(f"DESCRIBE SELECT * FROM read_parquet('{path}')").fetchall()
        )
        assert {name: described[name] for name in columns} == columns


def test_a_tenants_token_gets_no_export_of_others(read: Reader) -> None:
    green = read.billed.token("tenant", "acme/green")
    for form in READ:
        for query in (
            {"tenant": "acme/red"},
            {"tenant": "acme"},
            {"account": "acme"},
            {"account": "acme-platform", "tenant": "platform/idle"},
            {"tenant": "platform/idle"},
        ):
            answer = read.billed.get(f"/api/v1/exports/{MONTH}", green, format=form, **query)
            assert answer.status_code == 404, (form, query)
        path = read.export(form, green, tenant="acme/green")
        others = (b"acme/red", b"acme/blue", b"platform/idle", b"red/train", b"lab")
        if form in {"csv", "json", "focus"}:
            content = path.read_bytes()
            assert not [text for text in others if text in content]
