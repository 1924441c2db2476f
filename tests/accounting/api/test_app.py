from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from accounting.store.migrate import alembic_config
from contract.catalogue import families_of
from contract.facts import FACTS_PATH
from tests.accounting.postgresql import as_owner

if TYPE_CHECKING:
    from tests.accounting.api.conftest import Api


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/api/v1/nowhere", 404),
        ("GET", "/docs", 404),
        ("PUT", FACTS_PATH, 405),
        ("GET", FACTS_PATH, 405),
        ("POST", FACTS_PATH, 401),
    ],
)
def test_every_error_is_a_problem(api: Api, method: str, path: str, status: int) -> None:
    response = api.request(method, path)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["status"] == status


def test_no_route_of_the_api_answers_without_a_token(api: Api) -> None:
    described = api.request("GET", "/api/v1/openapi.json").json()
    asked = [
        (method.upper(), path.replace("{", "").replace("}", ""))
        for path, methods in described["paths"].items()
        for method in methods
    ]
    assert (("POST", FACTS_PATH)) in asked
    for method, path in asked:
        response = api.request(method, path)
        assert (path, response.status_code) == (path, 401)
        assert response.headers["content-type"] == "application/problem+json"


def test_openapi_describes_the_facts_route(api: Api) -> None:
    described = api.request("GET", "/api/v1/openapi.json").json()
    post = described["paths"][FACTS_PATH]["post"]
    assert "application/x-ndjson" in post["requestBody"]["content"]
    assert {parameter["name"] for parameter in post["parameters"]} == {
        "Slicemeter-Sent-At",
        "Slicemeter-Kube-System-Uid",
        "Slicemeter-Source",
    }


def test_it_is_alive_and_ready(api: Api) -> None:
    assert api.request("GET", "/healthz").status_code == 200
    assert api.request("GET", "/readyz").status_code == 200


def test_it_is_not_ready_on_a_database_of_another_schema(api: Api) -> None:
    from alembic import command  # noqa: PLC0415 - only here

    with as_owner(api.database) as owned:
        command.downgrade(alembic_config(owned), "base")
    assert api.request("GET", "/healthz").status_code == 200
    response = api.request("GET", "/readyz")
    assert response.status_code == 503
    assert str(api.database.url) not in response.text


def test_its_own_metrics_are_in_the_catalogue_and_count_from_0(api: Api) -> None:
    page = api.request("GET", "/metrics", token=api.token("operator")).text
    known = {family.full_name for family in families_of("accounting")}
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    assert {sample.name for sample in samples} <= known
    counts = {s.labels["result"]: s.value for s in samples if s.name == "slicemeter_facts_total"}
    assert counts == {"stored": 0.0, "duplicate": 0.0, "rejected": 0.0}


def test_metrics_tell_what_came_in_and_who_was_heard_when(api: Api) -> None:
    api.post_facts(b"{\n{", token=api.token("reporter", cluster="a"))
    page = api.request("GET", "/metrics", token=api.token("operator")).text
    assert 'slicemeter_facts_total{result="rejected"} 2.0' in page
    shown = {family.name for family in text_string_to_metric_families(page)}
    of_ours = {family.full_name for family in families_of("accounting") if not family.is_planned}
    assert shown == {name.removesuffix("_total") for name in of_ours}
    seen = 'slicemeter_source_last_seen_timestamp_seconds{cluster="a",node="node-1"} 1.7908128e+09'
    assert seen in page


@pytest.mark.promtool
def test_promtool_finds_nothing_on_the_metrics(
    api: Api, tmp_path: Path, need_tool: Callable[[str, str], str]
) -> None:
    promtool = need_tool("promtool", "prometheus")
    api.post_facts(b"{", token=api.token("reporter", cluster="a"))
    page_of = api.request("GET", "/metrics", token=api.token("operator"))
    (tmp_path / "page").write_bytes(page_of.content)
    with (tmp_path / "page").open("rb") as page:
        done = subprocess.run([promtool, "check", "metrics"], stdin=page, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
