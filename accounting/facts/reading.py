"""From the lines of a batch to facts, each good or refused on its own.

Invariant: a line that cannot be read costs that line and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from accounting.facts.bounds import Refusal, judge, unknown_schema
from contract.facts import (
    OLDEST_SCHEMA,
    SCHEMA,
    AllocationFact,
    DeviceUsageFact,
    Fact,
    NodeStateFact,
    PresenceFact,
    SliceUsageFact,
    UnallocatedUseFact,
    decode_fact,
)

MAX_LINE_BYTES = 16_384
_MAX_SHOWN = 200

_TYPES = frozenset(
    str(kind.__struct_config__.tag)
    for kind in (
        AllocationFact,
        PresenceFact,
        NodeStateFact,
        SliceUsageFact,
        UnallocatedUseFact,
        DeviceUsageFact,
    )
)


class _Head(msgspec.Struct):
    type: str = ""
    schema: int = SCHEMA


_head_decoder = msgspec.json.Decoder(_Head)


@dataclass(frozen=True, slots=True)
class Scope:
    """What a reporter may speak of: one cluster, or one node of it.

    Attributes:
        cluster: The cluster of its token.
        node_uid: Set for the exporter of one node, which speaks of its node alone and as `node` witness.
    """

    cluster: str
    node_uid: str | None = None


class Line(NamedTuple):
    """One line of a batch: its number from 1, its bytes, and the fact in it or why it is refused."""

    number: int
    text: bytes
    fact: Fact | None
    refusal: Refusal | None = None


def read_lines(body: bytes, scope: Scope, *, now_ms: int) -> list[Line]:
    """Read and judge every line that is not blank."""
    numbered = ((number, text.strip()) for number, text in enumerate(body.split(b"\n"), start=1))
    return [_read(number, text, scope, now_ms) for number, text in numbered if text]


def _read(number: int, text: bytes, scope: Scope, now_ms: int) -> Line:
    if len(text) > MAX_LINE_BYTES:
        return Line(
            number, text, None, Refusal("too_long_line", f"{len(text)} bytes; at most {MAX_LINE_BYTES}")
        )
    try:
        fact = decode_fact(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Line(number, text, None, _unreadable(text, error))
    refusal = _out_of_scope(fact, scope) or judge(fact, now_ms=now_ms)
    return Line(number, text, None if refusal else fact, refusal)


def _unreadable(text: bytes, error: Exception) -> Refusal:
    """Tell a fact of another program version from garbage: the exporter's log should say which."""
    try:
        head = _head_decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Refusal("malformed", _shown(str(error)))
    if not OLDEST_SCHEMA <= head.schema <= SCHEMA:
        return unknown_schema(head.schema)
    if head.type not in _TYPES:
        return Refusal(
            "unknown_type", f'type "{_shown(head.type[:40])}"; known are {", ".join(sorted(_TYPES))}'
        )
    return Refusal("malformed", _shown(str(error)))


def _shown(text: str) -> str:
    """What a sender wrote, fit for a log and for a database that takes no NUL."""
    printable = text if text.isprintable() else ascii(text)[1:-1]
    return printable if len(printable) <= _MAX_SHOWN else f"{printable[:_MAX_SHOWN]}…"


def _out_of_scope(fact: Fact, scope: Scope) -> Refusal | None:
    if fact.cluster != scope.cluster:
        return Refusal("other_cluster", "the fact names another cluster than the token's")
    if scope.node_uid is None:
        return None
    if fact.node_uid != scope.node_uid:
        return Refusal("other_node", "the fact names another node than the token's")
    witness = "cluster" if isinstance(fact, NodeStateFact) else getattr(fact, "witness", "node")
    if witness != "node":
        return Refusal("other_witness", "the exporter of a node speaks as witness node only")
    return None
