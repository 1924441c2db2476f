"""One batch of facts into the store, in the caller's one transaction.

Invariant: nothing outside the database decides what a duplicate is, and nothing is noted before the
transaction that stores it commits. So a failed commit stores nothing, the retry stores once, and the next
one is a duplicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from accounting.facts import kinds
from accounting.facts.bounds import Refusal
from accounting.facts.kinds import FactKind, Key, Row
from accounting.facts.marks import mark
from accounting.facts.quarantine import Refused, put_in_quarantine
from accounting.facts.reading import Line
from accounting.facts.touching import Window
from accounting.store.bulk import insert_into, rows_of_keys, write_rows
from accounting.store.models import IngestCounter, Node
from contract.facts import AllocationFact, Fact, NodeStateFact, PresenceFact, canonical_bytes

SomeFact = TypeVar("SomeFact", bound=Fact)

KINDS: Sequence[FactKind[Any]] = (
    kinds.ALLOCATION,
    kinds.PRESENCE,
    kinds.NODE_STATE,
    kinds.SLICE_USAGE,
    kinds.UNALLOCATED_USE,
    kinds.DEVICE_USAGE,
)
"""Every kind of fact, in the order in which a batch is merged."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line that was not taken: it is in quarantine, and its sender may forget it."""

    line: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a batch: facts that changed the store, that changed nothing, that were refused."""

    stored: int
    duplicate: int
    rejected: tuple[Rejected, ...]


@dataclass(slots=True)
class _Batch:
    """The transaction's working state."""

    session: Session
    cluster: str
    now_ms: int
    stored: int = 0
    duplicate: int = 0
    rejected: list[Rejected] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    quarantined: list[Refused] = field(default_factory=list)

    def refuse(self, line: Line, refusal: Refusal) -> None:
        self.rejected.append(Rejected(line.number, refusal.reason, refusal.detail))
        self.quarantined.append(Refused(line.text, refusal))


@dataclass(slots=True)
class _Entry(Generic[SomeFact]):
    """One natural key: what the store held before, and what it will hold."""

    before: SomeFact | None
    now: SomeFact
    row: Row | None = None
    """What it will hold, as far as it was made already."""


def ingest(session: Session, lines: Sequence[Line], *, cluster: str, now_ms: int) -> Taken:
    """Merge the good facts of a batch into the store and the others into quarantine.

    Args:
        session: A writing transaction of the cluster; the caller commits it before it answers.
        lines: What `reading.read_lines` made of the batch.
        cluster: The cluster of the sender's token; all good facts are of it.
        now_ms: The clock.
    """
    batch = _Batch(session, cluster, now_ms)
    for line in lines:
        if line.refusal is not None:
            batch.refuse(line, line.refusal)
    changes = [(kind, _changed(batch, kind, lines)) for kind in KINDS]
    if batch.stored:
        ingest_seq = _next_number(session)
        for kind, entries in changes:
            _write(batch, kind, entries, ingest_seq)
        _name_nodes(session, (line.fact for line in lines))
        mark(session, cluster, batch.windows, now_ms=now_ms, ingest_seq=ingest_seq)
    put_in_quarantine(session, cluster, batch.quarantined, now_ms=now_ms)
    batch.rejected.sort(key=lambda one: one.line)
    return Taken(batch.stored, batch.duplicate, tuple(batch.rejected))


def _next_number(session: Session) -> int:
    """The number of this request. From here to the commit no other request gets one.

    So numbers become visible in their order: whoever has seen n has seen all facts up to n.
    """
    session.execute(update(IngestCounter).values(last_seq=IngestCounter.last_seq + 1))
    return session.execute(select(IngestCounter.last_seq)).scalar_one()


def _changed(batch: _Batch, kind: FactKind[SomeFact], lines: Sequence[Line]) -> list[_Entry[SomeFact]]:
    """The facts of one kind that change the store: read the rows they meet, and merge in memory."""
    arrived: list[tuple[Line, SomeFact, Row, Key]] = []
    for line in lines:
        if isinstance(line.fact, kind.fact_type):
            row = kind.row_of(line.fact)
            arrived.append((line, line.fact, row, kind.key_of(row)))
    if not arrived:
        return []
    known = _known(batch, kind, {key for *_, key in arrived})
    entries: dict[Key, _Entry[SomeFact]] = {key: _Entry(fact, fact) for key, fact in known.items()}
    for line, fact, row, key in arrived:
        entry = entries.get(key)
        if entry is None:
            entries[key] = _Entry(None, fact, row)
            batch.stored += 1
        else:
            kept = _settle(batch, kind, line, entry.now, fact)
            if kept is not entry.now:
                entry.now, entry.row = kept, row if kept is fact else None
    return [entry for entry in entries.values() if entry.before != entry.now]


def _settle(
    batch: _Batch, kind: FactKind[SomeFact], line: Line, known: SomeFact, arrived: SomeFact
) -> SomeFact:
    merged = kind.merge(known, arrived)
    lost = Refusal("conflict", "another fact of the same key and revision covers more, or sorts after it")
    if merged.loser is not None and merged.kept == known:
        batch.refuse(line, lost)
    elif merged.kept == known:
        batch.duplicate += 1
    else:
        batch.stored += 1
        if merged.loser is not None:
            batch.quarantined.append(Refused(canonical_bytes(merged.loser), lost))
    return merged.kept


def _known(batch: _Batch, kind: FactKind[SomeFact], keys: set[Key]) -> dict[Key, SomeFact]:
    """The facts that the store holds for these keys."""
    names = [column.name for column in kind.table.columns]
    found: dict[Key, SomeFact] = {}
    for values in rows_of_keys(batch.session, kind.model, keys):
        row = dict(zip(names, values, strict=True))
        found[kind.key_of(row)] = kind.fact_of(row)
    return found


def _write(
    batch: _Batch, kind: FactKind[SomeFact], changed: Sequence[_Entry[SomeFact]], ingest_seq: int
) -> None:
    rows = [(entry.row or kind.row_of(entry.now)) | {"ingest_seq": ingest_seq} for entry in changed]
    write_rows(batch.session, kind.model, rows)
    for entry in changed:
        batch.windows.extend(kind.touched(entry.before, entry.now, batch.now_ms))


def _name_nodes(session: Session, facts: Iterable[Fact | None]) -> None:
    """Keep the name that each node had last; a node is its UID, whatever it is called."""
    names: dict[tuple[str, str], tuple[int, str]] = {}
    for fact in facts:
        if isinstance(fact, AllocationFact | PresenceFact | NodeStateFact):
            at_ms = fact.confirmed_at_ms if isinstance(fact, AllocationFact) else fact.to_ms
            key = (fact.cluster, fact.node_uid)
            names[key] = max(names.get(key, (0, "")), (at_ms, fact.node))
    if not names:
        return
    statement = insert_into(session, Node)
    new = statement.excluded
    is_later = or_(
        new.named_at_ms > Node.named_at_ms, (new.named_at_ms == Node.named_at_ms) & (new.name > Node.name)
    )
    statement = statement.on_conflict_do_update(
        index_elements=[Node.cluster, Node.node_uid],
        set_={"name": new.name, "named_at_ms": new.named_at_ms},
        where=is_later,
    )
    rows = [
        {"cluster": cluster, "node_uid": node_uid, "name": name, "named_at_ms": at_ms}
        for (cluster, node_uid), (at_ms, name) in sorted(names.items())
    ]
    session.execute(statement, rows)
