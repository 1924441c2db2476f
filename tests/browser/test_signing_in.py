"""Who gets in at a real browser, by what, and what each role finds there."""

from __future__ import annotations

import re
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import expect

from accounting.access.tokens import create_token
from accounting.access.viewer import COMMAND_LINE
from lab.golden.month import MONTH
from tests.browser.conftest import Seat
from tests.e2e.test_sign_in_by_a_provider import started
from tests.lab.golden.conftest import Accounting

FOR_OPERATORS = ("Tenants and rules", "Prices", "Sources", "Close")
MAPPING = """
[[mapping]]
group = "operators"
role = "operator"

[[mapping]]
group = "admins"
role = "admin"

[[mapping]]
group = "greens"
role = "tenant"
tenant = "acme/green"
"""


@pytest.mark.parametrize(("role", "tenant"), [("tenant", "acme/green"), ("operator", None), ("admin", None)])
def test_a_token_opens_the_pages_of_its_role_and_no_others(
    month: Accounting, seat: Seat, role: str, tenant: str | None
) -> None:
    person = seat(month.address)
    page = person.signs_in_as(month, role, tenant)
    assert page.url == f"{month.address}/ui/"
    pages = page.get_by_role("navigation", name="Pages").get_by_role("link").all_inner_texts()
    own = FOR_OPERATORS if tenant is None else ()
    assert pages == ["Overview", "Slices", "Cards", "Statements", *own]
    expect(page.get_by_text(tenant or role, exact=True).first).to_be_visible()
    for path in ("tenancy", "prices", "sources", "closing"):
        person.goes_to(f"/ui/{path}", status=200 if tenant is None else 403)


def test_no_script_reads_the_sessions_cookie_and_no_script_in_a_page_runs(
    month: Accounting, seat: Seat
) -> None:
    person = seat(month.address)
    page = person.signs_in_as(month, "tenant", "acme/green")
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Lax")
    assert page.evaluate("document.cookie") == ""
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'ran = 1'}))")
    assert page.evaluate("typeof ran") == "undefined"
    # The browser says so, which is what fails every other test here in which it happens.
    (complaint,) = person.complaints
    assert "Content Security Policy" in complaint
    person.complaints.clear()


def test_signing_out_ends_the_session_and_the_way_back_shows_nothing(month: Accounting, seat: Seat) -> None:
    person = seat(month.address)
    page = person.signs_in_as(month, "tenant", "acme/green")
    person.goes_to(f"/ui/tenant?tenant=acme/green&period={MONTH}")
    expect(page.get_by_text("54.01 EUR").first).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert "54.01" not in page.content()


def test_the_page_that_was_asked_for_comes_after_signing_in(month: Accounting, seat: Seat) -> None:
    page = seat(month.address).goes_to(f"/ui/waste?tenant=acme/green&period={MONTH}")
    page.get_by_label("Token").fill(month.token("tenant", "acme/green"))
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("heading", name="Held and not used", level=1)).to_be_visible()


def test_a_reporter_and_a_token_that_is_none_are_refused_with_the_way_out(
    month: Accounting, seat: Seat
) -> None:
    with month.database.writing() as session:
        token = create_token(session, role="reporter", cluster="alpha", by=COMMAND_LINE, now_ms=0)
    person = seat(month.address)
    page = person.signs_in(token)
    expect(page.get_by_role("alert")).to_contain_text("a reporter's token reads nothing")
    person.expects(401)
    page = person.signs_in("smt_000000000000_" + "0" * 64)
    expect(page.get_by_role("alert")).to_be_visible()
    person.expects(401)
    person.goes_to("/ui/")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_people_sign_in_by_a_provider_and_see_what_their_group_opens(
    golden_books: Path, tmp_path: Path, seat: Seat
) -> None:
    books = tmp_path / "books.sqlite"
    with closing(sqlite3.connect(golden_books)) as golden, closing(sqlite3.connect(books)) as own:
        golden.backup(own)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    people = ["--person", "olga:operators", "--person", "ada:admins", "--person", "gus:greens"]
    people += ["--person", "nora:visitors"]
    with started("lab.oidc", "--port", "0", "--service", f"http://{address}", *people, lines=3) as told:
        settings = tmp_path / "oidc.toml"
        settings.write_text("".join(told) + MAPPING)
        serve = ["slicemeter", "accounting", "serve", "--database", f"sqlite:///{books}"]
        serve += ["--listen", address, "--insecure-cookies", "--oidc-config-file", str(settings)]
        with started(*serve, lines=1):
            for name, who in (("olga", "operator"), ("ada", "admin"), ("gus", "acme/green")):
                person = seat(f"http://{address}")
                page = person.goes_to(f"/ui/?period={MONTH}")
                page.get_by_role("link", name="Sign in with single sign-on").click()
                page.get_by_role("link", name=name).click()
                expect(page.get_by_role("heading", name=re.compile(MONTH), level=1)).to_be_visible()
                expect(page.get_by_text(who, exact=True).first).to_be_visible()
                sees_all = page.get_by_role("link", name="acme/red").count() > 0
                assert sees_all == (name != "gus")
            person = seat(f"http://{address}")
            page = person.goes_to("/ui/")
            page.get_by_role("link", name="Sign in with single sign-on").click()
            page.get_by_role("link", name="nora").click()
            expect(page.get_by_role("alert")).to_contain_text("visitors")
            person.expects(403)
