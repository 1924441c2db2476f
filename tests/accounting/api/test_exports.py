"""`GET /api/v1/exports/{period}`: types, names, the ETag of a closed month, refusals."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from accounting.exports.making import CONTENT_TYPES, Format

if TYPE_CHECKING:
    from tests.accounting.api.conftest import Api


def ask(api: Api, query: str, token: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    answer = api.request("GET", f"/api/v1/exports/2026-10?{query}", token=token, headers=headers)
    return answer.status_code, answer.content, dict(answer.headers)


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("csv", "slicemeter-2026-10.csv"),
        ("json", "slicemeter-2026-10.json"),
        ("parquet", "slicemeter-2026-10.parquet"),
        ("focus", "slicemeter-2026-10-focus-1.4-cost-and-usage.csv"),
        ("focus-parquet", "slicemeter-2026-10-focus-1.4-cost-and-usage.parquet"),
    ],
)
def test_an_export_says_its_type_length_and_name(closed: Api, form: Format, name: str) -> None:
    status, content, headers = ask(closed, f"account=acme&format={form}", closed.token("operator"))
    assert (status, headers["content-type"]) == (200, CONTENT_TYPES[form])
    assert headers["content-length"] == str(len(content))
    assert headers["content-disposition"] == f'attachment; filename="{name}"'


def test_a_closed_month_has_an_etag_of_its_bytes_and_is_not_sent_again(closed: Api) -> None:
    token = closed.token("operator")
    _, content, headers = ask(closed, "account=acme&format=csv", token)
    tag = f'"{hashlib.sha256(content).hexdigest()}"'
    assert headers["etag"] == tag
    for told in (tag, f'"other", {tag}', f'"other",{tag}', f"W/{tag}", "*"):
        assert ask(closed, "account=acme&format=csv", token, **{"If-None-Match": told})[:2] == (304, b"")
    assert ask(closed, "account=acme&format=csv", token, **{"If-None-Match": '"other"'})[0] == 200


def test_an_open_month_has_none(closed: Api) -> None:
    _, _, headers = ask(closed, "account=platform&format=csv", closed.token("operator"))
    assert "etag" not in headers


@pytest.mark.parametrize("query", ["format=xml", "format=focus&focus_version=1.3", "format=csv"])
def test_what_cannot_be_is_422(closed: Api, query: str) -> None:
    assert ask(closed, query, closed.token("operator"))[0] == 422


def test_a_reporter_and_nobody_get_nothing(closed: Api) -> None:
    assert ask(closed, "account=acme&format=csv", closed.token("reporter", cluster="a"))[0] == 403
    assert ask(closed, "account=acme&format=csv", "smt_wrong")[0] == 401


def test_a_tenant_gets_its_own_and_nothing_of_the_account(closed: Api) -> None:
    team = closed.token("tenant", tenant_path="acme/team")
    status, content, _ = ask(closed, "tenant=acme/team&format=focus", team)
    assert (status, b"platform" in content) == (200, False)
    for query in ("account=acme", "account=platform", "tenant=platform/idle", "tenant=acme"):
        assert ask(closed, f"{query}&format=focus", team)[0] == 404
