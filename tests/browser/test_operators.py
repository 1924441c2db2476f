"""What operators change by the pages: a price, asked about first, and a month that is closed."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from lab.golden.month import MONTH
from lab.golden.world import at
from tests.browser.conftest import Seat
from tests.lab.golden.conftest import Accounting


def fill_price(page: Page) -> None:
    page.get_by_label("SKU", exact=True).select_option("gpu-slice")
    page.get_by_label(re.compile("^Model")).fill("NVIDIA L4")
    page.get_by_label(re.compile("^Price")).fill("1.00")
    page.get_by_label(re.compile("^Currency")).fill("EUR")
    page.get_by_label(re.compile("^From")).fill("2026-10-01")
    page.get_by_label(re.compile("^Reason")).fill("dearer power")


def test_a_price_is_asked_about_and_then_recorded_and_the_next_rating_does_what_was_said(
    own_month: Accounting, seat: Seat
) -> None:
    person = seat(own_month.address)
    page = person.signs_in_as(own_month, "operator")
    page.get_by_role("link", name="Prices").click()
    versions = page.get_by_role("table", name="Every version of every price").get_by_role("row")
    assert versions.count() == 5  # the heading, and the four of the golden books
    fill_price(page)
    page.get_by_role("button", name="Show what it would change").click()
    told = page.get_by_role("region", name="What it would change")
    # Red's L4: 240 hours at 0.4 are 96 card-hours, each 0.20 dearer.
    expect(told.get_by_role("row", name="acme/red")).to_contain_text("+19.20 EUR")
    expect(told.get_by_text("Not saved.")).to_be_visible()
    assert versions.count() == 5
    # What was filled in stands there still, and is now meant.
    expect(page.get_by_label(re.compile("^Price"))).to_have_value("1.00")
    page.get_by_role("button", name="Record it").click()
    expect(page.get_by_role("status")).to_contain_text("The price is recorded.")
    assert versions.count() > 5
    own_month.rate()
    person.goes_to(f"/ui/tenant?tenant=acme/red&period={MONTH}")
    expect(page.get_by_text("1,099.50 EUR").first).to_be_visible()  # 1,080.30 and 19.20


def test_a_price_that_cannot_be_read_is_refused_and_nothing_filled_in_is_lost(
    month: Accounting, seat: Seat
) -> None:
    person = seat(month.address)
    page = person.signs_in_as(month, "operator")
    person.goes_to("/ui/prices")
    fill_price(page)
    page.get_by_label(re.compile("^From")).fill("soon")
    page.get_by_role("button", name="Record it").click()
    expect(page.get_by_role("alert")).to_contain_text('"soon" is no instant')
    expect(page.get_by_label(re.compile("^Reason"))).to_have_value("dearer power")
    person.expects(422)


def test_a_month_is_closed_once_its_preflight_has_nothing_left(own_month: Accounting, seat: Seat) -> None:
    person = seat(own_month.address)
    own_month.now_ms = at("2026-11-05T09:00Z")  # the three days of grace are over
    own_month.rate()
    page = person.signs_in_as(own_month, "operator")
    page.get_by_role("link", name="Close", exact=True).click()
    for period in ("2026-09", MONTH):
        section = page.get_by_role("region", name=re.compile(f"^acme, {period}"))
        expect(section.get_by_text("Nothing keeps it open.")).to_be_visible()
        section.get_by_role("button", name=f"Close {period} of acme", exact=True).click()
        expect(page.get_by_role("status")).to_contain_text(f"{period} is closed.")
    page.get_by_role("link", name="Statements").click()
    months = page.get_by_role("table", name=re.compile("^Open months"))
    expect(months.get_by_role("row", name=f"{MONTH} acme closed")).to_be_visible()
    expect(months.get_by_role("row", name=f"{MONTH} acme-platform open")).to_be_visible()
    numbered = page.get_by_role("table", name=re.compile("^Issued statements"))
    expect(numbered.get_by_role("row", name=re.compile(MONTH))).to_have_count(1)


def test_what_keeps_a_month_open_is_named_with_the_way_out_and_asks_for_a_reason(
    own_month: Accounting, seat: Seat
) -> None:
    person = seat(own_month.address)
    own_month.now_ms = at("2026-11-02T12:00Z")
    page = person.signs_in_as(own_month, "admin")
    page.get_by_role("link", name="Close", exact=True).click()
    section = page.get_by_role("region", name=re.compile("^acme, 2026-09"))
    section.get_by_role("button").click()
    section = page.get_by_role("region", name=re.compile(f"^acme, {MONTH}"))
    expect(section.get_by_role("row", name=re.compile("^close grace"))).to_contain_text("yes, with a reason")
    section.get_by_role("button").click()
    # The browser itself asks for the reason: nothing was sent.
    reason = section.get_by_label(re.compile("^Reason to pass over it"))
    expect(reason).to_be_focused()
    reason.fill("the auditors are here")
    section.get_by_role("button").click()
    expect(page.get_by_role("status")).to_contain_text(f"{MONTH} is closed.")
