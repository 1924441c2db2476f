"""The body of a batch: gzip, opened with a limit on what comes out, and a limit on how many are open.

Invariant: no request makes the service hold more than `MAX_BODY_BYTES` compressed and
`MAX_LINES_BYTES` uncompressed, whatever it claims or compresses to, nor holds its place longer than
`MAX_BODY_SECONDS` before it is complete; no more than `MAX_AT_ONCE` have a place.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect

from accounting.api.problems import Problem
from contract.facts import CONTENT_TYPE, MAX_FACTS_PER_BATCH

MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_LINES_BYTES = 32 * 1024 * 1024
MAX_BODY_SECONDS = 30.0

MAX_AT_ONCE = 16
MAX_OF_ONE_CLUSTER = 8
"""A cluster whose turn does not come, since its ledger is being rated, leaves room for the others."""

RETRY_AFTER_SECONDS = 2

_TOO_LARGE = (
    f"at most {MAX_FACTS_PER_BATCH} facts, {MAX_BODY_BYTES} bytes compressed and {MAX_LINES_BYTES} bytes "
    "uncompressed; send half of it"
)
_GZIP = 31
"""zlib's window bits for a gzip header and checksum."""


class Intake:
    """The batches that are being taken in, by cluster; used from one event loop."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    @contextmanager
    def place(self, cluster: str) -> Iterator[None]:
        """A place among those that are taken in, as long as the block runs.

        Raises:
            Problem: 429, there is none; the exporter keeps its facts and comes again.
        """
        if self._of[cluster] >= MAX_OF_ONE_CLUSTER or self._of.total() >= MAX_AT_ONCE:
            raise Problem(
                429,
                "as many batches as fit are being taken in; send it again",
                {"Retry-After": str(RETRY_AFTER_SECONDS)},
            )
        self._of[cluster] += 1
        try:
            yield
        finally:
            self._of[cluster] -= 1


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
        Problem: 413; 408 where it takes too long; 400 where the connection broke in the middle, which nobody
            will read.
    """
    if content_length is not None and content_length.isdecimal() and int(content_length) > MAX_BODY_BYTES:
        raise Problem(413, _TOO_LARGE)
    body = bytearray()
    try:
        async with asyncio.timeout(MAX_BODY_SECONDS):
            async for chunk in chunks:
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise Problem(413, _TOO_LARGE)
    except TimeoutError:
        raise Problem(408, f"the body took more than {MAX_BODY_SECONDS:g} s; send it again") from None
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
