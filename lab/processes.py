"""The programs the demo runs beside itself: started, watched, killed and stopped by pid.

Each writes to a log of its own. Invariant: whatever happens, a program started here is ended here, and
one that dies on its own is reported by name with the last lines of its log.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

TAIL_LINES = 15
STOP_WITHIN_S = 10.0


class LabError(Exception):
    """The laboratory cannot go on; the text names the part, what happened, and where to look."""


class Program:
    """One child process, which may be started again under the same name.

    Args:
        name: How it is called in messages, `node lab-a`.
        argv: Its command line.
        log_path: Where its output goes; a second start appends.
        environ: Its environment; None: ours.
    """

    def __init__(
        self, name: str, argv: Sequence[str], log_path: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log_path = log_path
        self._argv = list(argv)
        self._environ = dict(os.environ if environ is None else environ)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The pid while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        """Start it (again)."""
        if self.pid is not None:
            raise LabError(f"{self.name} runs already, as pid {self.pid}")
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environ,
                start_new_session=True,  # Ctrl-C in the terminal is ours to pass on
            )

    def kill(self) -> None:
        """`kill -9`: it gets no chance to say goodbye."""
        # Forgotten first: another thread that checks must not take a wanted end for a failure.
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def check(self) -> None:
        """Raise `LabError` if it died although nobody stopped it."""
        process = self._process
        if process is not None and process.poll() is not None:
            raise LabError(
                f"{self.name} ended by itself with exit code {process.returncode}; "
                f"the end of its log {self.log_path}:\n{self.tail()}"
            )

    def tail(self) -> str:
        """The last lines of its log."""
        with contextlib.suppress(OSError):
            lines = self.log_path.read_text("utf-8", "replace").splitlines()
            return "\n".join(f"  {line}" for line in lines[-TAIL_LINES:])
        return "  (no log)"

    def wait(self, within_s: float) -> None:
        """Wait until it ends by itself.

        Raises:
            subprocess.TimeoutExpired: When it does not.
        """
        if self._process is not None:
            self._process.wait(within_s)

    def ask_to_stop(self) -> None:
        """SIGTERM, without waiting."""
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()

    def stop(self, within_s: float = STOP_WITHIN_S) -> None:
        """End it, politely first."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Household:
    """All programs of one run."""

    def __init__(self) -> None:
        self._programs: dict[str, Program] = {}

    def add(self, program: Program) -> Program:
        """Take a program in and start it."""
        self._programs[program.name] = program
        program.start()
        return program

    def __getitem__(self, name: str) -> Program:
        return self._programs[name]

    def pids(self) -> list[int]:
        """Those that run."""
        return [pid for program in self._programs.values() if (pid := program.pid) is not None]

    def check(self) -> None:
        """Raise `LabError` for the first that died by itself."""
        for program in self._programs.values():
            program.check()

    def stop(self, within_s: float = STOP_WITHIN_S) -> None:
        """End all: first all are asked, then each is waited for, and killed if it does not listen."""
        for program in self._programs.values():
            program.ask_to_stop()
        for program in self._programs.values():
            program.stop(within_s)


def free_port() -> int:
    """A loopback port nobody listens on right now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
