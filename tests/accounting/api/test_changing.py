"""What operators change over HTTP: closing, correcting, adjusting, voiding, prices, policies, discounts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from sqlalchemy import func, select

from accounting.access.viewer import COMMAND_LINE
from accounting.facts.ingest import ingest
from accounting.facts.reading import Scope, read_lines
from accounting.store.models import KeptAnswer, LedgerLine, PriceVersion
from accounting.tenants.registry import set_issuer
from contract.facts import AllocationFact, Fact, PresenceFact, canonical_bytes

if TYPE_CHECKING:
    from tests.accounting.api.conftest import Api

AFTER_GRACE = 1_793_836_800_000
"""2026-11-05T00:00Z."""

PRICE: dict[str, object] = {
    "model": "Tesla T4",
    "currency": "EUR",
    "unit_price": "3.00",
    "from": "2026-01-01T00:00:00Z",
}

POSTS: list[tuple[str, dict[str, object]]] = [
    ("periods/2026-10/close", {"account": "acme"}),
    ("periods/2026-10/correct", {"account": "acme"}),
    ("adjustments", {"tenant": "acme/team", "amount": "-1.50", "reason": "an hour lost"}),
    ("statements/SM-000001/void", {"reason": "the wrong address"}),
    ("prices", PRICE),
    ("policies", {"kind": "share", "value": "memory", "from": "2026-01-01T00:00:00Z"}),
    ("discounts", {"tenant": "acme", "percent": "5", "from": "2026-01-01T00:00:00Z"}),
]


class Operator:
    """Posts as an operator does, each time under a new key unless told otherwise."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.token = api.token("operator")
        self._keys = 0

    def post(self, path: str, body: object = None, *, key: str | None = None) -> httpx.Response:
        self._keys += 1
        headers = {"Content-Type": "application/json", "Idempotency-Key": key or f"key-{self._keys}"}
        content = None if body is None else json.dumps(body).encode()
        return self.api.request("POST", f"/api/v1/{path}", token=self.token, headers=headers, content=content)

    def get(self, path: str) -> Any:
        answer = self.api.request("GET", f"/api/v1/{path}", token=self.token)
        assert answer.status_code == 200, answer.text
        return answer.json()


def send(api: Api, *facts: Fact, now_ms: int) -> None:
    lines = read_lines(b"\n".join(map(canonical_bytes, facts)), Scope("a"), now_ms=now_ms)
    with api.database.writing() as session:
        assert not ingest(session, lines, cluster="a", now_ms=now_ms).rejected


@pytest.fixture
def operator(
    api: Api,
    at: Callable[..., int],
    allocation: Callable[..., AllocationFact],
    presence: Callable[..., PresenceFact],
) -> Operator:
    """Half a T4 for three hours of 5 October, priced at 3.00 EUR over HTTP and rated over HTTP."""
    made = Operator(api)
    start, end = at("09:00", 5), at("12:00", 5)
    held = allocation(
        cluster="a", core_percent=50, bound_at_ms=start, confirmed_at_ms=end, ended_at_ms=end,
        end_kind="observed",
    )  # fmt: skip
    send(api, presence(start, end, cluster="a"), held, now_ms=end)
    api.now_ms = end
    assert made.post("prices", PRICE).status_code == 201
    rated = made.post("rate")
    # The card is present for three hours, on one UTC day: a line of the slice and one of idle capacity.
    assert (rated.status_code, rated.json()["lines"], rated.json()["unknown_devices"]) == (200, 2, [])
    api.now_ms = AFTER_GRACE
    return made


def test_a_month_is_closed_corrected_voided_and_adjusted_over_http(
    operator: Operator, at: Callable[..., int], allocation: Callable[..., AllocationFact]
) -> None:
    closed = operator.post("periods/2026-10/close", {"account": "acme"}).json()
    # 0.5 of a card × 3 h × 3.00
    assert (closed["state"], closed["statement"], closed["total"]) == ("closed", "SM-000001", "4.50")

    # A second slice of a fifth of the card comes to light, 09:00 to 12:00: 0.2 × 3 h × 3.00 = 1.80.
    start, end = at("09:00", 5), at("12:00", 5)
    late = allocation(
        cluster="a", pod_uid="pod-2", mem_mib=0, core_percent=20, bound_at_ms=start, confirmed_at_ms=end,
        ended_at_ms=end, end_kind="observed",
    )  # fmt: skip
    send(operator.api, late, now_ms=AFTER_GRACE)
    operator.post("rate")
    assert operator.get("verify/2026-10")["pending"]
    preview = operator.get("periods/2026-10/correction?account=acme")
    assert (preview["amount"], preview["written"]) == ("1.8", False)
    assert operator.get("periods/2026-10/correction?account=acme") == preview
    posted = operator.post("periods/2026-10/correct", {"account": "acme", "reason": "a late outbox"}).json()
    assert (posted["amount"], posted["into"], posted["written"]) == ("1.8", "2026-11", True)
    assert operator.post("periods/2026-10/correct", {"account": "acme"}).json()["lines"] == []

    adjusted = operator.post(
        "adjustments", {"tenant": "acme/team", "amount": "-0.80", "reason": "an hour lost"}
    )
    assert (adjusted.status_code, adjusted.json()["period"], adjusted.json()["amount"]) == (
        201,
        "2026-11",
        "-0.8",
    )
    november = operator.get("statements/2026-11?tenant=acme/team")
    assert november["total"] == "1.00"  # 1.80 − 0.80

    voided = operator.post("statements/SM-000001/void", {"reason": "the wrong address", "reissue": True})
    assert voided.json()["credit_note"]["total"] == "-4.50"
    assert voided.json()["reissued"]["number"] == "SM-000003"
    assert [row["action"] for row in operator.get("audit?limit=4")["rows"]] == [
        "statement void",
        "adjust",
        "period correct",
        "period close",
    ]


