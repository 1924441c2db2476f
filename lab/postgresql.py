"""A real PostgreSQL of one's own, on loopback, from Debian's package: started, used, thrown away.

Tests and benchmarks keep books in it. It sorts text as English dictionaries do, because a company's often
does; the books must not care. Invariant: nothing is left of it, and nothing of the host's own servers is
touched.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psycopg

from accounting.store.database import Database
from accounting.store.migrate import upgrade
from accounting.store.roles import grant_service

OLDEST = 15
OWNER = "postgres"
"""Who runs the programs, since they refuse to run as root; also the name of the server's superuser."""

MIGRATOR = "books_owner"
"""Who owns the tables and migrates them; row-level security holds for it too."""

SERVICE = "books_service"
"""Whom the service connects as: it owns nothing."""


class ServerMissingError(RuntimeError):
    """There is no PostgreSQL to start, or it does not start; the message says what to do."""


@dataclass
class Server:
    """A running server, and the databases in it."""

    port: int
    numbers: Iterator[int] = field(default_factory=count)

    def url(self, name: str, user: str = MIGRATOR) -> str:
        """The URL of a database, for one of the server's roles."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{name}"

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Run one statement as superuser, outside any transaction."""
        with psycopg.connect(self.url(database, OWNER), autocommit=True) as connection:
            connection.execute(statement.encode())

    def open_transactions(self, database: str) -> list[str]:
        """The last statements of transactions that somebody began in a database and did not end."""
        with psycopg.connect(self.url("postgres", OWNER)) as connection:
            found = connection.execute(
                "SELECT query FROM pg_stat_activity "
                "WHERE datname = %s AND state LIKE 'idle in transaction%%'",
                [database],
            )
            return [query for (query,) in found]

    @contextmanager
    def database(self, template: str = "template0") -> Iterator[str]:
        """A new database; gone at the end, whoever is still connected."""
        name = f"books_{next(self.numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} OWNER {MIGRATOR}")
        try:
            yield name
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    @contextmanager
    def migrated(self) -> Iterator[str]:
        """A database as `migrate` makes it."""
        with self.database() as name:
            database = Database(self.url(name))
            upgrade(database)
            grant_service(database, SERVICE)
            database.close()
            yield name


@contextmanager
def running_server(
    *, is_durable: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Start a server on a free port; stop it and remove all of it at the end.

    Args:
        is_durable: Whether a commit waits for the disk, as in earnest; tests need not.
        settings: Of `postgresql.conf`, besides our own.

    Raises:
        ServerMissingError: It is not installed, or does not start.
    """
    programs = _programs()
    folder = Path(tempfile.mkdtemp(prefix="slicemeter-postgresql-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, OWNER, OWNER)
        _run(
            [programs / "initdb", "-D", folder / "data", "-U", OWNER, "--auth=trust", "--no-sync",
             "-E", "UTF8", "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US"]
        )  # fmt: skip
        with _started(programs, folder, is_durable=is_durable, more=settings or {}) as port:
            server = Server(port)
            for role in (MIGRATOR, SERVICE):
                server.execute(f"CREATE ROLE {role} LOGIN")
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path:
    """The folder of the newest server's programs."""
    found = {
        int(path.parts[-3]): path.parent
        for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")
        if path.parts[-3].isdecimal() and int(path.parts[-3]) >= OLDEST
    }
    if not found:
        raise ServerMissingError(
            f"there is no PostgreSQL {OLDEST} or newer; it comes with Debian's package postgresql"
        )
    return found[max(found)]


@contextmanager
def _started(programs: Path, folder: Path, *, is_durable: bool, more: Mapping[str, str]) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    settings = {
        "listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": folder,
        "max_connections": 60,
    }  # fmt: skip
    if not is_durable:
        settings |= {
            "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off"
        }  # fmt: skip
    options = " ".join(f"-c {name}={value}" for name, value in (settings | dict(more)).items())
    control: list[str | Path] = [programs / "pg_ctl", "-D", folder / "data", "-w"]
    _run([*control, "-l", folder / "log", "-o", options, "start"])
    try:
        yield port
    finally:
        _run([*control, "-m", "immediate", "stop"])


def _run(command: Sequence[str | Path]) -> None:
    as_owner = ["runuser", "-u", OWNER, "--"] if os.geteuid() == 0 else []
    environment = os.environ | {"LC_ALL": "C.UTF-8"}
    # Not captured by a pipe: the server would inherit it, and its end never come.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(  # noqa: S603 - programs of the package, arguments of ours
            [*as_owner, *command], cwd="/", env=environment, stdout=output, stderr=output, check=False
        )
        if done.returncode:
            output.seek(0)
            said = " ".join(output.read().decode(errors="replace").split())
            raise ServerMissingError(f"{command[0]} failed: {said}")
