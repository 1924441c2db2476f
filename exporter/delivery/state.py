"""State and outbox in one SQLite file: running counters, and the facts accounting has not yet taken.

One transaction a tick writes both, before the tick's page is published. Invariants: after a `kill -9`
at any instant no counter that was ever on a page goes back, and no committed fact is lost or doubled;
a fact leaves only when accounting has taken exactly the bytes that are stored; a disk that is full or
broken stops nothing: facts wait in memory, and only those that no longer fit there are lost, counted.

Source: DESIGN section 3, `reference/metering.md §7.9`, `reference/ledger.md §5`.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from contract.facts import AllocationFact, Fact, NodeStateFact, PresenceFact, canonical_bytes, natural_key
from contract.ids import EpochId, new_epoch
from exporter.delivery import statefile
from exporter.delivery.metrics import DeliveryMetrics

S = TypeVar("S")
"""A role's own state."""

RestartReason: TypeAlias = Literal["first_start", "new_boot", "state_damaged"]

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
MAX_HELD_FACTS = 10_000
"""Facts kept in memory while the disk takes none; beyond it the oldest are lost."""
MAX_SET_ASIDE = 20_000
"""Facts kept that accounting could not read at all; beyond it the oldest make room."""

_log = logging.getLogger(__name__)


def read_boot_id(path: Path = BOOT_ID_FILE) -> str:
    """The kernel's id of this boot, the same in every container of the machine."""
    return path.read_text("ascii").strip()


@dataclass(frozen=True, slots=True)
class Entry:
    """One waiting fact: what it speaks of, which writing of it this is, and its canonical bytes."""

    key: str
    sequence: int
    line: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """Facts read together, oldest first."""

    entries: tuple[Entry, ...]

    def __len__(self) -> int:
        return len(self.entries)

    def first(self, count: int) -> Batch:
        """The oldest `count` of them."""
        return Batch(self.entries[:count])

    def body(self) -> bytes:
        """The batch as NDJSON."""
        return b"".join(entry.line + b"\n" for entry in self.entries)


@dataclass(frozen=True, slots=True)
class Pending:
    """How many facts wait, and since when (Unix milliseconds) the oldest does; None = none waits."""

    count: int
    oldest_ms: int | None


@dataclass(frozen=True, slots=True)
class _Row:
    """A fact on its way into the outbox."""

    key: str
    sequence: int
    revision: int
    since_ms: int
    line: bytes