def test_a_close_that_is_blocked_answers_with_every_blocker_and_may_be_asked_again(
    operator: Operator,
) -> None:
    operator.api.now_ms = AFTER_GRACE - 2 * 86_400_000
    refused = operator.post("periods/2026-10/close", {"account": "acme"}, key="close acme".replace(" ", "-"))
    assert (refused.status_code, refused.headers["content-type"]) == (409, "application/problem+json")
    assert [one["check"] for one in refused.json()["blockers"]] == ["close_grace"]
    assert "close_grace" in refused.json()["detail"]
    overridden = operator.post(
        "periods/2026-10/close", {"account": "acme", "override_reason": "the year ends"}
    )
    assert overridden.json()["state"] == "closed"
    again = operator.post("periods/2026-10/close", {"account": "acme"}, key="close-acme")
    assert (again.status_code, again.json()["was_closed"]) == (200, True)


@pytest.mark.parametrize(("path", "body"), POSTS)
def test_a_retry_with_the_same_key_is_answered_alike_and_changes_nothing(
    operator: Operator, path: str, body: dict[str, object]
) -> None:
    def state() -> list[int | None]:
        with operator.api.database.reading() as session:
            counted = (LedgerLine, PriceVersion, KeptAnswer)
            counts = [session.scalar(select(func.count()).select_from(table)) for table in counted]
            return [*counts, len(operator.get("audit?limit=1000")["rows"])]

    if path != "periods/2026-10/close":
        operator.post("periods/2026-10/close", {"account": "acme"})
    asked = body | ({"reason": "a slip of the pen"} if path == "prices" else {})
    first = operator.post(path, asked, key="one")
    assert first.is_success, first.text
    before = state()
    second = operator.post(path, asked, key="one")
    assert (second.status_code, second.content) == (first.status_code, first.content)
    assert second.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    assert state() == before
    changed = {"account": "platform"} if path.endswith("close") else {"reason": "something else"}
    other = operator.post(path, asked | changed, key="one")
    assert (other.status_code, "belongs to another request" in other.text) == (422, True)


def test_a_key_is_its_askers_own(operator: Operator) -> None:
    body = {"tenant": "acme/team", "amount": "1.00", "reason": "twice is meant"}
    operator.post("adjustments", body, key="one")
    somebody = Operator(operator.api)
    again = somebody.post("adjustments", body, key="one")
    assert (again.status_code, "Idempotent-Replayed" in again.headers) == (201, False)
    # Two adjustments of 1.00 in November.
    assert operator.get("statements/2026-11?tenant=acme/team")["total"] == "2.00"


def test_a_refused_request_is_not_kept(operator: Operator) -> None:
    body = {"tenant": "acme/nobody", "amount": "1.00", "reason": "a gift"}
    assert operator.post("adjustments", body, key="one").status_code == 404
    right = body | {"tenant": "acme/team"}
    assert operator.post("adjustments", right, key="one").status_code == 201


def test_answers_are_kept_for_thirty_days(operator: Operator) -> None:
    body = {"tenant": "acme/team", "amount": "1.00", "reason": "a gift"}
    operator.post("adjustments", body, key="old")
    operator.api.now_ms += 30 * 86_400_000 + 1
    operator.post("adjustments", body, key="new")
    with operator.api.database.reading() as session:
        keys = session.scalars(select(KeptAnswer.idempotency_key)).all()
    assert "new" in keys
    assert "old" not in keys


@pytest.mark.parametrize(("path", "body"), [*POSTS, ("rate", {})])
def test_changes_are_for_operators(operator: Operator, path: str, body: dict[str, object]) -> None:
    headers = {"Content-Type": "application/json", "Idempotency-Key": "one"}
    content = json.dumps(body).encode()
    for token, status in (
        (None, 401),
        (operator.api.token("tenant", tenant_path="acme"), 403),
        (operator.api.token("reporter", cluster="a"), 403),
    ):
        answer = operator.api.request(
            "POST", f"/api/v1/{path}", token=token, headers=headers, content=content
        )
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


