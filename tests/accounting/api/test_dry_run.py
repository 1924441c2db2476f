"""A price, policy or discount asked about first: what it would change, to the cent, and nothing kept.

Half a T4 for three hours at 3.00 EUR: acme/team pays 4.50.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.accounting.api.test_changing import Operator, operator

__all__ = ["operator"]

FROM = "2026-10-01T00:00:00Z"


def _asked(operator: Operator, path: str, body: object) -> dict[str, Any]:
    answer = operator.api.request(
        "POST", f"/api/v1/{path}?dry_run=true", token=operator.token,
        headers={"Content-Type": "application/json"}, content=json.dumps(body).encode(),
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def _total(operator: Operator) -> object:
    return operator.get("statements/2026-10?tenant=acme/team")["total"]


CASES = {
    # 1.5 card-hours at 4.00.
    "prices": (
        {"unit_price": "4.00", "currency": "EUR", "from": FROM, "reason": "a new contract"},
        "6.00",
    ),
    # A tenth less.
    "discounts": ({"tenant": "acme/team", "percent": "10", "from": FROM}, "4.05"),
    # The whole card for three hours.
    "policies": ({"kind": "share", "value": "whole_card", "from": FROM}, "9.00"),
}


@pytest.mark.parametrize("path", sorted(CASES))
def test_what_is_foretold_is_what_a_rating_then_gives_and_asking_keeps_nothing(
    operator: Operator, path: str
) -> None:
    body, then = CASES[path]
    if path == "prices":
        body = body | _what_is_priced(operator)
    versions = operator.get(path)["rows"]
    told = _asked(operator, path, body)
    of_team = [one for one in told["changes"] if one["tenant"] == "acme/team"]
    assert [(one["stands"]["shown"], one["would"]["shown"]) for one in of_team] == [("4.50", then)]
    assert operator.get(path)["rows"] == versions
    operator.post("rate")
    assert _total(operator) == "4.50"
    assert operator.post(path, body).status_code == 201
    operator.post("rate")
    assert _total(operator) == then


def _what_is_priced(operator: Operator) -> dict[str, Any]:
    """Model and beginning of the price that holds: a new one for the same supersedes it."""
    rows = operator.get("prices")["rows"]
    assert isinstance(rows, list)
    [price] = [row for row in rows if row["sku"] == "gpu-slice" and row["superseded_at"] is None]
    return {"model": price["model"], "from": price["from"]}


def test_what_cannot_be_saved_cannot_be_asked_about_either(operator: Operator) -> None:
    body = {"unit_price": "4.00", "currency": "EUR", **_what_is_priced(operator)}
    answer = operator.api.request(
        "POST", "/api/v1/prices?dry_run=true", token=operator.token,
        headers={"Content-Type": "application/json"}, content=json.dumps(body).encode(),
    )  # fmt: skip
    assert answer.status_code == 422
    assert "reason" in answer.json()["detail"]
