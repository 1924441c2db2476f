"""The pages of books with nothing in them, and what operators do on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from sqlalchemy import select

from accounting.facts.ingest import ingest
from accounting.facts.reading import Scope, read_lines
from accounting.periods.rate import rate
from accounting.prices.book import list_versions
from accounting.store.models import BillingPeriod
from accounting.tenants.rules import list_rules
from contract.facts import AllocationFact, Fact, PresenceFact, canonical_bytes
from tests.accounting.api.conftest import AFTER_GRACE, sell_half_a_t4
from tests.accounting.web.conftest import Browser, hidden
from tests.accounting.web.page_checks import Page

if TYPE_CHECKING:
    from tests.accounting.api.conftest import Api

PAGES = ("", "slices", "cards", "statements", "waste", "day?day=2026-10-14")
OPERATORS = ("tenancy", "prices", "sources", "closing")
PRICE = {"sku": "gpu-slice", "model": "", "unit_price": "4", "currency": "EUR", "from": "2026-10-01"}


@pytest.fixture
def operator(browser: Browser) -> Browser:
    assert browser.sign_in(browser.api.token("operator")).status_code == 303
    return browser


@pytest.fixture
def october(
    operator: Browser,
    at: Callable[..., int],
    allocation: Callable[..., AllocationFact],
    presence: Callable[..., PresenceFact],
) -> Browser:
    """Half a T4 for three hours of 5 October at 3.00 EUR, held by `acme/team`; rated, the month is over."""
    sell_half_a_t4(operator.api, at, allocation, presence)
    return at_time(operator, AFTER_GRACE)


def at_time(browser: Browser, now_ms: int) -> Browser:
    """The same person, signed in anew at another time."""
    browser.api.now_ms = now_ms
    assert browser.sign_in(browser.api.token("operator")).status_code == 303
    return browser


def page_of(browser: Browser, path: str, status: int = 200) -> Page:
    answer = browser.get(f"/ui/{path}")
    assert answer.status_code == status, answer.text
    page = Page(answer.text)
    assert page.faults == [], path
    return page


def send(browser: Browser, path: str, fields: dict[str, str]) -> tuple[int, str]:
    """Fill a form in and send it, as a person does; the status and what the page says."""
    where = path.partition("/")[0]
    token = hidden(browser.get(f"/ui/{where}").text)["csrf_token"]
    answer = browser.post(f"/ui/{path}", {"csrf_token": token, **fields})
    if answer.status_code == 303:
        answer = browser.get(answer.headers["Location"])
        assert answer.status_code == 200
        return 303, Page(answer.text).words
    page = Page(answer.text)
    assert page.faults == []
    return answer.status_code, page.words


def versions(api: Api) -> list[str]:
    with api.database.reading() as session:
        return [f"{one.unit_price.normalize():f}" for one in list_versions(session)]


def test_pages_of_empty_books_say_what_to_do_next(operator: Browser) -> None:
    for path in PAGES:
        words = page_of(operator, path).words
        assert "Nothing was" in words or "There is no month yet" in words, path
    assert "No price is set yet" in page_of(operator, "prices").words
    assert "No exporter has reported yet" in page_of(operator, "sources").words
    assert "There is no month yet" in page_of(operator, "closing").words


def test_a_tenant_reads_pages_and_none_of_the_operators(october: Browser) -> None:
    reader = Browser(october.api)
    reader.sign_in(october.api.token("tenant", tenant_path="acme/team"))
    for path in PAGES:
        links = page_of(reader, path).links
        assert not [one for one in links if one.startswith(tuple(f"/ui/{own}" for own in OPERATORS))]
    for path in OPERATORS:
        assert "operator" in page_of(reader, path, 403).words
    for path in ("prices", "closing", "tenancy/rules", "tenancy/rules/end", "tenancy/tenants"):
        fields = {"csrf_token": hidden(reader.get("/ui/").text)["csrf_token"], **PRICE, "do": "save"}
        assert reader.post(f"/ui/{path}", fields).status_code == 403
    assert versions(october.api) == ["3"]


def test_a_price_is_asked_about_before_it_is_recorded(october: Browser) -> None:
    asked = {**PRICE, "model": "Tesla T4", "reason": "a typing error"}
    status, words = send(october, "prices", {**asked, "do": "preview"})
    assert status == 200
    # 1.5 card-hours at 3 and at 4; without a word of `do` it is asked about too.
    assert "acme/team 2026-10 1.5000 1.5000 4.50 EUR 6.00 EUR +1.50 EUR" in words
    assert send(october, "prices", asked)[0] == 200
    assert versions(october.api) == ["3"]
    status, words = send(october, "prices", {**asked, "do": "save"})
    assert (status, "The price is recorded" in words) == (303, True)
    # The open-ended one ends where the new one begins, which is a version too.
    assert versions(october.api) == ["3", "3", "4"]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("unit_price", "1E+1", "price"),
        ("unit_price", "", "unit price: fill this in"),
        ("currency", "euro", "currency"),
        ("from", "yesterday", "is no instant"),
        ("from", "2026-13-01", "is no instant"),
        ("from", "9999-12-31", ""),
        ("to", "2026-09-01", ""),
        ("sku", "gold", "is not sold"),
        ("model", "<script>alert(1)</script>" * 40, "at most"),
    ],
)
def test_a_price_that_cannot_be_is_refused_with_the_form_as_it_was(
    operator: Browser, field: str, value: str, said: str
) -> None:
    status, words = send(operator, "prices", {**PRICE, field: value, "do": "save"})
    if status == 303:
        assert (field, value) == ("from", "9999-12-31")
        return
    assert status in {409, 422}
    assert said in words
    assert versions(operator.api) == []


def test_a_rule_is_asked_about_saved_and_ended(october: Browser) -> None:
    fields = {"path": "acme/vision", "kind": "team"}
    assert send(october, "tenancy/tenants", fields) == (303, page_of(october, "tenancy?done=tenant").words)
    status, words = send(october, "tenancy/tenants", fields)
    assert (status, "exists already" in words) == (409, True)
    rule = {"priority": "10", "tenant": "acme/vision", "namespace": "team", "from": "2026-10-01"}
    status, words = send(october, "tenancy/rules", {**rule, "do": "preview"})
    assert status == 200
    assert "2026-10 acme/team acme/vision 1 1.5000" in words
    with october.api.database.reading() as session:
        assert list_rules(session) == []
    assert send(october, "tenancy/rules", {**rule, "do": "save"})[0] == 303
    ending = {"priority": "10", "at": "2026-10-05T10:00:00Z", "reason": "moved"}
    status, words = send(october, "tenancy/rules/end", {**ending, "do": "preview"})
    assert (status, "What it would change" in words) == (200, True)
    assert send(october, "tenancy/rules/end", {**ending, "do": "save"})[0] == 303
    assert send(october, "tenancy/rules/end", {**ending, "priority": "ten", "do": "save"})[0] == 422
    assert send(october, "tenancy/rules", {**rule, "tenant": "acme/nobody", "do": "preview"})[0] == 404


def test_a_month_closes_only_when_nothing_keeps_it_open(october: Browser) -> None:
    api = october.api
    at_time(october, AFTER_GRACE - 10 * 86_400_000)
    fields = {"account": "acme", "period": "2026-10"}
    status, words = send(october, "closing", fields)
    assert status == 422
    assert "2026-10 of acme stays open: period is over" in words
    assert "The way out" in words
    at_time(october, AFTER_GRACE)
    assert "Nothing keeps it open" in page_of(october, "closing").words
    status, words = send(october, "closing", fields)
    assert (status, "2026-10 is closed" in words) == (303, True)
    with api.database.reading() as session:
        states = {(one.account, one.state) for one in session.scalars(select(BillingPeriod))}
    assert ("acme", "closed") in states
    assert ("platform", "closed") not in states
    assert "SM-000001" in page_of(october, "statements").words
    assert send(october, "closing", {"account": "nobody", "period": "2026-10"})[0] == 404
    assert send(october, "closing", {"account": "acme", "period": "October"})[0] == 422


def test_names_are_escaped_and_their_links_lead_to_them(
    operator: Browser,
    at: Callable[..., int],
    allocation: Callable[..., AllocationFact],
    presence: Callable[..., PresenceFact],
) -> None:
    api, start, end = operator.api, at("09:00", 5), at("12:00", 5)
    evil = 'a&b="<x>?#/ü'
    held = allocation(
        cluster="a", tenant_key=evil, namespace="n", pod="p", core_percent=50, bound_at_ms=start,
        confirmed_at_ms=end, ended_at_ms=end, end_kind="observed",
    )  # fmt: skip
    facts: list[Fact] = [presence(start, end, cluster="a"), held]
    lines = read_lines(b"\n".join(map(canonical_bytes, facts)), Scope("a"), now_ms=end)
    with api.database.writing() as session:
        assert not ingest(session, lines, cluster="a", now_ms=end).rejected
    rate(api.database, as_of_ms=end, grace_ms=900_000)
    path = 'acme/a&b="<x>?#%2Fü'
    page = page_of(operator, "?period=2026-10")
    assert path in page.words
    (link,) = {one for one in page.links if one.startswith(f"/ui/tenant?{urlencode({'tenant': path})}")}
    assert path in page_of(operator, link.removeprefix("/ui/")).words