@pytest.mark.parametrize(("path", "body"), POSTS)
def test_a_change_without_a_key_is_refused(operator: Operator, path: str, body: dict[str, object]) -> None:
    answer = operator.api.request(
        "POST",
        f"/api/v1/{path}",
        token=operator.token,
        headers={"Content-Type": "application/json"},
        content=json.dumps(body).encode(),
    )
    assert answer.status_code == 422
    assert "Idempotency-Key" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "body", "status", "names"),
    [
        ("periods/2026-10/close", {"account": "nobody"}, 404, 'no account "nobody"'),
        ("periods/2025-10/close", {"account": "acme"}, 404, "no period 2025-10"),
        ("periods/October/close", {"account": "acme"}, 422, "October"),
        ("periods/2026-10/close", {"account": "acme", "min_coverage": "2"}, 422, "no ratio"),
        ("periods/2026-10/close", {"account": "acme", "override_reason": " "}, 422, "needs its reason"),
        ("periods/2026-10/close", {"account": "acme", "force": True}, 422, "force"),
        ("periods/2026-10/correct", {"account": "acme"}, 409, "only a closed period is corrected"),
        ("adjustments", {"tenant": "acme/team", "amount": "0", "reason": "x"}, 422, "is 0 or beyond"),
        ("adjustments", {"tenant": "acme/team", "amount": "1.001", "reason": "x"}, 422, "2 digits"),
        ("adjustments", {"tenant": "acme/team", "amount": 1.5, "reason": "x"}, 422, "amount"),
        ("adjustments", {"tenant": "acme/team", "amount": "1", "reason": "a\u0000b"}, 422, "printable"),
        ("adjustments", {"tenant": "acme/\u0000", "amount": "1", "reason": "x"}, 422, "tenant"),
        ("statements/SM-000009/void", {"reason": "x"}, 404, "no statement SM-000009"),
        ("statements/nine/void", {"reason": "x"}, 422, "SM-000001"),
        ("prices", PRICE | {"unit_price": "3.20"}, 422, "--reason"),
        ("prices", PRICE | {"unit_price": "1e99", "from": "2027-01-01T00:00:00Z"}, 422, "no number"),
        ("prices", PRICE | {"from": "yesterday"}, 422, "no instant"),
        ("prices", PRICE | {"from": "2025-12-01T00:00:00Z", "to": "2026-03-01T00:00:00Z"}, 409, "overlap"),
        ("policies", {"kind": "share", "value": "even", "from": "2026-01-01T00:00:00Z"}, 422, "unknown"),
        ("discounts", {"tenant": "acme", "percent": "101", "from": "2026-01-01T00:00:00Z"}, 422, "101"),
    ],
)
def test_what_cannot_be_is_a_problem_that_names_it(
    operator: Operator, path: str, body: dict[str, object], status: int, names: str
) -> None:
    answer = operator.post(path, body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert names in answer.json()["detail"]


def test_a_body_beyond_64_kib_is_413_whoever_sends_it(operator: Operator) -> None:
    for token in (None, operator.token):
        answer = operator.api.request(
            "POST",
            "/api/v1/adjustments",
            token=token,
            headers={"Content-Type": "application/json", "Idempotency-Key": "one"},
            content=b"[" * 65_537,
        )
        assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")


def test_statements_bear_the_numbers_of_their_accounts_issuer(operator: Operator) -> None:
    with operator.api.database.writing() as session:
        set_issuer(session, "acme", "ACME-DE", by=COMMAND_LINE, now_ms=AFTER_GRACE)
    assert operator.post("periods/2026-10/close", {"account": "acme"}).json()["statement"] == "ACME-DE-000001"
    assert operator.post("periods/2026-10/close", {"account": "platform"}).json()["statement"] == "SM-000001"
    voided = operator.post("statements/ACME-DE-000001/void", {"reason": "the wrong issuer"})
    assert voided.json()["credit_note"]["number"] == "ACME-DE-000002"


@pytest.mark.parametrize("path", ["statements/2026-10?tenant=a%00b", "statements/2026-10%00?tenant=a"])
def test_a_nul_in_an_address_is_refused_alike_on_both_databases(operator: Operator, path: str) -> None:
    answer = operator.api.request("GET", f"/api/v1/{path}", token=operator.token)
    assert (answer.status_code, answer.json()["detail"]) == (422, "a NUL character is part of no name here")


def test_every_change_is_described_with_its_key_but_those_that_change_nothing_twice(api: Api) -> None:
    described = api.request("GET", "/api/v1/openapi.json").json()["paths"]
    without_key = set()
    for path, methods in described.items():
        for method, operation in methods.items():
            asked = {one["name"]: one["required"] for one in operation.get("parameters", [])}
            # Who only asks what a change would do needs none.
            needs_key = asked.get("Idempotency-Key") or ("Idempotency-Key" in asked and "dry_run" in asked)
            if method != "get" and not needs_key:
                without_key.add(path)
    assert without_key == {"/api/v1/rate", "/api/v1/facts"}
