"""A request that changes the books carries an `Idempotency-Key`, so that a retry changes them once.

Invariant: an answer is kept in the very transaction that obeyed the request; whoever asks again with the
same key and the same bytes gets that answer, and nothing is done. Refusals are not kept: what was refused
may be asked again with the same key. Source: `reference/ledger.md §10`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Query, Request, Response
from sqlalchemy import delete
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.api.dependencies import InService, Operator
from accounting.api.problems import Problem
from accounting.reports.documents import Document, encode
from accounting.store.database import Database
from accounting.store.models import KeptAnswer
from contract.units import MS_PER_DAY

KEPT_MS = 30 * MS_PER_DAY
"""How long a retry is recognised."""

HEADER_KEY = "Idempotency-Key"
HEADER_REPLAYED = "Idempotent-Replayed"


@dataclass(frozen=True, slots=True)
class Once:
    """One request that must change the books once, however often it is sent."""

    by: Viewer
    key: str
    request_sha256: str
    now_ms: int
    is_dry: bool = False
    """It asks what it would change, and changes nothing."""

    def obey(
        self, database: Database, change: Callable[[Session], Document], *, status: int = 200
    ) -> Response:
        """Make a change and keep its answer in one transaction, or give the answer that was kept.

        Args:
            database: The books.
            change: Makes the change and says what it did.
            status: Of its answer.

        Raises:
            Problem: 422, the key belongs to another request.
        """
        with database.writing() as session:
            kept = self._kept(session)
            if kept is None:
                return self._keep(session, change(session), status)
            return _again(kept)

    def obey_at_length(self, database: Database, change: Callable[[], Document]) -> Response:
        """The same for a change of many transactions, which itself is made once however often it is run.

        A crash between the change and the keeping of its answer leads a retry to run it again, and to
        find nothing left to do.

        Raises:
            Problem: 422, the key belongs to another request.
        """
        with database.reading() as session:
            kept = self._kept(session)
            if kept is not None:
                return _again(kept)
        document = change()
        return self.obey(database, lambda _: document)

    def _kept(self, session: Session) -> KeptAnswer | None:
        kept = session.get(KeptAnswer, (self.by.name, self.key))
        if kept is not None and kept.request_sha256 != self.request_sha256:
            raise Problem(
                422,
                f"{HEADER_KEY} {self.key!r} belongs to another request; choose a new key for a new request",
            )
        return kept

    def _keep(self, session: Session, document: Document, status: int) -> Response:
        session.execute(delete(KeptAnswer).where(KeptAnswer.answered_at_ms < self.now_ms - KEPT_MS))
        body = encode(document)
        session.add(
            KeptAnswer(
                asked_by=self.by.name,
                idempotency_key=self.key,
                request_sha256=self.request_sha256,
                status=status,
                answer=body.decode(),
                answered_at_ms=self.now_ms,
            )
        )
        return Response(body, status, media_type="application/json")


def _again(kept: KeptAnswer) -> Response:
    headers = {HEADER_REPLAYED: "true"}
    return Response(kept.answer.encode(), kept.status, headers, media_type="application/json")


_KEY = Header(
    alias=HEADER_KEY,
    min_length=1,
    max_length=253,
    pattern=r"^[!-~]+$",
    description="made up by you for this one request; a retry with it gets the same answer",
)


async def _once(request: Request, service: InService, viewer: Operator, key: Annotated[str, _KEY]) -> Once:
    digest = hashlib.sha256(f"{request.method} {request.scope['path']}\n".encode(errors="surrogatepass"))
    digest.update(await request.body())
    return Once(viewer, key, digest.hexdigest(), service.clock())


async def _dry_or_once(
    *,
    request: Request,
    service: InService,
    viewer: Operator,
    key: Annotated[str | None, _KEY] = None,
    dry_run: Annotated[bool, Query(description="only say what it would change; needs no key")] = False,
) -> Once:
    if dry_run:
        return Once(viewer, "", "", service.clock(), is_dry=True)
    if key is None:
        raise Problem(422, f"header.{HEADER_KEY}: Field required")
    return await _once(request, service, viewer, key)


ObeyedOnce = Annotated[Once, Depends(_once)]

DryOrOnce = Annotated[Once, Depends(_dry_or_once)]
