"""Whether the exporter can keep its state: place, space, and who holds the file.

Invariant: a running exporter never notices. Its lock is asked for, not taken, and the file of a running
one is not opened by SQLite; a resting one is read as immutable, which makes no file beside it.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import struct
from pathlib import Path
from urllib.parse import quote

from exporter.checkup.finding import Line, Looked, finding, note, ok
from exporter.delivery import statefile

CHECK = "state file"
NEEDED_BYTES = 64 << 20
"""A week without accounting at 320 slices is some 16 MB; the WAL may need as much again."""

# SQLite's file format: where its processes lock (section "locking" of os_unix.c).
_LOCKS_AT = 0x4000_0000
_LOCKS_BYTES = 512
_FLOCK = struct.Struct("hhqqi4x")

_WAY_OUT = "give a writable place that outlives the pod with --state-file"


def look_at_state_file(path: Path) -> Looked[None]:
    """Look at the state file, or at the place where it will be."""
    return Looked([_looked(path)])


def _looked(path: Path) -> Line:
    if not path.exists():
        return _to_be_made(path)
    if not path.is_file():
        return finding(CHECK, f"{path}: is no file", _WAY_OUT)
    if not (os.access(path, os.R_OK | os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)):
        return finding(CHECK, f"{path}: it or its folder is not writable for this user", _WAY_OUT)
    return _space(path.parent) or _held(path) or _content(path)


def _to_be_made(path: Path) -> Line:
    folder = next((each for each in path.parents if each.exists()), Path("/"))
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return finding(CHECK, f"{path}: cannot be made, {folder} is not writable", _WAY_OUT)
    return _space(folder) or ok(CHECK, f"{path}: not there yet, can be made")


def _held(path: Path) -> Line | None:
    """Whose it is; a file with a log that was not taken in must not be read without it."""
    holder = _holder(path)
    if holder is not None:
        return ok(CHECK, f"{path}: writable, in use by {holder}")
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size:
        return note(CHECK, f"{path}: writable; no exporter holds it, the last one did not end cleanly")
    return None


def _space(folder: Path) -> Line | None:
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if free >= NEEDED_BYTES:
        return None
    return finding(
        CHECK,
        f"{folder}: {free >> 20} MiB free; facts that find no room are lost",
        f"make {NEEDED_BYTES >> 20} MiB free, or give another place with --state-file",
    )


def _holder(path: Path) -> str | None:
    """Who locks the file; asking (F_GETLK) takes no lock."""
    with path.open("rb") as file:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _LOCKS_AT, _LOCKS_BYTES, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    if kind == fcntl.F_UNLCK:
        return None
    # Pid 0 or below: a process of another pid namespace.
    return f"the exporter with pid {pid}" if pid > 0 else "an exporter"


def _content(path: Path) -> Line:
    damaged = f"{path}: writable, but damaged"
    way_out = f"nothing: the exporter moves it to {path.name}.damaged, saves its facts and begins anew"
    address = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(address, uri=True)
        try:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            waiting = 0
            if version == statefile.VERSION:
                (waiting,) = connection.execute("SELECT count(*) FROM outbox").fetchone()
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        return finding(CHECK, f"{damaged}: {error}", way_out)
    if verdict != "ok":
        return finding(CHECK, f"{damaged}: {verdict}", way_out)
    if version not in {0, statefile.VERSION}:
        return finding(CHECK, f"{path}: written by another version ({version})", way_out)
    return ok(CHECK, f"{path}: writable, no exporter holds it, {waiting} facts wait in it")
