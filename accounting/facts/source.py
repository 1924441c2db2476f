"""Who sends: the header that names an exporter's run, and the registry of those runs.

Source of the header: `contract.facts.HEADER_SOURCE`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.errors import InvalidError
from accounting.store.models import ExporterSource
from contract.facts import HEADER_SOURCE, OLDEST_SCHEMA
from contract.units import MS_PER_HOUR

MAX_FIELD = 253
MAX_SCHEMA_DIGITS = 6

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Source:
    """One run of an exporter; node and its UID are empty on the cluster role.

    Attributes:
        schema: The version of the facts that it writes; one that says nothing writes the oldest.
    """

    role: Literal["node", "cluster"]
    epoch: str
    version: str
    node_uid: str = ""
    node: str = ""
    schema: int = OLDEST_SCHEMA


def parse_source(header: str) -> Source:
    """Read `role=node;node_uid=…;node=…;epoch=…;version=…;schema=…`; other fields are passed over.

    Raises:
        InvalidError: A field is missing, too long, or no field at all.
    """
    fields: dict[str, str] = {}
    for part in header.split(";"):
        name, equals, value = part.strip().partition("=")
        if not equals or len(value) > MAX_FIELD or not value.isprintable():
            raise InvalidError(f"header {HEADER_SOURCE}: a field is no name=value, or too long")
        fields[name] = value
    role = fields.get("role")
    needed = {"node": ("epoch", "version", "node_uid", "node"), "cluster": ("epoch", "version")}
    if role not in {"node", "cluster"}:
        raise InvalidError(f"header {HEADER_SOURCE}: role is node or cluster")
    missing = [name for name in needed[role] if not fields.get(name)]
    if missing:
        raise InvalidError(f"header {HEADER_SOURCE}: {', '.join(missing)} missing")
    schema = _schema(fields.get("schema", str(OLDEST_SCHEMA)))
    if role == "cluster":
        return Source("cluster", fields["epoch"], fields["version"], schema=schema)
    return Source("node", fields["epoch"], fields["version"], fields["node_uid"], fields["node"], schema)


def _schema(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_SCHEMA_DIGITS):
        raise InvalidError(f"header {HEADER_SOURCE}: schema is no whole number")
    return int(text)


def _heard_since(session: Session, row: ExporterSource) -> str | None:
    """Another run of the same role and node that was heard after this one."""
    query = select(ExporterSource.epoch).where(
        ExporterSource.cluster == row.cluster,
        ExporterSource.role == row.role,
        ExporterSource.node_uid == row.node_uid,
        ExporterSource.epoch != row.epoch,
        ExporterSource.last_seen_ms > row.last_seen_ms,
    )
    return session.scalar(query.order_by(ExporterSource.last_seen_ms.desc()).limit(1))


def note_source(
    session: Session,
    cluster: str,
    source: Source,
    *,
    now_ms: int,
    clock_offset_ms: int,
    sent: int,
    stored: int,
) -> None:
    """Register a request of an exporter's run: when, how its clock goes, how much it brought.

    A run that is heard again after another one of its role and node was not restarted: two report there.
    """
    row = session.get(ExporterSource, (cluster, source.epoch))
    if row is None:
        row = ExporterSource(
            cluster=cluster,
            epoch=source.epoch,
            role=source.role,
            node_uid=source.node_uid,
            node=source.node,
            version=source.version,
            facts_sent=0,
            facts_stored=0,
        )
        session.add(row)
    elif (other := _heard_since(session, row)) is not None:
        is_news = row.contested_ms is None or now_ms - row.contested_ms > MS_PER_HOUR
        row.contested_ms = now_ms
        place = f'node "{row.node}"' if row.node else "the cluster role"
        if is_news:
            _log.warning(
                "cluster %s: two exporters report for %s (runs %s and %s), one of them counts; stop one",
                cluster,
                place,
                row.epoch,
                other,
            )
    row.last_seen_ms = now_ms
    row.clock_offset_ms = clock_offset_ms
    row.facts_sent += sent
    row.facts_stored += stored
