"""Is it alive, is it ready, and how does it do: for kubelets and Prometheus."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Response

from accounting.api.dependencies import WholeService
from accounting.api.problems import Problem
from accounting.store.errors import StoreError
from accounting.store.migrate import require_current

router = APIRouter(include_in_schema=False)


@router.get("/healthz")
def healthz() -> Response:
    """200 as long as the process answers."""
    return Response("ok\n", media_type="text/plain")


@router.get("/readyz")
def readyz(service: WholeService) -> Response:
    """200 when the database answers and has the schema of this program, else 503."""
    try:
        require_current(service.database)
    except StoreError:
        raise Problem(503, "the database cannot be used, or has another schema") from None
    return Response("ready\n", media_type="text/plain")


@router.get("/metrics")
def metrics(service: WholeService, accept: Annotated[str | None, Header()] = None) -> Response:
    """The service's own metrics, as text or OpenMetrics."""
    page, content_type = service.metrics.page(accept)
    return Response(page, headers={"Content-Type": content_type})
