"""The pages by keyboard alone: everything is reached, and one always sees where one is."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from lab.golden.month import MONTH
from tests.browser.conftest import Seat
from tests.browser.every_page import PAGES
from tests.lab.golden.conftest import Accounting

FOCUSED = """() => {
  const one = document.activeElement;
  if (!one || one === document.body) return null;
  const style = getComputedStyle(one), box = one.getBoundingClientRect();
  const touch = one.querySelector(':scope > .touch');
  const ring = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
  const drawn = touch !== null && getComputedStyle(touch).stroke !== 'none'
    && parseFloat(getComputedStyle(touch).strokeWidth) >= 2;
  const within = box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth
    && box.width > 1 && box.height > 1;
  return {
    name: one.getAttribute('aria-label') || one.innerText || one.id,
    html: one.outerHTML.slice(0, 160), is_seen: (ring || drawn) && within,
  };
}"""
AT_MOST = 400
"""Of presses of Tab: more stops than any of these pages has."""


def tab_to(page: Page, name: str) -> None:
    """Press Tab until what has the name is focused."""
    for _ in range(AT_MOST):
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        if focused and focused["name"].strip().startswith(name):
            return
    raise AssertionError(f"{name} is not reached by Tab on {page.url}")


def test_the_first_stop_skips_to_the_content(month: Accounting, seat: Seat) -> None:
    person = seat(month.address)
    page = person.signs_in_as(month, "operator")
    person.goes_to(f"/ui/?period={MONTH}")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).not_to_be_in_viewport()
    page.keyboard.press("Tab")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_stop_of_every_page_is_seen(month: Accounting, seat: Seat, scheme: str) -> None:
    person = seat(month.address, color_scheme=scheme, reduced_motion="reduce")
    page = person.signs_in_as(month, "operator")
    unseen = {}
    for name, path in PAGES.items():
        person.goes_to(f"/ui/{path}")
        stops = [one for one in [page.evaluate(FOCUSED)] if one]
        for _ in range(AT_MOST):
            page.keyboard.press("Tab")
            focused = page.evaluate(FOCUSED)
            if focused is None:
                break
            stops.append(focused)
        assert len(stops) >= 2, name
        assert len(stops) < AT_MOST, name
        unseen[name] = [one["html"] for one in stops if not one["is_seen"]]
    assert {name: stops for name, stops in unseen.items() if stops} == {}


def test_why_a_day_was_dearer_is_found_without_a_mouse(month: Accounting, seat: Seat) -> None:
    page = seat(month.address).goes_to(f"/ui/?period={MONTH}")
    # The form's field has the focus from the start.
    page.keyboard.type(month.token("tenant", "acme/green"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    tab_to(page, "acme/green")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="acme/green", level=1)).to_be_visible()
    tab_to(page, "2026-10-14")
    page.keyboard.press("Enter")
    expect(page.get_by_text("8.80 EUR more than the day before")).to_be_visible()
    tab_to(page, "Explain the line of serve")
    page.keyboard.press("Enter")
    expect(page.get_by_text("11.0000 card-hours × 0.80 EUR = 8.80 EUR").first).to_be_visible()
