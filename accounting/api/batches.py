"""The body of a batch: gzip, opened with a limit on what comes out.

Invariant: no request makes the service hold more than `MAX_BODY_BYTES` compressed and
`MAX_LINES_BYTES` uncompressed, whatever it claims or compresses to.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect

from accounting.api.problems import Problem
from contract.facts import CONTENT_TYPE, MAX_FACTS_PER_BATCH

MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_LINES_BYTES = 32 * 1024 * 1024

_TOO_LARGE = (
    f"at most {MAX_FACTS_PER_BATCH} facts, {MAX_BODY_BYTES} bytes compressed and {MAX_LINES_BYTES} bytes "
    "uncompressed; send half of it"
)
_GZIP = 31
"""zlib's window bits for a gzip header and checksum."""


def require_gzip_ndjson(content_type: str | None, content_encoding: str | None) -> None:
    """Refuse what does not say that it is gzip NDJSON.

    Raises:
        Problem: 415.
    """
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if media_type != CONTENT_TYPE or (content_encoding or "").strip().lower() != "gzip":
        raise Problem(415, f"send facts as Content-Type {CONTENT_TYPE} with Content-Encoding gzip")


async def read_body(chunks: AsyncIterator[bytes], content_length: str | None) -> bytes:
    """Read a request's body up to the limit.

    Raises:
        Problem: 413; 400 where the connection broke in the middle, which nobody will read.
    """
    if content_length is not None and content_length.isdecimal() and int(content_length) > MAX_BODY_BYTES:
        raise Problem(413, _TOO_LARGE)
    body = bytearray()
    try:
        async for chunk in chunks:
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise Problem(413, _TOO_LARGE)
    except ClientDisconnect:
        raise Problem(400, "the connection broke before the body was complete; send it again") from None
    return bytes(body)


def gunzip(body: bytes) -> bytes:
    """Decompress one gzip member.

    Raises:
        Problem: 413 for more than fits, 422 for what is no complete gzip stream.
    """
    member = zlib.decompressobj(_GZIP)
    try:
        lines = member.decompress(body, MAX_LINES_BYTES + 1)
    except zlib.error:
        raise Problem(422, "the body is no gzip stream") from None
    if len(lines) > MAX_LINES_BYTES:
        raise Problem(413, _TOO_LARGE)
    if not member.eof or member.unused_data:
        raise Problem(422, "the gzip stream is cut short, or something follows it")
    return lines


def require_few_lines(lines: bytes) -> None:
    """Refuse more lines than one request may carry, blank ones too: 32 MiB of newlines are 32 KiB to send.

    Raises:
        Problem: 413.
    """
    if lines.rstrip().count(b"\n") >= MAX_FACTS_PER_BATCH:
        raise Problem(413, _TOO_LARGE)
