"""Closed months over HTTP: who may see what is issued, what blocks a close, and who changed what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.accounting.api.conftest import Api

AFTER_GRACE = 1_793_836_800_000
"""2026-11-05T00:00Z."""


def test_issued_statements_are_seen_by_operators_and_by_whom_the_whole_account_is(closed: Api) -> None:
    def numbers(token: str, query: str = "") -> list[tuple[str, str]]:
        answer = closed.request("GET", f"/api/v1/statements{query}", token=token)
        assert answer.status_code == 200
        return [(row["number"], row["total"]) for row in answer.json()["rows"]]

    one = [("SM-000001", "4.50")]
    operator = closed.token("operator")
    assert numbers(operator) == numbers(operator, "?account=acme&period=2026-10") == one
    assert numbers(operator, "?period=2026-09") == []
    assert numbers(closed.token("tenant", tenant_path="acme")) == one
    assert numbers(closed.token("tenant", tenant_path="acme/team")) == []


def test_foreign_account_looks_like_one_that_does_not_exist(closed: Api) -> None:
    token = closed.token("tenant", tenant_path="acme/team")
    for path in ("statements?account=", "statements/2026-10?account="):
        details = set()
        for account in ("acme", "platform", "nobody"):
            answer = closed.request("GET", f"/api/v1/{path}{account}", token=token)
            assert answer.status_code == 404
            details.add(answer.json()["detail"].replace(account, "X"))
        assert len(details) == 1


def test_the_preflight_names_what_keeps_a_month_open(closed: Api) -> None:
    def ask(account: str) -> tuple[str, bool, list[str]]:
        answer = closed.request(
            "GET", f"/api/v1/periods/2026-10/preflight?account={account}", token=closed.token("operator")
        ).json()
        return answer["state"], answer["clear"], [one["check"] for one in answer["blockers"]]

    assert ask("acme") == ("closed", True, [])
    assert ask("platform") == ("open", True, [])
    closed.now_ms = AFTER_GRACE - 3 * 86_400_000
    assert ask("platform") == ("open", False, ["close_grace"])


def test_periods_tell_hash_and_ingest_number_of_a_closed_month(closed: Api) -> None:
    rows = closed.request("GET", "/api/v1/periods", token=closed.token("operator")).json()["rows"]
    (row,) = (row for row in rows if (row["account"], row["period"]) == ("acme", "2026-10"))
    assert (row["state"], row["ingest_watermark"], row["closed_by"]) == ("closed", 1, "command line")
    assert len(row["sha256"]) == 64


def test_the_audit_log_is_paged_from_the_newest_on(closed: Api) -> None:
    token = closed.token("operator")
    first = closed.request("GET", "/api/v1/audit?limit=2", token=token).json()["rows"]
    older = closed.request("GET", f"/api/v1/audit?limit=1&before={first[-1]['seq']}", token=token).json()
    actions = [row["action"] for row in [*first, *older["rows"]]]
    assert actions == ["token create", "period close", "period freeze"]


@pytest.mark.parametrize("path", ["periods/2026-10/preflight?account=acme", "audit"])
def test_preflight_and_audit_are_for_operators(closed: Api, path: str) -> None:
    for token, status in (
        (None, 401),
        (closed.token("tenant", tenant_path="acme"), 403),
        (closed.token("reporter", cluster="a"), 403),
    ):
        answer = closed.request("GET", f"/api/v1/{path}", token=token)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("periods/2026-10/preflight", 422),
        ("periods/2026-10/preflight?account=nobody", 404),
        ("periods/2025-10/preflight?account=acme", 404),
        ("periods/October/preflight?account=acme", 422),
        ("statements/2026-10", 422),
        ("statements?period=October", 422),
        ("audit?limit=0", 422),
        ("audit?before=-1", 422),
    ],
)
def test_a_question_that_cannot_be_is_a_problem(closed: Api, path: str, status: int) -> None:
    answer = closed.request("GET", f"/api/v1/{path}", token=closed.token("operator"))
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
