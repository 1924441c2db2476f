"""How a document is answered: as JSON, or its rows as CSV; with an ETag where it can no longer change.

Invariant: one question has one ETag in each form; whoever sends it back is told 304 and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, Header, Request, Response

from accounting.reports.documents import Document, encode
from accounting.reports.rows_csv import rows_csv

JSON, CSV = "application/json", "text/csv; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Wants:
    """What a request wants back."""

    as_csv: bool
    known_etags: frozenset[str]
    query: Mapping[str, str]

    def answer(self, document: Document, *, is_final: bool = False) -> Response:
        """A document in the form asked for; the next page of CSV is in a Link header."""
        if not self.as_csv:
            return self.content(encode(document), JSON, is_final=is_final)
        response = self.content(rows_csv(document).encode(), CSV, is_final=is_final)
        following = document.get("next")
        if isinstance(following, str):
            response.headers["Link"] = f'<?{urlencode({**self.query, "cursor": following})}>; rel="next"'
        return response

    def content(self, body: bytes, media_type: str, *, is_final: bool) -> Response:
        """Bytes with their ETag, or 304 for whoever has them already; without one while they may change."""
        headers = {"Vary": "Accept, Authorization, Cookie"}
        if is_final:
            etag = f'"{hashlib.sha256(media_type.encode() + body).hexdigest()[:32]}"'
            headers |= {"ETag": etag, "Cache-Control": "private, no-cache"}
            if etag in self.known_etags or "*" in self.known_etags:
                return Response(status_code=304, headers=headers)
        return Response(body, media_type=media_type, headers=headers)


def _wants(
    request: Request,
    accept: Annotated[str | None, Header(description="text/csv: the rows as CSV; else JSON")] = None,
    if_none_match: Annotated[str | None, Header(description="the ETag of what you have")] = None,
) -> Wants:
    return Wants(_prefers_csv(accept or ""), etags_in(if_none_match), dict(request.query_params))


def etags_in(if_none_match: str | None) -> frozenset[str]:
    """What a client has already, weak ETags taken for strong ones; `*` is whatever there is."""
    known = (part.strip().removeprefix("W/") for part in (if_none_match or "").split(","))
    return frozenset(part for part in known if part)


def _prefers_csv(accept: str) -> bool:
    quality: dict[str, float] = {}
    for part in accept.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = next((one.removeprefix("q=") for one in parameters if one.startswith("q=")), "1")
        try:
            quality[name] = float(weight)
        except ValueError:
            quality[name] = 0.0
    csv = quality.get("text/csv", 0.0)
    json = max(quality.get(name, 0.0) for name in ("application/json", "application/*", "*/*"))
    return csv > 0 and csv >= json


Wanted = Annotated[Wants, Depends(_wants)]
