"""A statement for people: every form shows the same, and nothing a tenant names can run."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from decimal import Decimal

import pytest

from accounting.periods.coverage import Coverage
from accounting.periods.statement import Statement, StatementLine, Sums
from accounting.periods.use import Use
from accounting.reports.rendering import render_statement
from accounting.reports.units import price_text

CARD_HOUR = 3_600_000_000_000
START = 1_790_805_600_000
"""2026-10-01 00:00 in Berlin."""

USE = Use(
    covered_ms=3_600_000,
    unknown_ms=0,
    sm_ppm_ms=CARD_HOUR // 4,
    mem_used_mib_ms=0,
    mem_peak_mib=3_684,
    energy_active_mj=1_800_000_000,
    blocked_ms=0,
    over_limit_ms=0,
    source="nvml",
)


def line(pod: str, amount: str | None, shown: str | None, use: Use | None) -> StatementLine:
    return StatementLine(
        tenant="acme/team",
        day="2026-10-01",
        kind="usage",
        sku="gpu-slice",
        cluster="c",
        node="node-1",
        device_uuid="GPU-1",
        model="Tesla T4",
        namespace="team",
        pod=pod,
        container="main",
        resource_key="0",
        charge_from_ms=START,
        charge_to_ms=START + 3_600_000,
        own_ppm_ms=CARD_HOUR,
        discount_ppm_ms=CARD_HOUR // 4,
        charged_ppm_ms=CARD_HOUR * 3 // 4,
        held_not_running_ppm_ms=0,
        degraded_ppm_ms=0,
        unit_price=None if amount is None else Decimal("1.60"),
        price_version=None if amount is None else 1,
        amount=None if amount is None else Decimal(amount),
        shown=None if shown is None else Decimal(shown),
        use=use,
    )


@pytest.fixture
def statement() -> Statement:
    lines = [line("train", "1.204", "1.20", USE), line("serve", "1.204", "1.20", None)]
    return Statement(
        account="acme",
        tenant="acme/team",
        period="2026-10",
        time_zone="Europe/Berlin",
        starts_at_ms=START,
        ends_at_ms=START + 745 * 3_600_000,
        state="open",
        as_of_ms=START + 7_200_000,
        currency="EUR",
        lines=lines,
        sums=Sums(2 * CARD_HOUR, CARD_HOUR // 2, CARD_HOUR * 3 // 2, 0, 0, 0),
        amount=Decimal("2.408"),
        rounding=Decimal("0.01"),
        total=Decimal("2.41"),
        unrated_models=(),
        coverage=Coverage(3, 4),
        use=USE,
        unallocated=(),
    )


def test_table_shows_lines_rounding_total_and_what_they_rest_on(statement: Statement) -> None:
    text = render_statement(statement, "table")
    assert text.splitlines() == [
        "Statement of acme/team for 2026-10",
        "account acme, EUR, 2026-10-01 00:00 CEST to 2026-11-01 00:00 CET (Europe/Berlin)",
        "period open, provisional, rated as of 2026-10-01 02:00 CEST",
        "",
        "DAY         WHAT               MODEL        OWN  DISCOUNT  CARD-HOURS  PRICE  AMOUNT      SM HOURS          PEAK",  # noqa: E501
        "2026-10-01  team/train · main  Tesla T4  1.0000    0.2500      0.7500   1.60    1.20        0.2500     3,684 MiB",  # noqa: E501
        "2026-10-01  team/serve · main  Tesla T4  1.0000    0.2500      0.7500   1.60    1.20  not measured  not measured",  # noqa: E501
        "rounding                                                                        0.01",
        "total                                    2.0000    0.5000      1.5000           2.41",
        "",
        "own share 2.0000 − sharing discount 0.5000 = charged 1.5000 card-hours",
        "measured: 0.2500 SM hours, peak 3,684 MiB, 0.5000 kWh",
        "coverage 75.00 % of the devices' presence is confirmed",
    ]


@pytest.mark.parametrize(
    ("price", "currency", "text"),
    [("0.4", "EUR", "0.40"), ("1E+2", "EUR", "100.00"), ("0.4125", "EUR", "0.4125"), ("40", "JPY", "40")],
)
def test_price_has_at_least_the_digits_of_its_currency(price: str, currency: str, text: str) -> None:
    assert price_text(Decimal(price), currency) == text


def test_csv_adds_up_to_the_total_with_its_rounding_line(statement: Statement) -> None:
    rows = list(csv.DictReader(io.StringIO(render_statement(statement, "csv"))))
    assert [row["shown"] for row in rows] == ["1.20", "1.20", "0.01"]
    assert [row["amount"] for row in rows] == ["1.204", "1.204", ""]
    assert rows[0]["from"] == "2026-09-30T22:00:00Z"
    assert (rows[0]["sm_ppm_ms"], rows[1]["sm_ppm_ms"]) == (str(CARD_HOUR // 4), "")
    assert rows[0]["card_factor"] == "0.75"


@pytest.mark.parametrize("name", ["=1+1", "+cmd", "-2+3", "@sum", "\t=1"])
def test_name_that_a_spreadsheet_would_run_is_only_text(statement: Statement, name: str) -> None:
    hostile = replace(statement, lines=[line(name, "1.204", "1.20", None)])
    rows = list(csv.DictReader(io.StringIO(render_statement(hostile, "csv"))))
    assert rows[0]["pod"] == f"'{name}"


def test_rounding_below_zero_stays_a_number_in_csv(statement: Statement) -> None:
    rows = list(
        csv.DictReader(io.StringIO(render_statement(replace(statement, rounding=Decimal("-0.01")), "csv")))
    )
    assert rows[-1]["shown"] == "-0.01"


def test_html_is_one_file_without_scripts_or_addresses(statement: Statement) -> None:
    page = render_statement(statement, "html")
    assert not re.search(r"https?:|<script|<link|<img|url\(", page)
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    for shown in (
        "2.41 EUR",
        "1.20",
        "0.01",
        "not measured",
        "3,684 MiB",
        "75.00 %",
        "provisional",
        "0.5000 kWh",
    ):
        assert shown in page


def test_names_are_escaped_in_html(statement: Statement) -> None:
    hostile = replace(
        statement, lines=[line("<b>x</b>", "1.204", "1.20", None)], unrated_models=("<i>L4</i>",)
    )
    page = render_statement(hostile, "html")
    assert "<b>x</b>" not in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page
    assert "<i>" not in page


@pytest.mark.parametrize("form", ["table", "html", "csv", "json"])
def test_showback_and_unrated_statements_show_no_money(statement: Statement, form: str) -> None:
    showback = replace(
        statement,
        currency=None,
        total=None,
        amount=None,
        rounding=None,
        lines=[line("train", None, None, USE)],
    )
    text = render_statement(showback, form)  # type: ignore[arg-type]
    assert "EUR" not in text
    assert "2.41" not in text
    assert "train" in text


def test_unrated_line_is_named_in_every_form_for_people(statement: Statement) -> None:
    unrated = replace(statement, lines=[line("train", None, None, USE)], unrated_models=("Tesla T4",))
    for form in ("table", "html"):
        text = render_statement(unrated, form)
        assert "unrated" in text
        assert "Without a price" in text or "without a price" in text