class StateFile:
    """The open file. Safe to use from the sampler's and the push thread at once.

    Attributes:
        epoch: This run's id, for the usage facts of this run.
        previous_epoch: The id under which `restored` was counted: usage that is still open in it is
            closed and sent under this id.
        restored: The last run's counters if they go on; None if they begin at 0.
        restart_reason: Why they begin at 0; None if they go on.
    """

    def __init__(self, stored: statefile.Stored, boot_id: str, metrics: DeliveryMetrics) -> None:
        self.epoch: EpochId = new_epoch()
        self.previous_epoch: EpochId | None = None
        self.restored: bytes | None = None
        self.restart_reason: RestartReason | None = "first_start"
        self._connection = stored.connection
        self._boot_id = boot_id
        self._metrics = metrics
        self._lock = threading.Lock()
        self._held: dict[str, _Row] = {}
        self._gone: dict[str, int] = {}
        self._sequence = stored.last_sequence
        if stored.was_damaged:
            self.restart_reason = "state_damaged"
        elif stored.run is not None:
            self._take_over(stored.run)
        if self.restart_reason is not None:
            metrics.restarted(self.restart_reason)

    @classmethod
    def open(
        cls, path: Path, boot_id: str, metrics: DeliveryMetrics, *, lock_wait_seconds: float = 5.0
    ) -> StateFile:
        """Open the file, or make it; a damaged one is moved aside, its readable facts still leave.

        Args:
            path: The file; its folder is made if it is missing.
            boot_id: The machine's present boot (`read_boot_id`).
            metrics: Where lost facts and restarts are counted.
            lock_wait_seconds: How long to wait for another exporter to let go of the file.

        Raises:
            statefile.StateError: In use by another process, or the place cannot be written.
        """
        stored = statefile.open_file(path, lock_wait_seconds)
        state = cls(stored, boot_id, metrics)
        if stored.lost_facts:
            metrics.lost("state_damaged", stored.lost_facts)
        if stored.rescued:
            state._commit_rows(None, state._rows(stored.rescued))
        return state

    def resumed(self, decode: Callable[[bytes], S | None]) -> S | None:
        """The last run's state as the role reads it; None if counters begin at 0.

        Args:
            decode: Reads `restored`; where it cannot (None), counters begin at 0 after all.
        """
        if self.restored is None:
            return None
        state = decode(self.restored)
        if state is None:
            self.restored = self.previous_epoch = None
            self.restart_reason = "state_damaged"
            self._metrics.restarted("state_damaged")
        return state

    def commit(self, counters: bytes, facts: Sequence[Fact]) -> bool:
        """Write the tick's counters and new facts in one transaction.

        A fact replaces an unsent one of the same key unless that one has a higher revision.

        Returns:
            False if the disk took nothing: the facts then wait in memory for the next commit (and
            leave from there), the counters are safe only while this process lives.
        """
        with self._lock:
            rows = [*self._held.values(), *self._rows(facts)]
            if self._commit_rows(counters, rows):
                self._held.clear()
                return True
            self._hold(rows)
            return False

    def pending(self) -> Pending:
        """What waits, in the file and in memory."""
        with self._lock:
            held = [row.since_ms for row in self._held.values()]
            try:
                count, oldest = self._connection.execute(
                    "SELECT count(*), min(since_ms) FROM outbox"
                ).fetchone()
            except sqlite3.OperationalError as error:
                _log.warning("state file: cannot be read: %s", error)
                count, oldest = len(self._gone), None
            times = held if oldest is None else [*held, int(oldest)]
            return Pending(max(int(count) - len(self._gone), 0) + len(held), min(times) if times else None)

    def batch(self, limit: int) -> Batch:
        """The oldest waiting facts, at most `limit`; they stay until they are acknowledged."""
        with self._lock:
            rows = self._read(
                "SELECT key, sequence, fact FROM outbox ORDER BY sequence LIMIT ?",
                limit + len(self._gone),
            )
            stored = (Entry(*row) for row in rows if self._gone.get(row[0]) != row[1])
            held = (Entry(row.key, row.sequence, row.line) for row in self._held.values())
            return Batch((*stored, *held)).first(limit)

    def acknowledge(self, batch: Batch) -> None:
        """Accounting has taken the batch: drop its facts, but for those rewritten since they were read."""
        with self._lock:
            self._drop(batch, None)

    def set_aside(self, batch: Batch, reason: str) -> None:
        """Accounting cannot read the batch: keep it out of the way in the table `set_aside`."""
        with self._lock:
            self._drop(batch, reason)

    def close(self) -> None:
        """Close the file; facts that only memory held are lost, and counted."""
        with self._lock:
            if self._held and not self._commit_rows(None, list(self._held.values())):
                self._metrics.lost("disk_full", len(self._held))
            self._held.clear()
            self._connection.close()

    def _take_over(self, run: statefile.Run) -> None:
        if run.boot_id != self._boot_id:
            self.restart_reason = "new_boot"
        elif zlib.crc32(run.counters) != run.checksum:
            self.restart_reason = "state_damaged"
        else:
            self.restart_reason = None
            self.restored = run.counters
            self.previous_epoch = EpochId(run.epoch)

    def _rows(self, facts: Iterable[Fact]) -> list[_Row]:
        rows = []
        for fact in facts:
            self._sequence += 1
            revision, since_ms = _revision_and_time(fact)
            key = msgspec.json.encode(natural_key(fact)).decode()
            rows.append(_Row(key, self._sequence, revision, since_ms, canonical_bytes(fact)))
        return rows

    def _read(self, query: str, *parameters: int) -> list[Any]:
        try:
            return self._connection.execute(query, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            _log.warning("state file: cannot be read: %s", error)
            return []

    def _commit_rows(self, counters: bytes | None, rows: Sequence[_Row]) -> bool:
        try:
            with self._transaction():
                if counters is not None:
                    self._connection.execute(
                        statefile.WRITE_RUN, (self._boot_id, self.epoch, counters, zlib.crc32(counters))
                    )
                self._connection.executemany(
                    "DELETE FROM outbox WHERE key = ? AND sequence = ?", list(self._gone.items())
                )
                self._connection.executemany(
                    statefile.WRITE_FACT,
                    [(row.key, row.sequence, row.revision, row.since_ms, row.line) for row in rows],
                )
        except sqlite3.OperationalError as error:
            _log.warning("state file: nothing was written: %s", error)
            return False
        self._gone.clear()
        return True

    def _hold(self, rows: Sequence[_Row]) -> None:
        """Keep the newest writing of each fact, and no more facts than memory may take."""
        held: dict[str, _Row] = {}
        for row in rows:
            older = held.pop(row.key, None)
            newer = row if older is None or older.revision <= row.revision else older
            since_ms = row.since_ms if older is None else min(older.since_ms, row.since_ms)
            held[row.key] = replace(newer, since_ms=since_ms)
        too_many = len(held) - MAX_HELD_FACTS
        if too_many > 0:
            for key in list(held)[:too_many]:
                del held[key]
            self._metrics.lost("disk_full", too_many)
        self._held = held

    def _drop(self, batch: Batch, reason: str | None) -> None:
        for entry in batch.entries:
            held = self._held.get(entry.key)
            if held is not None and held.sequence == entry.sequence:
                del self._held[entry.key]
        keys = [(entry.key, entry.sequence) for entry in batch.entries]
        try:
            with self._transaction():
                if reason is not None:
                    self._connection.executemany(
                        "INSERT OR REPLACE INTO set_aside (sequence, reason, fact) VALUES (?, ?, ?)",
                        [(entry.sequence, reason, entry.line) for entry in batch.entries],
                    )
                    self._connection.execute(statefile.TRIM_SET_ASIDE, (MAX_SET_ASIDE,))
                self._connection.executemany("DELETE FROM outbox WHERE key = ? AND sequence = ?", keys)
        except sqlite3.OperationalError as error:
            # They must not be sent again and again while the disk takes no deletion either.
            _log.warning("state file: sent facts could not be dropped yet: %s", error)
            self._gone.update(keys)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing; whatever the disk does wrong comes out as `sqlite3.OperationalError`."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except BaseException as error:
            # A full disk makes SQLite roll back by itself.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.DatabaseError) and statefile.is_damage(error):
                raise sqlite3.OperationalError(*error.args) from error
            raise


def _revision_and_time(fact: Fact) -> tuple[int, int]:
    match fact:
        case AllocationFact():
            return 0, fact.confirmed_at_ms
        case PresenceFact() | NodeStateFact():
            return 0, fact.to_ms
        case _:
            return fact.revision, fact.to_ms
