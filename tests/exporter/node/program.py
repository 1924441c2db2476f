"""The node exporter as its users run it: a process of its own, found by its page."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from lab.kube.double import ApiDouble
from tests.exporter.node.stand import NODE, Page

PATIENCE_S = 60.0


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Program:
    """One exporter process; it is killed at the end of the `with` block, and can be started again.

    Args:
        folder: Has `containers`; the state file is made there.
        double: Its API server.
        environ: Its environment; None = ours.
        flags: Further settings, or others than those here.
        code: Python to run in place of the shipped command; it finds the role and the flags in `sys.argv`.
    """

    def __init__(
        self,
        folder: Path,
        double: ApiDouble,
        *,
        environ: Mapping[str, str] | None = None,
        flags: Mapping[str, str] | None = None,
        code: str | None = None,
    ) -> None:
        self.port = free_port()
        self.log = folder / f"exporter-{self.port}.log"
        given = {
            "--cluster": "c1",
            "--node-name": NODE,
            "--kube-api-url": double.url,
            "--kube-ca-file": str(double.ca_file),
            "--kube-token-file": str(double.token_file),
            "--state-file": str(folder / "state.db"),
            "--container-roots": str(folder / "containers"),
            "--proc-root": "",
            "--mig-lock-file": str(folder / "mig.lock"),
            "--listen-host": "127.0.0.1",
            "--listen-port": str(self.port),
        } | dict(flags or {})
        words = [word for flag in given.items() for word in flag]
        entry = ["-m", "slicemeter", "exporter"] if code is None else ["-c", code]
        self._command = [sys.executable, *entry, "node", *words]
        self._environ = None if environ is None else dict(environ)
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stderr=log, env=self._environ)

    def kill(self) -> None:
        """`kill -9`."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def wait_for(self, condition: Callable[[Page], bool]) -> Page:
        """The first page for which the condition holds."""
        deadline, page = time.monotonic() + PATIENCE_S, Page("")
        while time.monotonic() < deadline:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            page = Page(self.get("/metrics")[1])
            if condition(page):
                return page
            threading.Event().wait(0.05)
        raise AssertionError("the condition never held; the last page:\n" + page.text)
