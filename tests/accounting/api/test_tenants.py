"""The tree, rules and moves over HTTP: half a T4 for three hours at 3.00 EUR, 4.50."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.accounting.api.test_changing import Operator, operator

if TYPE_CHECKING:
    from tests.accounting.api.conftest import Api

__all__ = ["operator"]

RULE = {"priority": 10, "tenant": "acme/vision", "tenant_key": "te*", "from": "2026-10-01T00:00:00Z"}


@pytest.fixture
def rated(operator: Operator) -> Operator:
    assert operator.post("tenants", {"path": "acme/vision", "kind": "team"}).status_code == 201
    return operator


def total(operator: Operator, tenant: str) -> str:
    found = operator.get(f"statements/2026-10?tenant={tenant}")["total"]
    assert isinstance(found, str)
    return found


def dry(operator: Operator, path: str, body: object) -> dict[str, object]:
    """Ask what a change would do; without an idempotency key."""
    answer = operator.api.request(
        "POST", f"/api/v1/{path}?dry_run=true", token=operator.token,
        headers={"Content-Type": "application/json"}, content=json.dumps(body).encode(),
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    document = answer.json()
    assert isinstance(document, dict)
    return document


def test_a_dry_run_tells_what_the_rule_then_moves_and_saves_nothing(rated: Operator) -> None:
    told = dry(rated, "tenants/rules", RULE)
    assert rated.get("tenants/rules")["rows"] == []
    assert told["saved"] is False
    changes = told["changes"]
    assert isinstance(changes, list)
    assert [(one["tenant"], one["stands"]["shown"], one["would"]["shown"]) for one in changes] == [
        ("acme/team", "4.50", "0.00"),
        ("acme/vision", "0.00", "4.50"),
    ]
    passed = told["passed_on"]
    assert isinstance(passed, list)
    assert [(one["from"], one["to"], one["card_hours"]) for one in passed] == [
        ("acme/team", "acme/vision", "1.500000")
    ]
    saved = rated.post("tenants/rules", RULE)
    assert saved.status_code == 201
    assert (saved.json()["saved"], saved.json()["cards"]) == (True, 1)
    rated.post("rate")
    assert (total(rated, "acme/team"), total(rated, "acme/vision")) == ("0.00", "4.50")


def test_a_rule_ends_and_is_withdrawn_over_http(rated: Operator) -> None:
    rule = rated.post("tenants/rules", RULE).json()["rule"]
    rated.post("rate")
    ended = rated.post("tenants/rules/10/end", {"at": "2026-10-05T11:00:00Z"})
    assert ended.status_code == 200, ended.text
    rated.post("rate")
    assert total(rated, "acme/vision") == "3.00"
    gone = {"reason": "never was"}
    assert rated.post(f"tenants/rules/{rule}/withdraw", gone).status_code == 404, "it was superseded"
    assert rated.post(f"tenants/rules/{ended.json()['rule']}/withdraw", gone).status_code == 200
    rated.post("rate")
    assert total(rated, "acme/vision") == "0.00"


def test_a_move_over_http_is_foretold_made_and_taken_back(rated: Operator) -> None:
    body = {"tenant": "acme/team", "below": "acme/vision", "from": "2026-10-05T10:00:00Z"}
    told = dry(rated, "tenants/moves", body)
    changes = told["changes"]
    assert isinstance(changes, list)
    assert [one["difference"]["amount"] for one in changes] == ["-3", "3"]
    made = rated.post("tenants/moves", body)
    assert (made.status_code, made.json()["now"]) == (201, "acme/vision/team")
    rated.post("rate")
    assert total(rated, "acme/vision") == "3.00"
    path = f"tenants/moves/{made.json()['move']}/withdraw"
    assert rated.post(path, {"reason": "no"}).status_code == 200
    rated.post("rate")
    assert total(rated, "acme/vision") == "0.00"


def test_changes_need_a_key_and_an_operator(rated: Operator, api: Api) -> None:
    tenant = api.token("tenant", tenant_path="acme")
    for path in (
        "tenants",
        "tenants/rules",
        "tenants/moves",
        "tenants/rules/1/end",
        "tenants/moves/1/withdraw",
    ):
        headers = {"Content-Type": "application/json"}
        kept = api.request("POST", f"/api/v1/{path}", token=rated.token, headers=headers, content=b"{}")
        assert kept.status_code == 422
        assert "Idempotency-Key" in kept.text
        # A route that cannot be tried out says so, whoever asks.
        for query, refused in (("", {403}), ("?dry_run=true", {403, 422})):
            answer = api.request(
                "POST", f"/api/v1/{path}{query}", token=tenant, headers=headers, content=b"{}"
            )
            assert answer.status_code in refused
    for path in ("tenants/rules", "tenants/moves"):
        assert api.request("GET", f"/api/v1/{path}", token=tenant).status_code == 403


def test_a_tenants_token_sees_its_own_branch_with_what_is_unmapped(rated: Operator, api: Api) -> None:
    tenant = api.token("tenant", tenant_path="acme/team")
    rows = api.request("GET", "/api/v1/tenants", token=tenant).json()["rows"]
    assert [(row["path"], row["unmapped"]) for row in rows] == [("acme/team", True)]
    assert 'tenant key "team" matches no rule' in rows[0]["why"]


@pytest.mark.parametrize(
    "body",
    [
        {**RULE, "priority": -1},
        {**RULE, "priority": 2**40},
        {**RULE, "tenant_key": "x\u0000"},
        {**RULE, "tenant_key": "x" * 254},
        {**RULE, "from": "yesterday"},
        {**RULE, "to": "2026-09-01T00:00:00Z"},
        {**RULE, "labels": {"": "x"}},
        {**RULE, "other": 1},
        {"priority": 1, "tenant": "acme/vision", "from": RULE["from"]},
        {**RULE, "tenant": "platform/idle"},
    ],
)
def test_a_rule_that_cannot_be_is_422_or_404(rated: Operator, body: dict[str, object]) -> None:
    assert rated.post("tenants/rules", body).status_code in {404, 422}


def test_a_move_to_nowhere_new_says_what_to_name(rated: Operator) -> None:
    refused = rated.post("tenants/moves", {"tenant": "acme/red", "from": "2026-10-02T00:00:00Z"})
    assert refused.status_code == 422
    assert "`below`" in refused.json()["detail"]
