"""A person signs in with a token, or is told why not."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import func, select

from accounting.access.tokens import new_token
from accounting.settings import Settings
from accounting.store.models import WebSession
from accounting.web.app import create_service
from accounting.web.paths import page_or_home
from tests.accounting.web.conftest import SESSION, Browser, hidden

if TYPE_CHECKING:
    from tests.accounting.api.conftest import Api

HOUR = 3_600_000
MINUTE = 60_000


@pytest.fixture
def database_kind() -> str:
    """What the books keep is tried on both databases by `test_sessions.py`."""
    return "sqlite"


def sessions(api: Api) -> int:
    with api.database.reading() as session:
        return session.scalar(select(func.count()).select_from(WebSession)) or 0


def test_the_cookie_is_the_browsers_alone(browser: Browser) -> None:
    browser.sign_in(browser.api.token("operator"))
    (cookie,) = browser.set_cookies
    name, *attributes = cookie.split("; ")
    assert name.startswith("__Host-slicemeter=")
    # No Domain and no Max-Age: this host's, until the browser is closed.
    assert set(attributes) == {"HttpOnly", "Path=/", "SameSite=lax", "Secure"}


def test_on_loopback_the_cookie_may_go_without_tls(browser: Browser) -> None:
    api = browser.api
    made = replace(api)
    made.app = create_service(
        Settings(are_cookies_secure=False), database=api.database, clock=lambda: api.now_ms
    )
    plain = Browser(made)
    plain.sign_in(api.token("operator"))
    (cookie,) = plain.set_cookies
    assert cookie.startswith("slicemeter=")
    assert set(cookie.split("; ")[1:]) == {"HttpOnly", "Path=/", "SameSite=lax"}
    assert plain.is_signed_in()


@pytest.mark.parametrize("token", ["", "smt_0123456789ab_" + "0" * 64, "a.b.c", "hunter2", "smt_ä"])
def test_a_token_that_is_none_is_refused_on_the_form(browser: Browser, token: str) -> None:
    answer = browser.sign_in(token, "/ui/waste")
    assert answer.status_code == 401
    assert "the token is missing, unknown, expired or revoked" in answer.text
    assert hidden(answer.text)["next"] == "/ui/waste"
    assert token == "" or token not in answer.text
    assert SESSION not in browser.cookies


def test_an_exporters_token_opens_no_session(browser: Browser) -> None:
    answer = browser.sign_in(browser.api.token("reporter", cluster="a"))
    assert answer.status_code == 401
    assert "a reporter&#39;s token reads nothing" in answer.text
    assert sessions(browser.api) == 0


def test_failed_sign_ins_are_held_up_and_sessions_go_on(browser: Browser) -> None:
    api = browser.api
    browser.sign_in(api.token("operator"))
    stranger = Browser(api)
    assert [stranger.sign_in(new_token()).status_code for _ in range(20)] == [401] * 20
    answer = stranger.sign_in(api.token("operator"))
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "60")
    assert browser.is_signed_in()
    api.now_ms += MINUTE
    assert stranger.sign_in(api.token("operator")).status_code == 303


def test_no_token_and_no_cookie_is_ever_logged(browser: Browser, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        token, unknown = browser.api.token("operator"), new_token()
        browser.sign_in(unknown)
        browser.sign_in(token)
        browser.get("/ui/")
        cookie = browser.cookies[SESSION]
    assert all(secret not in caplog.text for secret in (token, unknown, cookie))


@pytest.mark.parametrize(
    "path",
    [
        "https://evil.example/", "//evil.example", "/\\evil.example", "/ui//evil.example", "/ui/\\evil",
        "/api/v1/x", "javascript:alert(1)", "/ui/../x", "/ui/a\nSet-Cookie: x=y", "/ui/sign-out",
        "/ui/oidc/start", "", "ui/",
    ],
)  # fmt: skip
def test_nobody_is_sent_to_another_place_than_a_page_of_ours(path: str) -> None:
    assert page_or_home(path) == "/ui/"


def test_a_page_keeps_its_question_through_the_sign_in() -> None:
    assert page_or_home("/ui/tenant?tenant=acme/team-a&period=2026-10") == (
        "/ui/tenant?tenant=acme/team-a&period=2026-10"
    )


def test_the_first_page_is_the_overview(browser: Browser) -> None:
    answer = browser.get("/")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/ui/")


def test_who_opens_the_page_without_tls_is_told_why_no_session_would_hold(browser: Browser) -> None:
    token = browser.api.token("operator")
    answer = browser.post("/ui/sign-in", {"token": token}, headers={"Origin": "http://accounting"})
    assert answer.status_code == 400
    assert "opened without TLS" in answer.text
    assert "--insecure-cookies" in answer.text
    assert browser.cookies == {}


def test_who_signed_in_is_in_the_log(browser: Browser, caplog: pytest.LogCaptureFixture) -> None:
    token = browser.api.token("operator")
    with caplog.at_level(logging.INFO):
        browser.sign_in(token)
    assert f"token:{token.split('_')[1]} signed in at the page as operator" in caplog.text


def test_style_is_kept_by_browsers_and_asked_after(browser: Browser) -> None:
    answer = browser.get("/static/site.css")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/css")
    assert answer.headers["Cache-Control"] == "no-cache"
    again = browser.get("/static/site.css", headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/", "/static/nowhere"):
        assert browser.get(path).status_code == 404
