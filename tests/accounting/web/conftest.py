"""The whole service in this process, and a browser of a person: it keeps cookies and says where it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx
import pytest

from tests.accounting.api.conftest import Api, api

__all__ = ["Browser", "api", "browser"]

ORIGIN = "https://accounting"


@dataclass
class Browser:
    """A person at a browser."""

    api: Api
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, *, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return self._kept(self.api.request("GET", path, headers=self._sent({"Accept": "text/html"}, headers)))

    def post(
        self, path: str, fields: Mapping[str, str], *, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        own = {
            "Accept": "text/html",
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": "http://accounting",
        }
        content = str(httpx.QueryParams(dict(fields))).encode()
        return self._kept(self.api.request("POST", path, headers=self._sent(own, headers), content=content))

    def sign_in(self, token: str, following: str = "") -> httpx.Response:
        page = self.get(f"/ui/sign-in?next={following}").text
        return self.post("/ui/sign-in", {**hidden(page), "token": token})

    def _sent(self, own: dict[str, str], headers: Mapping[str, str] | None) -> dict[str, str]:
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return own | ({"Cookie": cookies} if cookies else {}) | dict(headers or {})

    def _kept(self, response: httpx.Response) -> httpx.Response:
        for line in response.headers.get_list("set-cookie"):
            pair, *attributes = line.split("; ")
            name, _, value = pair.partition("=")
            if "Max-Age=0" in attributes:
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value.strip('"')
        return response


def hidden(page: str) -> dict[str, str]:
    """The fields that a page's forms carry along."""
    return dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', page))


@pytest.fixture
def browser(api: Api) -> Browser:
    return Browser(api)
