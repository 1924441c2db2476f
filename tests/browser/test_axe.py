"""axe-core over every kind of page, light and dark: no fault, not even one that it calls moderate or minor.

Here alone the content security policy is passed by, since axe runs as a script within the page.
"""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from lab.golden.month import MONTH
from tests.browser.conftest import Seat
from tests.browser.every_page import MISSING, PAGES, each_page
from tests.browser.test_operators import fill_price
from tests.browser.test_phone import PHONE
from tests.lab.golden.conftest import Accounting

FOR_OPERATORS = ("tenancy", "prices", "sources", "closing")


def faults_of(page: Page) -> list[str]:
    """What axe finds, each with the first place of it."""
    found: list[dict[str, Any]] = Axe().run(page).response["violations"]
    return [
        f"{one['impact']} {one['id']}: {one['help']}: {len(one['nodes'])} × {one['nodes'][0]['html']}"
        for one in found
    ]


@pytest.mark.parametrize(
    "how",
    [{"color_scheme": "light"}, {"color_scheme": "dark"}, {"color_scheme": "light", "viewport": PHONE}],
    ids=["light", "dark", "phone"],
)
def test_axe_finds_no_fault_in_any_page(month: Accounting, seat: Seat, how: dict[str, Any]) -> None:
    person = seat(month.address, bypass_csp=True, **how)
    page = person.signs_in_as(month, "operator")
    found = {}
    for name, path in each_page(person).items():
        person.goes_to(path)
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        found[name] = faults_of(page)
    person.goes_to(f"/ui/{MISSING}", status=404)
    found["missing"] = faults_of(page)
    person.goes_to("/ui/prices")
    fill_price(page)
    page.get_by_role("button", name="Show what it would change").click()
    expect(page.get_by_role("region", name="What it would change")).to_be_visible()
    found["what a price would change"] = faults_of(page)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    found["sign-in of nobody"] = faults_of(page)
    assert {name: faults for name, faults in found.items() if faults} == {}


def test_axe_finds_no_fault_where_nothing_was_metered_yet(no_month: Accounting, seat: Seat) -> None:
    person = seat(no_month.address, bypass_csp=True)
    page = person.signs_in_as(no_month, "operator")
    found = {}
    for path in ("", "slices", "cards", "statements", "waste", "day?day=2026-10-14", *FOR_OPERATORS):
        person.goes_to(f"/ui/{path}")
        found[path] = faults_of(page)
    assert {path: faults for path, faults in found.items() if faults} == {}


def test_axe_finds_no_fault_in_what_a_tenant_is_shown(month: Accounting, seat: Seat) -> None:
    person = seat(month.address, bypass_csp=True, color_scheme="dark", viewport=PHONE)
    page = person.signs_in_as(month, "tenant", "acme/green")
    found = {}
    for name in ("overview", "slices", "slice", "cards", "card", "statements", "statement", "waste"):
        person.goes_to(f"/ui/{PAGES[name]}")
        found[name] = faults_of(page)
    person.goes_to("/ui/prices", status=403)
    found["refused"] = faults_of(page)
    assert {name: faults for name, faults in found.items() if faults} == {}


def test_axe_finds_no_fault_where_a_month_stays_open_and_a_rule_is_asked_about(
    own_month: Accounting, seat: Seat
) -> None:
    person = seat(own_month.address, bypass_csp=True, viewport=PHONE)
    page = person.signs_in_as(own_month, "operator")
    person.goes_to("/ui/closing")
    page.get_by_role("button", name="Close 2026-09 of acme", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("2026-09 is closed.")
    expect(page.get_by_role("row", name="close grace")).to_be_visible()
    assert faults_of(page) == []
    person.goes_to("/ui/tenancy")
    form = page.get_by_role("form", name="Add a rule")
    form.get_by_label("Priority").fill("10")
    form.get_by_label("Leads to tenant").fill("acme/blue")
    form.get_by_label("Tenant key").fill("green")
    form.get_by_label("From").fill("2026-10-01")
    form.get_by_role("button", name="Show what it would move").click()
    moved = page.get_by_role("table", name="What would pass from one tenant to another")
    expect(moved.get_by_role("row", name=f"{MONTH} acme/green acme/blue 4")).to_be_visible()
    assert faults_of(page) == []


def test_a_field_without_a_label_would_be_found(chromium: Browser) -> None:
    page = chromium.new_page()
    page.set_content('<html lang="en"><title>A page</title><main><h1>A page</h1><input></main></html>')
    (fault,) = faults_of(page)
    assert fault.startswith("critical label: ")
    page.close()
