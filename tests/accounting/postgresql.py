"""A real PostgreSQL of the test's own, on loopback, from Debian's package: started once, thrown away.

It sorts text as English dictionaries do, because a company's often does; the books must not care.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psycopg
import pytest

from accounting.store.database import Database
from accounting.store.migrate import upgrade

OLDEST = 15
OWNER = "postgres"
"""Who may run the programs: they refuse to run as root."""


def programs() -> Path:
    """The folder of the newest server's programs; without one the test is skipped, and fails in CI."""
    found = {
        int(path.parts[-3]): path.parent
        for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")
        if path.parts[-3].isdecimal() and int(path.parts[-3]) >= OLDEST
    }
    if not found:
        reason = f"no PostgreSQL {OLDEST} or newer; it comes with Debian's package postgresql"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found[max(found)]


@dataclass
class Server:
    """A running server, and the databases in it."""

    socket_folder: Path
    port: int
    numbers: Iterator[int] = field(default_factory=count)

    def url(self, name: str, user: str = OWNER) -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{name}"

    def execute(self, statement: str, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    @contextmanager
    def database(self, template: str = "template0") -> Iterator[str]:
        """A new database; gone at the end, whoever is still connected."""
        name = f"books_{next(self.numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield name
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    @contextmanager
    def migrated(self) -> Iterator[str]:
        """A database as `migrate` makes it, to be copied."""
        with self.database() as name:
            database = Database(self.url(name))
            upgrade(database)
            database.close()
            yield name


@contextmanager
def running_server() -> Iterator[Server]:
    """Start a server on a free port; stop it and remove all of it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="slicemeter-postgresql-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, OWNER, OWNER)
        bin_folder = programs()
        data = folder / "data"
        _run(
            [bin_folder / "initdb", "-D", data, "-U", OWNER, "--auth=trust", "--no-sync", "-E", "UTF8",
             "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US"]
        )  # fmt: skip
        with _started(bin_folder, data, folder) as port:
            yield Server(folder, port)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _started(bin_folder: Path, data: Path, folder: Path) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    settings = {
        "listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": folder, "fsync": "off",
        "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off", "max_connections": 60,
    }  # fmt: skip
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    control: list[str | Path] = [bin_folder / "pg_ctl", "-D", data, "-w"]
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
        done = subprocess.run(
            [*as_owner, *command], cwd="/", env=environment, stdout=output, stderr=output, check=False
        )
        if done.returncode:
            output.seek(0)
            pytest.fail(f"{command[0]} failed: {output.read().decode(errors='replace')}")
