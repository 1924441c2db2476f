"""Requests that another site makes a browser send change nothing (CSRF), and no script of others runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest
from fastapi.routing import APIRoute

from accounting.web.pages.routers import ROUTERS
from tests.accounting.web.conftest import ORIGIN, SESSION, Browser

if TYPE_CHECKING:
    from tests.accounting.api.conftest import Api

NO_SITE = {"Sec-Fetch-Site": None}


@pytest.fixture
def database_kind() -> str:
    """Nothing here depends on the database."""
    return "sqlite"


def signed_in(api: Api) -> Browser:
    browser = Browser(api)
    browser.sign_in(api.token("operator"))
    return browser


FOREIGN: dict[str, Mapping[str, str | None]] = {
    "another site": {"Sec-Fetch-Site": "cross-site"},
    "a neighbour of the site": {"Sec-Fetch-Site": "same-site"},
    "an address typed in": {"Sec-Fetch-Site": "none"},
    "another origin": {**NO_SITE, "Origin": "https://evil.example"},
    "another port": {**NO_SITE, "Origin": f"{ORIGIN}:81"},
    "a name that begins so": {**NO_SITE, "Origin": f"{ORIGIN}.evil.example"},
    "an origin that is hidden": {**NO_SITE, "Origin": "null"},
    "nowhere": {**NO_SITE, "Origin": None},
}


def test_a_form_from_elsewhere_is_refused_with_the_right_token_too(api: Api) -> None:
    browser = signed_in(api)
    token = browser.form_token()
    for whence, headers in FOREIGN.items():
        answer = browser.post("/ui/sign-out", {"csrf_token": token}, headers=headers)
        assert answer.status_code == 403, whence
        assert "sent from another place" in answer.text
    assert browser.is_signed_in()


def test_a_form_without_the_sessions_token_is_refused_from_here_too(api: Api) -> None:
    browser, other = signed_in(api), signed_in(api)
    for fields in ({}, {"csrf_token": ""}, {"csrf_token": other.form_token()}, {"csrf_token": "ä"}):
        answer = browser.post("/ui/sign-out", fields)
        assert answer.status_code == 403
        assert "a session that is over" in answer.text
    json = {"Content-Type": "application/json"}
    assert browser.post("/ui/sign-out", {"csrf_token": browser.form_token()}, headers=json).status_code == 403
    assert browser.is_signed_in()


def test_a_form_of_ours_is_taken_by_either_sign_of_where_it_is_from(api: Api) -> None:
    for headers in ({"Origin": None}, NO_SITE, {**NO_SITE, "Origin": "http://accounting"}):
        browser = signed_in(api)
        token = browser.form_token()
        answer = browser.post("/ui/sign-out", {}, headers={**headers, "X-CSRF-Token": token})
        assert answer.status_code == 303, headers
        assert not browser.is_signed_in()


def test_nobody_is_signed_in_by_a_form_from_elsewhere(api: Api) -> None:
    browser = Browser(api)
    for headers in FOREIGN.values():
        answer = browser.post("/ui/sign-in", {"token": api.token("operator")}, headers=headers)
        assert answer.status_code == 403
    assert SESSION not in browser.cookies


def test_the_api_changes_nothing_by_a_cookie(api: Api) -> None:
    browser = signed_in(api)
    headers = {"X-CSRF-Token": browser.form_token(), "Content-Type": "application/json"}
    assert browser.get("/api/v1/prices").status_code == 200
    for path in ("/api/v1/rate", "/api/v1/periods/2026-10/close", "/api/v1/facts"):
        assert browser.post(path, {}, headers=headers).status_code == 401
    # A password that the browser sends by itself is no bearer token either.
    basic = headers | {"Authorization": "Basic eDp5"}
    assert browser.post("/api/v1/rate", {}, headers=basic).status_code == 401
    foreign = basic | {"Origin": "https://evil.example", **NO_SITE}
    assert browser.post("/ui/sign-out", {}, headers=foreign).status_code == 403


def test_a_bearer_token_needs_no_form(api: Api) -> None:
    answer = api.request("GET", "/ui/", token=api.token("operator"))
    assert answer.status_code == 200
    assert 'name="csrf_token" value=""' in answer.text or "csrf_token" not in answer.text


def test_every_changing_page_is_behind_the_check(api: Api) -> None:
    browser = signed_in(api)
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    changing = [route for route in routes if not (route.methods or set()) <= {"GET", "HEAD"}]
    for route in changing:
        path = f"/ui{route.path}"
        for part in route.param_convertors:
            path = path.replace(f"{{{part}}}", "1")
        assert browser.post(path, {}).status_code == 403, route.path
        foreign = {"Sec-Fetch-Site": "cross-site"}
        token = {"csrf_token": browser.form_token()}
        assert browser.post(path, token, headers=foreign).status_code == 403, route.path


def test_a_page_loads_our_own_and_nothing_else(api: Api) -> None:
    browser = signed_in(api)
    paths = ("/ui/", "/ui/sign-in", "/ui/nowhere", "/ui/tenant?tenant=nowhere", "/ui/oidc/start")
    for path in paths:
        answer = browser.get(path)
        policy = dict(
            part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";")
        )
        assert policy == {
            "default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self' data:",
            "font-src": "'self'", "connect-src": "'self'", "form-action": "'self'",
            "frame-ancestors": "'none'", "base-uri": "'none'",
        }, path  # fmt: skip
        assert answer.headers["Referrer-Policy"] == "same-origin"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "<style" not in answer.text
        assert " style=" not in answer.text
        assert " onclick=" not in answer.text
    assert "script-src" not in browser.get("/api/v1/prices").headers["Content-Security-Policy"]


def test_an_error_of_a_page_is_a_page_and_tells_no_more_than_the_api(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError("a secret")

    browser = signed_in(api)
    assert browser.get("/ui/nowhere").status_code == 404
    monkeypatch.setattr("accounting.web.pages.overview.render", fail)
    answer = browser.get("/ui/")
    assert answer.status_code == 500
    assert "its log says why" in answer.text
    assert "secret" not in answer.text
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    long = browser.post("/ui/sign-in", {"token": "x" * 70_000})
    assert long.status_code == 413


def test_a_form_that_cannot_be_read_is_refused(api: Api) -> None:
    browser = Browser(api)
    for content in (b"token=%ff", b"&".join(b"a=b" for _ in range(300)), b"token=%00"):
        headers = {
            "Content-Type": "application/x-www-form-urlencoded", "Origin": ORIGIN, "Accept": "text/html",
        }  # fmt: skip
        answer = api.request("POST", "/ui/sign-in", headers=headers, content=content)
        assert answer.status_code == 422
    assert browser.cookies == {}
