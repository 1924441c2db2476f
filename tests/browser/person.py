"""Somebody at a real browser: what they see and press, and what the browser complains of meanwhile.

Invariant: every message of the console, every script's error and every violation of the content security
policy is kept; a refusal that a test asked for is taken out by that test, by its status.
"""

from __future__ import annotations

from playwright.sync_api import BrowserContext, ConsoleMessage, Page, expect

from tests.lab.golden.conftest import Accounting

TIMEOUT_MS = 30_000
"""Of any wait: a busy machine is no fault of a page."""
expect.set_options(timeout=TIMEOUT_MS)


class Person:
    """A browser's context with one page."""

    def __init__(self, context: BrowserContext, *, is_policy_passed_by: bool = False) -> None:
        self.complaints: list[str] = []
        self._is_policy_passed_by = is_policy_passed_by
        self._context = context
        context.set_default_timeout(TIMEOUT_MS)
        self.page: Page = context.new_page()
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))

    def _heard(self, message: ConsoleMessage) -> None:
        where = message.location["url"]
        # A statement to keep has no icon, and its policy keeps Chromium from asking for one.
        if not (self._is_policy_passed_by and where.endswith("/favicon.ico")):
            self.complaints.append(f"{message.type}: {message.text} ({where}, on {self.page.url})")

    def goes_to(self, path: str, *, status: int = 200) -> Page:
        """Open a page, which must answer with the status."""
        answer = self.page.goto(path)
        assert answer is not None
        assert answer.status == status, (path, answer.status)
        if status >= 400:
            self.expects(status)
        return self.page

    def expects(self, status: int) -> None:
        """Take out what the browser says of one answer that was to be a refusal."""
        (refusal,) = [one for one in self.complaints if f"status of {status} " in one]
        self.complaints.remove(refusal)

    def signs_in(self, token: str) -> Page:
        """Paste a token and send the form."""
        self.goes_to("/ui/sign-in")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in", exact=True).click()
        return self.page

    def signs_in_as(self, service: Accounting, role: str, tenant: str | None = None) -> Page:
        """Sign in with a new token of a role, and be let in."""
        page = self.signs_in(service.token(role, tenant))
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()
        return page

    def leave(self) -> None:
        """Close the browser's context."""
        self._context.close()
