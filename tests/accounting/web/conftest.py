"""The whole service in this process, and a browser of a person: it keeps cookies and says where it is."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx
import pytest

from accounting.access.oidc_settings import GroupMapping, OidcSettings
from accounting.settings import Settings
from accounting.web.app import create_service
from lab.oidc.provider import Client, LabProvider, Person, SigningKey, new_key
from lab.oidc.serving import serving
from tests.accounting.api.conftest import api

if TYPE_CHECKING:
    from pathlib import Path

    from tests.accounting.api.conftest import Api

__all__ = ["Browser", "api", "browser"]

SESSION = "__Host-slicemeter"
ORIGIN = "https://accounting"
CALLBACK = "https://accounting/ui/oidc/callback"
SECRET = "a secret: with + and %"
PEOPLE = (
    Person("olga", ("staff", "gpu operators")),
    Person("ada", ("admins",)),
    Person("tim", ("team-a", "staff")),
    Person("nora", ("staff",)),
)


@dataclass
class Browser:
    """A person at a browser.

    Attributes:
        set_cookies: Every `Set-Cookie` of the latest answer.
    """

    api: Api
    cookies: dict[str, str] = field(default_factory=dict)
    set_cookies: list[str] = field(default_factory=list)

    def get(self, path: str, *, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return self._kept(self.api.request("GET", path, headers=self._sent({"Accept": "text/html"}, headers)))

    def post(
        self, path: str, fields: Mapping[str, str], *, headers: Mapping[str, str | None] | None = None
    ) -> httpx.Response:
        """Send a form as one of our own pages would; a header of None is left out."""
        own: dict[str, str] = {
            "Accept": "text/html",
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": ORIGIN,
            "Sec-Fetch-Site": "same-origin",
        }
        content = str(httpx.QueryParams(dict(fields))).encode()
        return self._kept(self.api.request("POST", path, headers=self._sent(own, headers), content=content))

    def sign_in(self, token: str, following: str = "") -> httpx.Response:
        page = self.get(f"/ui/sign-in?next={quote(following)}")
        return self.post("/ui/sign-in", {**hidden(page.text), "token": token})

    def form_token(self) -> str:
        """What the forms of this session carry."""
        return hidden(self.get("/ui/sign-in").text)["csrf_token"]

    def is_signed_in(self) -> bool:
        return self.get("/api/v1/tenants").status_code == 200

    def sign_in_at(self, name: str, following: str = "/ui/") -> httpx.Response:
        """Go to the provider, be somebody there, and come back."""
        return self.get(self.way_back(name, following))

    def way_back(self, name: str, following: str = "/ui/") -> str:
        """The address with which the provider sends a person back."""
        away = self.get(f"/ui/oidc/start?next={quote(following)}")
        assert away.status_code == 303, away.text
        back = httpx.get(httpx.URL(away.headers["Location"]).copy_add_param("person", name))
        assert back.status_code == 302, back.text
        return back.headers["Location"].removeprefix("https://accounting")

    def _sent(self, own: dict[str, str], headers: Mapping[str, str | None] | None) -> dict[str, str]:
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        sent: dict[str, str | None] = {**own, **({"Cookie": cookies} if cookies else {}), **(headers or {})}
        return {name: value for name, value in sent.items() if value is not None}

    def _kept(self, response: httpx.Response) -> httpx.Response:
        self.set_cookies = response.headers.get_list("set-cookie")
        for line in self.set_cookies:
            pair, *attributes = line.split("; ")
            name, _, value = pair.partition("=")
            if "Max-Age=0" in attributes:
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value.strip('"')
        return response


def hidden(page: str) -> dict[str, str]:
    """The fields that a page's forms carry along."""
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', page)
    return {name: html.unescape(value) for name, value in found}


@pytest.fixture
def browser(api: Api) -> Browser:
    return Browser(api)


@pytest.fixture(scope="session")
def key() -> SigningKey:
    return new_key()


@pytest.fixture
def provider(api: Api, key: SigningKey) -> Iterator[LabProvider]:
    client = Client("slicemeter", CALLBACK, SECRET)
    with serving(client, PEOPLE, clock=lambda: api.now_ms / 1000, key=key) as made:
        yield made


@pytest.fixture
def company(api: Api, provider: LabProvider, tmp_path: Path) -> Browser:
    """A browser before a service whose people sign in by the provider."""
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    oidc = OidcSettings(
        issuer=provider.issuer,
        client_id="slicemeter",
        redirect_url=CALLBACK,
        mapping=(
            GroupMapping("admins", "admin"),
            GroupMapping("gpu operators", "operator"),
            GroupMapping("team-a", "tenant", "acme/team-a"),
        ),
        client_secret_file=secret,
    )
    api.app = create_service(Settings(oidc=oidc), database=api.database, clock=lambda: api.now_ms)
    return Browser(api)
