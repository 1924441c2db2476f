"""What a reporter is told about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import func, select

from accounting.store.models import Cluster, ExporterSource
from contract.facts import REPORTER_PATH

if TYPE_CHECKING:
    from tests.accounting.api.conftest import Api


def test_a_reporter_is_told_its_cluster_its_node_and_the_services_clock(api: Api) -> None:
    token = api.token("reporter", cluster="a", node_uid="uid-1")
    assert api.request("GET", REPORTER_PATH, token=token).json() == {
        "cluster": "a",
        "node_uid": "uid-1",
        "kube_system_uid": None,
        "now_ms": 1_790_812_800_000,
        "fact_schema": 1,
    }


def test_the_binding_of_a_cluster_is_shown_and_asking_makes_none(api: Api) -> None:
    token = api.token("reporter", cluster="a")
    assert api.request("GET", REPORTER_PATH, token=token).json()["node_uid"] is None
    with api.database.reading() as session:
        assert session.get_one(Cluster, "a").kube_system_uid is None
        assert session.scalar(select(func.count()).select_from(ExporterSource)) == 0
    assert api.post_facts(b"", token=token).status_code == 200
    assert api.request("GET", REPORTER_PATH, token=token).json()["kube_system_uid"] == "kube-system-of-a"


@pytest.mark.parametrize(("role", "status"), [(None, 401), ("operator", 403)])
def test_nobody_else_is_told_anything(api: Api, role: str | None, status: int) -> None:
    token = None if role is None else api.token(role)
    assert api.request("GET", REPORTER_PATH, token=token).status_code == status
