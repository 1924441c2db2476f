"""One batch of facts into the store, in the caller's one transaction.

Invariant: nothing outside the database decides what a duplicate is, and nothing is noted before the
transaction that stores it commits. So a failed commit stores nothing, the retry stores once, and the next
one is a duplicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sqlalchemy import and_, delete, or_, select
from sqlalchemy import insert as core_insert
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateTable

from accounting.facts import kinds
from accounting.facts.bounds import Refusal
from accounting.facts.kinds import FactKind, Key
from accounting.facts.marks import mark
from accounting.facts.quarantine import Refused, put_in_quarantine
from accounting.facts.reading import Line
from accounting.facts.touching import Window
from accounting.store.models import IngestCounter, Node
from contract.facts import AllocationFact, Fact, NodeStateFact, PresenceFact, canonical_bytes

SomeFact = TypeVar("SomeFact", bound=Fact)


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
    seq: int
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


def ingest(session: Session, lines: Sequence[Line], *, cluster: str, now_ms: int) -> Taken:
    """Merge the good facts of a batch into the store and the others into quarantine.

    Args:
        session: A writing transaction; the caller commits it before it answers.
        lines: What `reading.read_lines` made of the batch.
        cluster: The cluster of the sender's token; all good facts are of it.
        now_ms: The clock.
    """
    counter = session.get(IngestCounter, 1)
    if counter is None:
        counter = IngestCounter(id=1, last_seq=0)
        session.add(counter)
    batch = _Batch(session, cluster, now_ms, counter.last_seq + 1)
    for line in lines:
        if line.refusal is not None:
            batch.refuse(line, line.refusal)
    _take(batch, kinds.ALLOCATION, lines)
    _take(batch, kinds.PRESENCE, lines)
    _take(batch, kinds.NODE_STATE, lines)
    _take(batch, kinds.SLICE_USAGE, lines)
    _take(batch, kinds.UNALLOCATED_USE, lines)
    _take(batch, kinds.DEVICE_USAGE, lines)
    if batch.stored:
        counter.last_seq = batch.seq
        _name_nodes(session, (line.fact for line in lines))
        mark(session, cluster, batch.windows, now_ms=now_ms, ingest_seq=batch.seq)
    put_in_quarantine(session, cluster, batch.quarantined, now_ms=now_ms)
    batch.rejected.sort(key=lambda one: one.line)
    return Taken(batch.stored, batch.duplicate, tuple(batch.rejected))


def _take(batch: _Batch, kind: FactKind[SomeFact], lines: Sequence[Line]) -> None:
    """Merge the facts of one kind: read the rows they meet, merge in memory, write what changed."""
    arrived: list[tuple[Line, SomeFact, Key]] = []
    for line in lines:
        if isinstance(line.fact, kind.fact_type):
            row = kind.row_of(line.fact, ingest_seq=0)
            arrived.append((line, line.fact, kind.key_of(row)))
    if not arrived:
        return
    entries: dict[Key, _Entry[SomeFact]] = {
        key: _Entry(fact, fact) for key, fact in _known(batch, kind, {key for _, _, key in arrived}).items()
    }
    for line, fact, key in arrived:
        entry = entries.get(key)
        if entry is None:
            entries[key] = _Entry(None, fact)
            batch.stored += 1
        else:
            entry.now = _settle(batch, kind, line, entry.now, fact)
    _write(batch, kind, [entry for entry in entries.values() if entry.before != entry.now])


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
    """The facts that the store holds for these keys.

    The keys are joined as a temporary table: for a list of row values SQLite would scan the whole table
    of facts, and a statement with thousands of values takes longer to write than to run.
    """
    session, wanted = batch.session, kind.wanted_keys
    session.execute(CreateTable(wanted, if_not_exists=True))
    session.execute(delete(wanted))
    columns = [column.name for column in wanted.columns]
    session.execute(core_insert(wanted), [dict(zip(columns, key, strict=True)) for key in keys])
    met = and_(*(column == wanted.columns[column.name] for column in kind.key_columns))
    names = [column.name for column in kind.table.columns]
    found: dict[Key, SomeFact] = {}
    for values in session.execute(select(kind.table).select_from(wanted).join(kind.table, met)):
        row = dict(zip(names, values, strict=True))
        found[kind.key_of(row)] = kind.fact_of(row)
    return found


def _write(batch: _Batch, kind: FactKind[SomeFact], changed: Sequence[_Entry[SomeFact]]) -> None:
    if not changed:
        return
    keys = kind.key_columns
    statement = insert(kind.table)
    statement = statement.on_conflict_do_update(
        index_elements=keys,
        set_={c.name: statement.excluded[c.name] for c in kind.table.columns if c not in keys},
    )
    rows: list[dict[str, Any]] = [dict(kind.row_of(entry.now, ingest_seq=batch.seq)) for entry in changed]
    batch.session.execute(statement, rows)
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
    statement = insert(Node)
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
