"""How a request proves who asks, what happens to who cannot, and what every answer tells a browser."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from accounting.access.attempts import MAX_FAILURES, PER_MS, FailedSignIns
from accounting.access.service_accounts import Trust
from accounting.access.tokens import new_token
from accounting.access.trust import trust_cluster
from accounting.access.viewer import COMMAND_LINE
from accounting.api.app import create_app
from accounting.api.headers import SECURITY_HEADERS
from accounting.settings import Settings
from contract.facts import REPORTER_PATH, AllocationFact, canonical_bytes
from tests.accounting.access.projected import AUDIENCE, CLUSTER, ISSUER, NODE, Issuer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.accounting.api.conftest import Api

TENANTS = "/api/v1/tenants"


@pytest.fixture
def issuer(api: Api) -> Issuer:
    """Cluster a, whose keys are registered."""
    made = Issuer()
    with api.database.writing() as session:
        trust = Trust("a", ISSUER, AUDIENCE, made.jwks(), NODE, CLUSTER)
        trust_cluster(session, trust, by=COMMAND_LINE, now_ms=0)
    return made


def test_a_projected_token_is_its_node_of_its_cluster(api: Api, issuer: Issuer) -> None:
    token = issuer.token(issuer.claims(now_ms=api.now_ms, node_uid="uid-1"))
    answer = api.request("GET", REPORTER_PATH, token=token).json()
    assert (answer["cluster"], answer["node_uid"]) == ("a", "uid-1")
    assert api.request("GET", TENANTS, token=token).status_code == 403


def test_a_projected_token_reports_for_its_own_node_alone(
    api: Api, issuer: Issuer, allocation: Callable[..., AllocationFact]
) -> None:
    token = issuer.token(issuer.claims(now_ms=api.now_ms, node_uid="uid-1"))
    facts = [
        allocation(
            cluster=cluster, node_uid=node, witness="node", pod_uid=f"{cluster}-{node}",
            bound_at_ms=api.now_ms - 1000, confirmed_at_ms=api.now_ms - 1000,
        )
        for cluster, node in (("a", "uid-1"), ("a", "uid-2"), ("b", "uid-1"))
    ]  # fmt: skip
    answer = api.post_facts(b"\n".join(map(canonical_bytes, facts)), token=token)
    assert answer.status_code == 200, answer.text
    assert answer.json()["stored"] == 1
    rejected = [(one["line"], one["reason"]) for one in answer.json()["rejected"]]
    assert rejected == [(2, "other_node"), (3, "other_cluster")]
    header = {"Slicemeter-Source": "role=node;node_uid=uid-2;node=node-2;epoch=e1;version=0.1.0"}
    assert api.post_facts(b"", token=token, headers=header).status_code == 403


def test_the_cluster_exporters_projected_token_reports_for_every_node(api: Api, issuer: Issuer) -> None:
    token = issuer.token(issuer.claims(CLUSTER, now_ms=api.now_ms))
    header = {"Slicemeter-Source": "role=cluster;epoch=e1;version=0.1.0"}
    assert api.post_facts(b"", token=token, headers=header).json() == {
        "stored": 0, "duplicate": 0, "rejected": [],
    }  # fmt: skip


def test_a_projected_token_ends_with_the_services_clock(api: Api, issuer: Issuer) -> None:
    token = issuer.token(issuer.claims(now_ms=api.now_ms))
    assert api.request("GET", REPORTER_PATH, token=token).status_code == 200
    api.now_ms += 3_600_000
    assert api.request("GET", REPORTER_PATH, token=token).status_code == 401


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/metrics", "/nowhere", TENANTS, "/api/v1/openapi.json", "/api/v1/prices"]
)
@pytest.mark.parametrize("role", [None, "operator"])
def test_every_answer_has_the_security_headers(api: Api, path: str, role: str | None) -> None:
    answer = api.request("GET", path, token=None if role is None else api.token(role))
    assert {name: answer.headers.get(name) for name in SECURITY_HEADERS} == SECURITY_HEADERS
    assert "Strict-Transport-Security" not in answer.headers
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy


def test_an_answer_to_a_failure_nobody_foresaw_has_them_too(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("accounting.api.books.prices_document", fail)
    answer = api.request("GET", "/api/v1/prices", token=api.token("operator"))
    assert answer.status_code == 500
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_failed_sign_ins_are_held_up_and_good_tokens_are_not(api: Api) -> None:
    good, unused = api.token("operator"), api.token("operator")
    assert api.request("GET", TENANTS, token=good).status_code == 200
    # 20 in a minute, by hand: whatever they are.
    statuses = [api.request("GET", TENANTS, token=new_token()).status_code for _ in range(20)]
    assert statuses == [401] * 20
    answer = api.request("GET", TENANTS, token=new_token())
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "60")
    assert api.request("GET", TENANTS, token=good).status_code == 200
    assert api.request("GET", TENANTS, token=unused).status_code == 429
    assert api.request("GET", TENANTS).status_code == 401
    api.now_ms += 60_000
    assert api.request("GET", TENANTS, token=unused).status_code == 200
    assert api.request("GET", TENANTS, token=new_token()).status_code == 401


def test_failures_are_counted_by_address_and_forgotten_one_by_one() -> None:
    failures = FailedSignIns()
    for number in range(MAX_FAILURES):
        assert failures.wait_ms("10.0.0.1", "t", now_ms=number) == 0
        failures.failed("10.0.0.1", "t", now_ms=number)
    assert failures.wait_ms("10.0.0.1", "t", now_ms=PER_MS - 1) == 1
    assert failures.wait_ms("10.0.0.2", "t", now_ms=PER_MS - 1) == 0
    assert failures.wait_ms("10.0.0.1", "t", now_ms=PER_MS) == 0
    failures.failed("10.0.0.1", "t", now_ms=PER_MS)
    assert failures.wait_ms("10.0.0.1", "t", now_ms=PER_MS) == 1


def test_a_token_that_was_revoked_is_held_up_as_any_other() -> None:
    failures = FailedSignIns()
    failures.succeeded("t")
    for _ in range(MAX_FAILURES):
        failures.failed("10.0.0.1", "x", now_ms=0)
    assert failures.wait_ms("10.0.0.1", "t", now_ms=0) == 0
    failures.failed("10.0.0.1", "t", now_ms=0)
    assert failures.wait_ms("10.0.0.1", "t", now_ms=0) == PER_MS


def test_the_clock_may_be_set_back_without_locking_anybody_out() -> None:
    failures = FailedSignIns()
    for _ in range(MAX_FAILURES):
        failures.failed("10.0.0.1", "x", now_ms=10 * PER_MS)
    assert failures.wait_ms("10.0.0.1", "x", now_ms=0) == 0


def test_metrics_are_for_operators_since_they_tell_what_everybody_pays(api: Api, issuer: Issuer) -> None:
    assert api.request("GET", "/metrics").status_code == 401
    for role, scope, status in (
        ("operator", {}, 200), ("admin", {}, 200), ("reporter", {"cluster": "a"}, 403),
        ("tenant", {"tenant_path": "acme"}, 403),
    ):  # fmt: skip
        assert api.request("GET", "/metrics", token=api.token(role, **scope)).status_code == status
    exporter = issuer.token(issuer.claims(CLUSTER, now_ms=api.now_ms))
    assert api.request("GET", "/metrics", token=exporter).status_code == 403


def serving(api: Api, settings: Settings) -> Api:
    made = replace(api)
    made.app = create_app(settings, database=api.database, clock=lambda: made.now_ms)
    return made


def test_metrics_open_to_the_token_of_a_file_that_may_be_replaced(
    api: Api, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "token"
    served = serving(api, Settings(metrics_token_file=path))
    with caplog.at_level(logging.ERROR):
        assert served.request("GET", "/metrics", token="scraper-1").status_code == 401
    assert f"cannot read the token of /metrics in {path}" in caplog.text
    path.write_text("scraper-1\n")
    assert served.request("GET", "/metrics", token="scraper-1").status_code == 200
    assert served.request("GET", "/metrics").status_code == 401
    assert served.request("GET", TENANTS, token="scraper-1").status_code == 401
    path.write_text("scraper-2\n")
    assert served.request("GET", "/metrics", token="scraper-1").status_code == 401
    assert served.request("GET", "/metrics", token="scraper-2").status_code == 200
    path.write_text(" \n")
    assert served.request("GET", "/metrics", token="").status_code == 401


def test_metrics_are_open_to_all_where_the_operator_says_so(api: Api) -> None:
    assert serving(api, Settings(are_metrics_open=True)).request("GET", "/metrics").status_code == 200
