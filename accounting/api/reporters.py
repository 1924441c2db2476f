"""`GET /api/v1/reporter`: who an exporter is to this service, so that it can find out without sending facts.

Invariant: asking changes nothing: no source is noted, no cluster is bound, nothing is stored.
"""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from accounting.api.dependencies import InService, Reporter
from accounting.store.models import Cluster
from contract.facts import REPORTER_PATH, SCHEMA

router = APIRouter(tags=["facts"])


class ReporterIdentity(BaseModel):
    """What a reporter's token stands for, and the service's clock.

    Attributes:
        cluster: Whose facts it may send.
        node_uid: Its only node; null = any node of the cluster.
        kube_system_uid: Which cluster that code is bound to; null = none has sent facts yet.
        now_ms: Unix milliseconds.
        fact_schema: The newest version of facts that the service reads.
    """

    cluster: str
    node_uid: str | None
    kube_system_uid: str | None
    now_ms: int
    fact_schema: int = SCHEMA


@router.get(REPORTER_PATH, summary="Who the asking reporter is")
def get_reporter(service: InService, reporter: Reporter) -> ReporterIdentity:
    """Say for which cluster and node a token reports."""
    assert reporter.cluster is not None
    with service.database.reading() as session:
        uid = session.get_one(Cluster, reporter.cluster).kube_system_uid
    return ReporterIdentity(
        cluster=reporter.cluster, node_uid=reporter.node_uid, kube_system_uid=uid, now_ms=service.clock()
    )
