"""Is it alive, is it ready, and how does it do: for kubelets and Prometheus."""

from __future__ import annotations

import hmac
import logging
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from accounting.api.dependencies import Credentials, WholeService, viewer_of
from accounting.api.problems import Problem
from accounting.store.errors import StoreError
from accounting.store.migrate import require_current

_log = logging.getLogger(__name__)

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
def metrics(
    request: Request,
    service: WholeService,
    credentials: Credentials,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """The service's own metrics, as text or OpenMetrics: for operators, since they tell what tenants pay."""
    settings = service.settings
    if not settings.are_metrics_open and not _opens(settings.metrics_token_file, credentials):
        viewer = viewer_of(request, service, credentials)
        if not viewer.sees_everything:
            raise Problem(
                403, "this needs a token of role operator or admin, or the one of --metrics-token-file"
            )
    page, content_type = service.metrics.page(accept)
    return Response(page, headers={"Content-Type": content_type})


def _opens(token_file: Path | None, credentials: Credentials) -> bool:
    """Whether a request has the token that the file holds now."""
    if token_file is None or credentials is None:
        return False
    try:
        wanted = token_file.read_bytes().strip()
    except OSError as error:
        _log.error("cannot read the token of /metrics in %s: %s", token_file, error.strerror)
        return False
    return bool(wanted) and hmac.compare_digest(wanted, credentials.credentials.encode())
