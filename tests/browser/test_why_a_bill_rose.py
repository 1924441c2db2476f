"""What people come for: why a day was higher, and the statement in each of its forms."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from lab.golden.month import MONTH
from tests.browser.conftest import Seat
from tests.lab.golden.conftest import Accounting


def test_a_tenant_finds_why_the_fourteenth_was_higher_by_following_links(
    month: Accounting, seat: Seat
) -> None:
    page = seat(month.address).signs_in_as(month, "tenant", "acme/green")
    page.get_by_label("Month", exact=True).select_option(MONTH)
    page.get_by_role("button", name="Show").click()
    page.get_by_role("table").get_by_role("link", name="acme/green").click()
    expect(page.get_by_role("heading", name="acme/green", level=1)).to_be_visible()
    page.get_by_role("link", name=re.compile("^2026-10-14")).click()
    # Half an L4 from midnight UTC, which is 02:00 in Berlin: 22 hours at 0.5 and 0.80.
    expect(page.get_by_text("8.80 EUR more than the day before")).to_be_visible()
    cause = page.get_by_role("row", name="green/serve").first
    expect(cause).to_contain_text("new that day")
    expect(cause).to_contain_text("+8.80 EUR")
    page.get_by_role("link", name="Explain the line of serve").click()
    expect(page.get_by_text("11.0000 card-hours × 0.80 EUR = 8.80 EUR").first).to_be_visible()


def test_an_operator_goes_from_the_costliest_tenant_to_a_card_and_its_hours(
    month: Accounting, seat: Seat
) -> None:
    person = seat(month.address)
    page = person.signs_in_as(month, "operator")
    person.goes_to(f"/ui/?period={MONTH}")
    rows = page.get_by_role("table", name=re.compile("^Spend of")).get_by_role("row")
    # Above it stands what nobody held: 2,294.49 card-hours of idle cards, borne by the platform.
    first = rows.filter(has_not_text="platform").nth(1)
    expect(first).to_contain_text("1,080.30 EUR")
    first.get_by_role("link", name="acme/red", exact=True).click()
    page.get_by_role("link", name=re.compile("NVIDIA A100")).first.click()
    expect(page.get_by_role("heading", name="NVIDIA A100-SXM4-80GB", level=1)).to_be_visible()
    page.get_by_role("link", name=re.compile("^2026-10-12")).click()
    expect(page.get_by_text("charged 18.0000 + idle 6.0000 + down 0.0000")).to_be_visible()
    table = page.get_by_role("table", name=re.compile("^Parts of the card"))
    expect(table).to_be_hidden()
    page.get_by_text("The same as a table").click()
    expect(table.get_by_role("row", name=re.compile("^06:00 0.4167 0.5833"))).to_be_visible()


def downloaded(page: Page, link: str, folder: Path) -> Path:
    with page.expect_download() as coming:
        page.get_by_role("link", name=link, exact=True).click()
    path = folder / coming.value.suggested_filename
    coming.value.save_as(path)
    return path


def test_each_form_of_the_statement_downloads_and_says_the_same_total(
    month: Accounting, seat: Seat, tmp_path: Path
) -> None:
    person = seat(month.address)
    page = person.signs_in_as(month, "tenant", "acme/green")
    person.goes_to(f"/ui/tenant?tenant=acme/green&period={MONTH}")
    document = json.loads(downloaded(page, "JSON", tmp_path).read_text())
    assert document["total"] == "54.01"
    with downloaded(page, "CSV", tmp_path).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(Decimal(row["shown"]) for row in rows) == Decimal("54.01")
    with downloaded(page, "FOCUS", tmp_path).open(newline="") as file:
        focus = list(csv.DictReader(file))
    assert round(sum(Decimal(row["BilledCost"]) for row in focus), 2) == Decimal("54.01")


def test_the_pdf_downloads_and_is_one(month: Accounting, seat: Seat, tmp_path: Path) -> None:
    if find_spec("weasyprint") is None or shutil.which("pdftotext") is None:
        pytest.skip("needs WeasyPrint (extra pdf) and Debian's package poppler-utils")
    person = seat(month.address)
    page = person.signs_in_as(month, "tenant", "acme/green")
    person.goes_to(f"/ui/tenant?tenant=acme/green&period={MONTH}")
    path = downloaded(page, "PDF", tmp_path)
    assert path.name == f"statement-{MONTH}.pdf"
    done = subprocess.run(["pdftotext", "-layout", path, "-"], capture_output=True, text=True, check=True)
    assert re.search(r"^ *Total .* 54\.01 ", done.stdout, re.MULTILINE)


def test_the_statement_as_html_opens_in_the_browser_and_asks_for_nothing_more(
    month: Accounting, seat: Seat
) -> None:
    person = seat(month.address, extra_http_headers={"Authorization": f"Bearer {month.token('operator')}"})
    asked: list[str] = []
    person.page.on("request", lambda request: asked.append(request.url))
    page = person.goes_to(f"/api/v1/statements/{MONTH}?tenant=acme/green&format=html")
    expect(page.get_by_text("54.01").first).to_be_visible()
    assert asked == [page.url]
