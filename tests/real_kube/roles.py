"""The exporter's roles as their users run them, against a genuine API server."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from tests.exporter.node.program import free_port
from tests.exporter.node.stand import Page
from tests.real_kube.servers import Process, RealCluster, wait_until

Role = Literal["node", "cluster"]
GRANTED: Mapping[Role, tuple[str, ...]] = {
    "node": ("pods", "nodes", "namespaces"),
    "cluster": ("pods", "nodes", "namespaces", "events", "resourcequotas"),
}
CARD = "GPU-859b872c-0ba2-97b0-10b4-8b7185c55039"
NODE = "gpu-1"
REGISTER = f"{CARD},10,15360,100,NVIDIA-Tesla T4,0,true,0,hami-core:"


def command(cluster: RealCluster, role: Role, folder: Path, token: Path, /, **more: str) -> list[str]:
    """The settings of a role, as words."""
    settings = {
        "cluster": "c1",
        "kube-api-url": cluster.url,
        "kube-ca-file": str(cluster.ca_file),
        "kube-token-file": str(token),
        "state-file": str(folder / f"{role}.db"),
    }
    if role == "node":
        settings |= {"node-name": NODE, "container-roots": str(folder / "none"), "proc-root": ""}
    settings |= {name.replace("_", "-"): value for name, value in more.items()}
    return [word for name, value in settings.items() for word in (f"--{name}", value)]


class Exporter:
    """A running role and its page."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self.port = port

    def get(self, path: str) -> tuple[int, str]:

        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def wait_for(self, condition: Callable[[Page], object], what: str) -> Page:
        """The first page for which the condition holds."""
        pages = [Page("")]

        def holds() -> object:
            assert self.process.is_running(), self.log()
            pages[0] = Page(self.get("/metrics")[1])
            return condition(pages[0])

        try:
            wait_until(holds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{pages[0].text}\n{self.log()}") from None
        return pages[0]

    def log(self) -> str:
        return self.process.log.read_text()


@contextmanager
def running(
    cluster: RealCluster, role: Role, folder: Path, token: Path, /, **more: str
) -> Iterator[Exporter]:
    """A role until the end of the block."""
    port = free_port()
    words = command(cluster, role, folder, token, listen_host="127.0.0.1", listen_port=str(port), **more)
    process = Process(
        folder / f"{role}-{port}.log", [sys.executable, "-m", "slicemeter", "exporter", role, *words]
    )
    process.start()
    try:
        yield Exporter(process, port)
    finally:
        process.stop()


def check(cluster: RealCluster, role: Role, folder: Path, token: Path) -> subprocess.CompletedProcess[str]:
    """`slicemeter exporter check`."""
    words = command(cluster, role, folder, token)
    words = [sys.executable, "-m", "slicemeter", "exporter", "check", "--role", role, "--json", *words]
    return subprocess.run(words, capture_output=True, text=True, check=False)
