"""On a phone of 390 pixels no page is wider than the screen: what is wide scrolls within the page."""

from __future__ import annotations

from lab.golden.month import MONTH
from tests.browser.conftest import Seat
from tests.browser.every_page import MISSING, each_page
from tests.browser.test_operators import fill_price
from tests.lab.golden.conftest import Accounting

PHONE = {"width": 390, "height": 844}
WIDTHS = "[document.documentElement.scrollWidth, document.documentElement.clientWidth, innerWidth]"
WIDER = """() => [...document.querySelectorAll('body *')].filter(one => {
  const scrolls = one.closest('.scroll');
  return !(scrolls && scrolls !== one) && one.getBoundingClientRect().right > 390.5;
}).map(one => one.outerHTML.slice(0, 120))"""


def test_no_page_is_wider_than_a_phone(month: Accounting, seat: Seat) -> None:
    person = seat(month.address, viewport=PHONE, is_mobile=True, has_touch=True)
    page = person.signs_in_as(month, "operator")
    wider = {}

    def look(name: str) -> None:
        if page.evaluate(WIDTHS) != [390, 390, 390]:
            wider[name] = [page.evaluate(WIDTHS), *page.evaluate(WIDER)]

    for name, path in each_page(person).items():
        person.goes_to(path)
        look(name)
    person.goes_to(f"/ui/{MISSING}", status=404)
    look("missing")
    person.goes_to("/ui/prices")
    fill_price(page)
    page.get_by_role("button", name="Show what it would change").tap()
    page.get_by_role("region", name="What it would change").wait_for()
    look("what a price would change")
    assert wider == {}


def test_a_tenants_statement_is_reached_by_touch_alone(month: Accounting, seat: Seat) -> None:
    person = seat(month.address, viewport=PHONE, is_mobile=True, has_touch=True)
    page = person.signs_in_as(month, "tenant", "acme/green")
    page.get_by_role("link", name="Statements", exact=True).tap()
    page.get_by_role("row", name=f"{MONTH} acme/green").get_by_role("link", name="acme/green").tap()
    page.get_by_role("link", name="Statement, line by line").tap()
    page.get_by_role("heading", name=f"Statement {MONTH}", level=1).wait_for()
    assert "54.01 EUR" in page.inner_text("main")
