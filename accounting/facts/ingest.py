"""One batch of facts into the store, in the caller's one transaction.

Invariant: nothing outside the database decides what a duplicate is, and nothing is noted before the
transaction that stores it commits. So a failed commit stores nothing, the retry stores once, and the next
one is a duplicate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Generic, TypeVar

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from accounting.facts import kinds
from accounting.facts.bounds import Refusal
from accounting.facts.kinds import FactKind, Key, Values
from accounting.facts.marks import MAX_DAYS, mark
from accounting.facts.quarantine import Refused, put_in_quarantine
from accounting.facts.reading import Line
from accounting.facts.touching import Change, Window
from accounting.store.bulk import insert_into, known_rows, merge_staged, stage_rows
from accounting.store.models import IngestCounter, Node
from contract.facts import AllocationFact, Fact, canonical_bytes

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

_NAMING = (kinds.ALLOCATION, kinds.PRESENCE, kinds.NODE_STATE)
"""Those that say how a node is called."""


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


@dataclass(frozen=True, slots=True)
class Arrivals(Generic[SomeFact]):
    """The facts of one kind in a batch, taken apart before the store is asked about any.

    Attributes:
        kind: Their kind.
        lines: Where each came from, in the order of the batch.
        facts: The facts.
        values: Each as the values of the kind's columns.
        keys: The natural key of each.
        firsts: For each key the place where it comes first; one of each is staged, in this order.
    """

    kind: FactKind[SomeFact]
    lines: Sequence[Line]
    facts: Sequence[SomeFact]
    values: Sequence[Values]
    keys: Sequence[Key]
    firsts: Mapping[Key, int]

    def stage(self, session: Session) -> None:
        """Lay one row of each key beside its table."""
        rows = (self.values[place] for place in self.firsts.values())
        stage_rows(session, self.kind.model, self.kind.columns, rows)

    def known(self, session: Session) -> dict[Key, SomeFact]:
        """The facts that the store holds under the keys that are staged."""
        keys = list(self.firsts)
        positions = {key: position for position, key in enumerate(keys)}
        found = known_rows(session, self.kind.model, self.kind.said, positions)
        return {keys[position]: self.kind.fact_of_values(values) for position, values in found}


@dataclass(slots=True)
class _Batch:
    """The transaction's working state."""

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


@dataclass(frozen=True, slots=True)
class _Changes(Generic[SomeFact]):
    """What becomes of the facts of one kind.

    Attributes:
        pairs: What changes.
        is_staged: Whether that is what is staged already, all of it and nothing else.
    """

    pairs: Sequence[Change[SomeFact]]
    is_staged: bool


def arrange(lines: Sequence[Line]) -> list[Arrivals[Any]]:
    """Take the good facts of a batch apart by kind: what can be done before it is its cluster's turn."""
    arranged = []
    for kind in KINDS:
        of_kind = [line for line in lines if type(line.fact) is kind.fact_type]
        if of_kind:
            facts = [line.fact for line in of_kind]
            values = list(map(kind.values_of, facts))
            keys = list(map(kind.key_of, values))
            firsts: dict[Key, int] = {}
            for place, key in enumerate(keys):
                firsts.setdefault(key, place)
            arranged.append(Arrivals(kind, of_kind, facts, values, keys, firsts))
    return arranged


def stage(session: Session, arranged: Sequence[Arrivals[Any]]) -> None:
    """Bring the facts into the database, beside its tables: part of the transaction, but of nobody's turn."""
    for arrivals in arranged:
        arrivals.stage(session)


def ingest(session: Session, lines: Sequence[Line], *, cluster: str, now_ms: int) -> Taken:
    """Merge the good facts of a batch into the store and the others into quarantine.

    Args:
        session: A writing transaction of the cluster; the caller commits it before it answers.
        lines: What `reading.read_lines` made of the batch.
        cluster: The cluster of the sender's token; all good facts are of it.
        now_ms: The clock.

    Raises:
        TooManyDaysError: The facts touch so many days that they must come in smaller batches.
    """
    arranged = arrange(lines)
    stage(session, arranged)
    return merge(session, lines, arranged, cluster=cluster, now_ms=now_ms)


