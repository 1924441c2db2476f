"""`POST /api/v1/facts`: a batch comes in, is judged fact by fact, stored in one transaction, answered.

The status tells the exporter what to do with the batch (`reference/ledger.md §5`): 200 forget it; 401, 403,
409, 412 and 5xx keep it; 413 halve it; 415 and 422 set it aside.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.api.batches import gunzip, read_body, require_few_lines, require_gzip_ndjson
from accounting.api.dependencies import InService, Reporter, Service
from accounting.api.problems import Problem
from accounting.facts.ingest import Taken, arrange, merge, stage
from accounting.facts.marks import TooManyDaysError
from accounting.facts.reading import Scope, read_lines
from accounting.facts.source import Source, note_source, parse_source
from accounting.store.models import Cluster
from contract.facts import (
    CONTENT_TYPE,
    FACTS_PATH,
    HEADER_KUBE_SYSTEM_UID,
    HEADER_SENT_AT,
    HEADER_SOURCE,
    SCHEMA,
)

MAX_CLOCK_OFFSET_MS = 5 * 60_000

router = APIRouter(tags=["facts"])


class RejectedFact(BaseModel):
    """A line that was not taken, and why; it is in quarantine and need not be sent again."""

    line: int
    reason: str
    detail: str


class BatchResult(BaseModel):
    """What became of the facts of a batch that could be read."""

    stored: int
    duplicate: int
    rejected: list[RejectedFact]


@router.post(
    FACTS_PATH,
    summary="Take in a batch of facts (gzip NDJSON)",
    openapi_extra={
        "requestBody": {"required": True, "content": {CONTENT_TYPE: {"schema": {"type": "string"}}}}
    },
)
async def post_facts(
    *,
    request: Request,
    service: InService,
    reporter: Reporter,
    sent_at_ms: Annotated[int, Header(alias=HEADER_SENT_AT)],
    kube_system_uid: Annotated[str, Header(alias=HEADER_KUBE_SYSTEM_UID, min_length=1, max_length=253)],
    source_header: Annotated[str, Header(alias=HEADER_SOURCE, max_length=2_000)],
) -> BatchResult:
    """Store the good facts of a batch, put the others in quarantine, and say what became of each."""
    headers = request.headers
    require_gzip_ndjson(headers.get("content-type"), headers.get("content-encoding"))
    source = parse_source(source_header)
    if source.schema > SCHEMA:
        # Line by line they would end in quarantine, and their exporter would forget them.
        raise Problem(
            409,
            f"the exporter ({source.version}) writes facts of schema {source.schema}, this service reads up "
            f"to {SCHEMA}; upgrade accounting, the facts wait in the exporter's outbox until then",
        )
    if reporter.node_uid not in {None, source.node_uid}:
        raise Problem(
            403, f"header {HEADER_SOURCE} names another sender than the token's node; use that node's token"
        )
    assert reporter.cluster is not None
    with service.intake.place(reporter.cluster):
        body = await read_body(request.stream(), headers.get("content-length"))
        taken = await run_in_threadpool(
            _take,
            service,
            reporter,
            body,
            source=source,
            sent_at_ms=sent_at_ms,
            kube_system_uid=kube_system_uid,
        )
    rejected = [RejectedFact(**asdict(one)) for one in taken.rejected]
    return BatchResult(stored=taken.stored, duplicate=taken.duplicate, rejected=rejected)


def _take(
    service: Service, reporter: Viewer, body: bytes, *, source: Source, sent_at_ms: int, kube_system_uid: str
) -> Taken:
    """Everything that takes time, in one thread and one transaction."""
    now_ms = service.clock()
    offset_ms = sent_at_ms - now_ms
    if abs(offset_ms) > MAX_CLOCK_OFFSET_MS:
        raise Problem(
            412, f"the exporter's clock is off by {offset_ms} ms; at most 300000; set it, then go on"
        )
    text = gunzip(body)
    require_few_lines(text)
    assert reporter.cluster is not None
    lines = read_lines(text, Scope(reporter.cluster, reporter.node_uid), now_ms=now_ms)
    arranged = arrange(lines)
    with service.database.writing(
        cluster=reporter.cluster, before=lambda session: stage(session, arranged)
    ) as session:
        _bind(session, reporter.cluster, kube_system_uid)
        try:
            taken = merge(session, lines, arranged, cluster=reporter.cluster, now_ms=now_ms)
        except TooManyDaysError as error:
            raise Problem(413, str(error)) from None
        note_source(
            session,
            reporter.cluster,
            source,
            now_ms=now_ms,
            clock_offset_ms=offset_ms,
            sent=len(lines),
            stored=taken.stored,
        )
    service.metrics.count_facts(stored=taken.stored, duplicate=taken.duplicate, rejected=len(taken.rejected))
    return taken


def _bind(session: Session, code: str, kube_system_uid: str) -> None:
    """The first request binds a cluster to its kube-system UID; another UID is another cluster."""
    cluster = session.get_one(Cluster, code)
    if cluster.kube_system_uid is None:
        cluster.kube_system_uid = kube_system_uid
    elif cluster.kube_system_uid != kube_system_uid:
        raise Problem(
            409,
            f'cluster "{code}" is bound to another kube-system UID; use a token of the cluster that sends',
        )
