"""Sessions in the books: a hash, an end in time, with its token, and by signing out."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from accounting.access.tokens import create_token, revoke_token
from accounting.access.viewer import COMMAND_LINE
from accounting.store.models import WebSession
from tests.accounting.web.conftest import SESSION, Browser, hidden

if TYPE_CHECKING:
    from tests.accounting.api.conftest import Api

HOUR = 3_600_000
MINUTE = 60_000


def sessions(api: Api) -> int:
    with api.database.reading() as session:
        return session.scalar(select(func.count()).select_from(WebSession)) or 0


def test_who_signs_in_goes_where_they_wanted_and_the_books_keep_a_hash_alone(browser: Browser) -> None:
    away = browser.get("/ui/tenant?tenant=acme/a&period=2026-10")
    assert away.status_code == 303
    assert away.headers["Location"] == "/ui/sign-in?next=/ui/tenant%3Ftenant%3Dacme/a%26period%3D2026-10"
    page = browser.get(away.headers["Location"])
    answer = browser.post("/ui/sign-in", {**hidden(page.text), "token": browser.api.token("operator")})
    assert (answer.status_code, answer.headers["Location"]) == (
        303,
        "/ui/tenant?tenant=acme/a&period=2026-10",
    )
    assert browser.is_signed_in()
    cookie = browser.cookies[SESSION]
    assert re.fullmatch(r"[\w-]{43}", cookie)
    with browser.api.database.reading() as session:
        row = session.scalars(select(WebSession)).one()
        kept = {column.name: getattr(row, column.name) for column in WebSession.__table__.columns}
    assert kept["sha256"] == hashlib.sha256(cookie.encode()).hexdigest()
    assert cookie not in str(kept)


def test_signing_out_ends_the_session_for_whoever_has_its_cookie(browser: Browser) -> None:
    browser.sign_in(browser.api.token("operator"))
    thief = Browser(browser.api, dict(browser.cookies))
    assert thief.is_signed_in()
    answer = browser.post("/ui/sign-out", {"csrf_token": browser.form_token()})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/ui/sign-in")
    assert browser.cookies == {}
    assert not thief.is_signed_in()
    assert sessions(browser.api) == 0


def test_a_session_ends_with_its_token(browser: Browser) -> None:
    api = browser.api
    with api.database.writing() as session:
        until = api.now_ms + 10 * MINUTE
        short = create_token(
            session, role="operator", by=COMMAND_LINE, now_ms=api.now_ms, expires_at_ms=until
        )
    other = api.token("operator")
    expiring, revoked = Browser(api), Browser(api)
    expiring.sign_in(short)
    revoked.sign_in(other)
    assert expiring.is_signed_in()
    assert revoked.is_signed_in()
    with api.database.writing() as session:
        revoke_token(session, other, by=COMMAND_LINE, now_ms=api.now_ms)
    assert not revoked.is_signed_in()
    api.now_ms = until
    assert not expiring.is_signed_in()


def test_a_session_lasts_twelve_hours_at_most_and_one_without_a_request(browser: Browser) -> None:
    api = browser.api
    begun_ms = api.now_ms
    idle, busy = Browser(api), Browser(api)
    for one in (idle, busy):
        one.sign_in(api.token("operator"))
    for half in range(1, 24):
        api.now_ms = begun_ms + half * HOUR // 2
        assert busy.is_signed_in()
        if half == 1:
            assert Browser(api, dict(idle.cookies)).is_signed_in()
    assert not idle.is_signed_in()
    api.now_ms = begun_ms + 12 * HOUR - 1
    assert busy.is_signed_in()
    api.now_ms += 1
    assert not busy.is_signed_in()
    # What is over is cleared away when somebody signs in.
    browser.sign_in(api.token("operator"))
    assert sessions(api) == 1


def test_reading_pages_writes_seldom(browser: Browser) -> None:
    api = browser.api
    browser.sign_in(api.token("operator"))

    def seen_ms() -> int:
        with api.database.reading() as session:
            return session.scalars(select(WebSession.seen_at_ms)).one()

    begun_ms = api.now_ms
    api.now_ms += 5 * MINUTE - 1
    assert browser.is_signed_in()
    assert seen_ms() == begun_ms
    api.now_ms += 1
    assert browser.is_signed_in()
    assert seen_ms() == begun_ms + 5 * MINUTE


def test_whoever_signs_in_gets_a_cookie_that_nobody_knew(browser: Browser) -> None:
    api = browser.api
    planted = "A" * 43
    browser.cookies[SESSION] = planted
    browser.sign_in(api.token("operator"))
    assert browser.cookies[SESSION] != planted
    assert not Browser(api, {SESSION: planted}).is_signed_in()
    first = browser.cookies[SESSION]
    browser.sign_in(api.token("tenant", tenant_path="acme"))
    assert browser.cookies[SESSION] != first
    assert not Browser(api, {SESSION: first}).is_signed_in()
    assert sessions(api) == 1


def test_a_session_sees_what_its_token_sees(browser: Browser) -> None:
    browser.sign_in(browser.api.token("tenant", tenant_path="acme"))
    assert browser.is_signed_in()
    assert browser.get("/api/v1/audit").status_code == 403
