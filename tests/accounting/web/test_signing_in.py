"""A person signs in with a token, stays for a while, and is signed out in the books too."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.accounting.web.conftest import Browser


def test_who_signs_in_with_a_token_is_sent_to_the_page_that_was_asked_for(browser: Browser) -> None:
    answer = browser.sign_in(browser.api.token("operator"), "/ui/months/2026-10")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/ui/months/2026-10")
    assert browser.get("/api/v1/tenants").status_code == 200
