"""`GET /api/v1/exports/{period}`: a month of the ledger as a file, the same bytes as the command's."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from typing import IO, Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from accounting.api.answering import etags_in
from accounting.api.dependencies import InService, Reader
from accounting.api.windows import Period
from accounting.exports.making import CONTENT_TYPES, FILE_SUFFIXES, Format, Wanted, write_export
from accounting.focus.model import Dataset, Version

router = APIRouter(prefix="/api/v1", tags=["exports"])

_CHUNK_BYTES = 1 << 16
_IN_MEMORY_BYTES = 1 << 20


@router.get("/exports/{period}", response_class=Response)
def export(
    *,
    service: InService,
    viewer: Reader,
    period: Period,
    tenant: Annotated[str | None, Query(description="its path, or its code where only one has it")] = None,
    account: Annotated[str | None, Query(description="all its tenants, or where one has several")] = None,
    format: Annotated[Format, Query(description="focus is CSV")] = "csv",  # noqa: A002 - a parameter's name
    focus_version: Annotated[Version, Query(description="of FOCUS")] = "1.4",
    focus_dataset: Annotated[Dataset, Query(description="of FOCUS")] = "cost-and-usage",
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """The lines of a tenant and of all below it, or of an account, in a month, as `2026-10`.

    The file is made before the first byte is sent, so that an answer is either whole or an error. That of
    a closed month has an ETag: it never changes.
    """
    wanted = Wanted(period, format, tenant, account, focus_version, focus_dataset)
    # Closed by `_chunks`, or here where no answer comes to need it.
    whole = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115
    try:
        with service.database.reading() as session:
            made = write_export(session, viewer, wanted, whole)
        size = whole.tell()
        headers = {"Content-Length": str(size), "Content-Disposition": _disposition(wanted)}
        if made.frame.is_closed:
            headers["ETag"] = f'"{_sha256(whole)}"'
            if etags_in(if_none_match) & {headers["ETag"], "*"}:
                whole.close()
                return Response(status_code=304, headers={"ETag": headers["ETag"]})
        whole.seek(0)
    except BaseException:
        whole.close()
        raise
    return StreamingResponse(_chunks(whole), media_type=CONTENT_TYPES[format], headers=headers)


def _disposition(wanted: Wanted) -> str:
    name = f"slicemeter-{wanted.month}"
    if wanted.is_focus:
        name = f"{name}-focus-{wanted.version}-{wanted.dataset}"
    return f'attachment; filename="{name}{FILE_SUFFIXES[wanted.form]}"'


def _sha256(file: IO[bytes]) -> str:
    file.seek(0)
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
