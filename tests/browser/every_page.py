"""One address of every kind of page, over the golden month, as an operator reaches it.

Invariant: `test_every_kind_of_page_is_among_them` holds the list to the routes that there are.
"""

from __future__ import annotations

from contract.ids import allocation_id
from lab.golden.month import A100, MONTH
from tests.browser.person import Person

BURST = allocation_id("alpha", "00000000-0000-4000-8000-000000000002", "main", A100.uuid)
PAGES = {
    "sign-in": "sign-in",
    "overview": f"?period={MONTH}",
    "overview of an empty month": "?period=2030-01",
    "tenant": f"tenant?tenant=acme&period={MONTH}",
    "day": "day?day=2026-10-14&tenant=acme",
    "day of all": "day?day=2026-10-14",
    "slices": f"slices?period={MONTH}",
    "slice": f"slice?cluster=alpha&id={BURST}&period={MONTH}",
    "cards": f"cards?period={MONTH}",
    "card": f"card?cluster=alpha&device={A100.uuid}&day=2026-10-12",
    "statements": "statements",
    "statement": f"statement?tenant=acme/green&period={MONTH}",
    "waste": f"waste?period={MONTH}",
    "tenancy": "tenancy",
    "prices": "prices",
    "sources": "sources",
    "closing": "closing",
}
MISSING = "tenant?tenant=acme/nobody"


def each_page(person: Person) -> dict[str, str]:
    """All of them, with a line to explain and a page that says that there is none."""
    page = person.goes_to(f"/ui/{PAGES['day']}")
    line = page.get_by_role("link", name="Explain the line of serve").get_attribute("href")
    assert line is not None
    document = f"/api/v1/statements/{MONTH}?tenant=acme/green&format=html"
    own = {"line": line, "statement to keep": document}
    return {name: f"/ui/{path}" for name, path in PAGES.items()} | own
