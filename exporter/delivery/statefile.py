"""The SQLite file under `StateFile`: its tables, and how it is opened, checked and rescued.

Invariant: whoever gets a connection from here has a file whose pages are sound, with this version's
tables, and nobody else's lock on it; what could not be read is beside it under `.damaged`.
"""

from __future__ import annotations

import logging
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from contract.facts import Fact, decode_fact
from exporter.errors import ExporterError

VERSION: Final = 1

_SCHEMA: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE run (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    boot_id TEXT NOT NULL,
    epoch TEXT NOT NULL,
    counters BLOB NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;
CREATE TABLE outbox (
    key TEXT PRIMARY KEY,
    sequence INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    since_ms INTEGER NOT NULL,
    fact BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX outbox_sequence ON outbox (sequence);
CREATE INDEX outbox_since ON outbox (since_ms);
CREATE TABLE set_aside (
    sequence INTEGER PRIMARY KEY,
    reason TEXT NOT NULL,
    fact BLOB NOT NULL
) STRICT;
PRAGMA user_version = {VERSION};
COMMIT;
"""

WRITE_RUN: Final = """
INSERT INTO run (only, boot_id, epoch, counters, checksum) VALUES (1, ?, ?, ?, ?)
ON CONFLICT (only) DO UPDATE SET boot_id = excluded.boot_id, epoch = excluded.epoch,
    counters = excluded.counters, checksum = excluded.checksum
"""

# The older time stays: it says how long something has waited, however often it was rewritten.
WRITE_FACT: Final = """
INSERT INTO outbox (key, sequence, revision, since_ms, fact) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET sequence = excluded.sequence, revision = excluded.revision,
    since_ms = min(since_ms, excluded.since_ms), fact = excluded.fact
WHERE excluded.revision >= outbox.revision AND excluded.fact <> outbox.fact
"""

TRIM_SET_ASIDE: Final = """
DELETE FROM set_aside
WHERE sequence NOT IN (SELECT sequence FROM set_aside ORDER BY sequence DESC LIMIT ?)
"""

_CACHE_KIB: Final = 512
"""The counters' row is written whole and read once; the outbox is small."""

_DAMAGE_CODES: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_log = logging.getLogger(__name__)


class StateError(ExporterError):
    """The state file cannot be used at all; `detail` is the line to print."""


@dataclass(frozen=True, slots=True)
class Run:
    """What the last committed tick left: its boot, its epoch, its counters and their CRC-32."""

    boot_id: str
    epoch: str
    counters: bytes
    checksum: int


@dataclass(frozen=True, slots=True)
class Stored:
    """An open file and what it held.

    Attributes:
        run: None for a new file.
        last_sequence: The highest number an outbox row has.
        was_damaged: The file had to be replaced.
        rescued: Facts read out of the damaged one; they are not in the new file yet.
        lost_facts: Facts known to be lost in it; 1 stands for "some", where reading broke off.
    """

    connection: sqlite3.Connection
    run: Run | None
    last_sequence: int
    was_damaged: bool = False
    rescued: tuple[Fact, ...] = ()
    lost_facts: int = 0


def open_file(path: Path, lock_wait_seconds: float) -> Stored:
    """Open a state file, make a new one, or replace a damaged one.

    Raises:
        StateError: Locked by another process, or the place cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return _open_sound(path, lock_wait_seconds)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            _log.exception("state file %s: damaged; it is moved to %s.damaged", path, path)
        rescued, lost = _rescue(path)
        _move_aside(path)
        stored = _open_sound(path, lock_wait_seconds)
    except (OSError, sqlite3.OperationalError) as error:
        if "locked" in str(error):
            raise StateError(
                "state_locked",
                f"state file {path}: in use by another exporter; stop it, or give this one "
                "another file with --state-file",
            ) from error
        raise StateError(
            "state_unusable",
            f"state file {path}: {error}; give a writable place with --state-file",
        ) from error
    return replace(stored, was_damaged=True, rescued=rescued, lost_facts=lost)


def is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether SQLite says that the file is broken or is no database."""
    # The low byte is the primary code; the rest says where in SQLite it was noticed.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE_CODES


def _connect(path: Path, lock_wait_seconds: float) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=lock_wait_seconds, isolation_level=None, check_same_thread=False)


def _open_sound(path: Path, lock_wait_seconds: float) -> Stored:
    connection = _connect(path, lock_wait_seconds)
    try:
        # Exclusive: two exporters on one file would set each other's counters back.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        # A process that dies loses nothing with NORMAL; after a power cut the boot is another one anyway.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA cache_size = {-_CACHE_KIB}")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if version == 0 and tables == 0:
            connection.executescript(_SCHEMA)
            return Stored(connection, None, 0)
        _require_sound(connection, version)
        row = connection.execute("SELECT boot_id, epoch, counters, checksum FROM run").fetchone()
        (last,) = connection.execute(
            "SELECT max(coalesce((SELECT max(sequence) FROM outbox), 0), "
            "coalesce((SELECT max(sequence) FROM set_aside), 0))"
        ).fetchone()
    except BaseException:
        connection.close()
        raise
    return Stored(connection, None if row is None else Run(*row), last)


def _require_sound(connection: sqlite3.Connection, version: int) -> None:
    verdict = f"it has version {version}, this program writes {VERSION}"
    if version == VERSION:
        verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    if verdict != "ok":
        error = sqlite3.DatabaseError(verdict)
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error


def _rescue(path: Path) -> tuple[tuple[Fact, ...], int]:
    """What can still be read of the outbox of a damaged file, and how many facts could not."""
    facts: list[Fact] = []
    lost = 0
    connection = _connect(path, 0)
    try:
        for (line,) in connection.execute("SELECT fact FROM outbox ORDER BY rowid"):
            try:
                facts.append(decode_fact(line))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                lost += 1
    except sqlite3.DatabaseError as error:
        _log.warning("state file %s: its facts cannot all be read: %s", path, error)
        lost += 1
    finally:
        connection.close()
    return tuple(facts), lost


def _move_aside(path: Path) -> None:
    """Keep the damaged file for a person to look at; an older one makes room."""
    for suffix in ("-wal", "-shm", "-journal", ""):
        aside = path.with_name(f"{path.name}.damaged{suffix}")
        aside.unlink(missing_ok=True)
        source = path.with_name(path.name + suffix)
        if source.exists():
            source.replace(aside)