def merge(
    session: Session, lines: Sequence[Line], arranged: Sequence[Arrivals[Any]], *, cluster: str, now_ms: int
) -> Taken:
    """Do what `ingest` does with facts that are arranged and staged already."""
    batch = _Batch(cluster, now_ms)
    for line in lines:
        if line.refusal is not None:
            batch.refuse(line, line.refusal)
    changes = [(arrivals, _changed(batch, arrivals, arrivals.known(session))) for arrivals in arranged]
    if batch.stored:
        ingest_seq = _next_number(session)
        for arrivals, changed in changes:
            _write(session, batch, arrivals, changed, ingest_seq)
        _name_nodes(session, arranged)
        # One fact alone is always taken: its sender cannot halve it.
        max_days = MAX_DAYS if len(lines) > 1 else None
        mark(session, cluster, batch.windows, now_ms=now_ms, ingest_seq=ingest_seq, max_days=max_days)
    put_in_quarantine(session, cluster, batch.quarantined, now_ms=now_ms)
    batch.rejected.sort(key=lambda one: one.line)
    return Taken(batch.stored, batch.duplicate, tuple(batch.rejected))


def _next_number(session: Session) -> int:
    """The number of this request. From here to the commit no other request gets one.

    So numbers become visible in their order: whoever has seen n has seen all facts up to n.
    """
    session.execute(update(IngestCounter).values(last_seq=IngestCounter.last_seq + 1))
    return session.execute(select(IngestCounter.last_seq)).scalar_one()


def _changed(
    batch: _Batch, arrivals: Arrivals[SomeFact], known: Mapping[Key, SomeFact]
) -> _Changes[SomeFact]:
    """The facts of one kind that change the store: each is merged with what stands under its key."""
    if not known and len(arrivals.firsts) == len(arrivals.facts):
        batch.stored += len(arrivals.facts)
        return _Changes([(None, fact) for fact in arrivals.facts], is_staged=True)
    entries = {key: _Entry(fact, fact) for key, fact in known.items()}
    for line, fact, key in zip(arrivals.lines, arrivals.facts, arrivals.keys, strict=True):
        entry = entries.get(key)
        if entry is None:
            entries[key] = _Entry(None, fact)
            batch.stored += 1
        else:
            entry.now = _settle(batch, arrivals.kind, line, entry.now, fact)
    is_staged = all(entry.now == arrivals.facts[arrivals.firsts[key]] for key, entry in entries.items())
    changed = (entry for entry in entries.values() if entry.before is not entry.now)
    pairs = [(entry.before, entry.now) for entry in changed if entry.before != entry.now]
    return _Changes(pairs, is_staged=is_staged and len(pairs) == len(entries))


def _settle(
    batch: _Batch, kind: FactKind[SomeFact], line: Line, known: SomeFact, arrived: SomeFact
) -> SomeFact:
    if arrived == known:
        batch.duplicate += 1
        return known
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


def _write(
    session: Session,
    batch: _Batch,
    arrivals: Arrivals[SomeFact],
    changes: _Changes[SomeFact],
    ingest_seq: int,
) -> None:
    if not changes.pairs:
        return
    kind = arrivals.kind
    if not changes.is_staged:
        stage_rows(session, kind.model, kind.columns, (kind.values_of(now) for _, now in changes.pairs))
    merge_staged(session, kind.model, kind.columns, {"ingest_seq": ingest_seq})
    batch.windows += kind.touched(changes.pairs, batch.now_ms)


def _name_nodes(session: Session, arranged: Sequence[Arrivals[Any]]) -> None:
    """Keep the name that each node had last; a node is its UID, whatever it is called."""
    names: dict[tuple[str, str], tuple[int, str]] = {}
    naming = (arrivals.facts for arrivals in arranged if arrivals.kind in _NAMING)
    for fact in chain.from_iterable(naming):
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
