"""What a running exporter holds, and how soon it is there: memory, descriptors, threads, first page.

Run: python -m benchmarks.exporter_footprint [--slices 10 100 320] [--seconds 20]

The node role runs as a process of its own against an API double over TLS, HAMi's tree, a process table
and scripted cards, with pynvml imported as on a real node. It is scraped every second while containers
write. Its resident memory is read from `/proc` after the first page and at the end. The start is measured
from the start of the process to the first page that shows every slice; `--once` from its start to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.exporter_stand import MIB, NODE, FullNode, cards_of, node_object
from lab.kube.double import ApiDouble

AT_MOST_MIB = 64
PATIENCE_S = 60.0
LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Footprint:
    """One exporter, with so many slices; `end_mib` after it was scraped for a while."""

    slices: int
    first_page_s: float
    once_s: float
    start_mib: float
    end_mib: float
    descriptors: int
    threads: int


class Stage:
    """A node and its API server, and the exporter's settings for them."""

    def __init__(self, folder: Path, slices: int, double: ApiDouble) -> None:
        self.slices = slices
        self.disk = FullNode(folder, slices)
        self.port = 0
        self._folder = folder
        self._double = double
        double.store.create("Namespace", {"metadata": {"name": "team", "uid": "ns"}})
        double.store.create("Node", node_object(slices))
        for pod in self.disk.pods():
            double.store.create("Pod", pod)

    def command(self, port: int, *flags: str) -> list[str]:
        """The exporter's command line."""
        settings = {
            "--cluster": "c1",
            "--node-name": NODE,
            "--kube-api-url": self._double.url,
            "--kube-ca-file": str(self._double.ca_file),
            "--kube-token-file": str(self._double.token_file),
            "--state-file": str(self._folder / "state.db"),
            "--container-roots": str(self.disk.tree),
            "--proc-root": str(self.disk.proc),
            "--mig-lock-file": str(self._folder / "no.lock"),
            "--listen-host": "127.0.0.1",
            "--listen-port": str(port),
        }
        words = [word for setting in settings.items() for word in setting]
        return [
            sys.executable,
            "-m",
            "benchmarks.exporter_alone",
            str(self.slices),
            *words,
            *flags,
        ]


@contextmanager
def staged(slices: int) -> Iterator[Stage]:
    """A node on disk with an API server."""
    with tempfile.TemporaryDirectory() as folder, ApiDouble(Path(folder) / "api") as double:
        stage = Stage(Path(folder), slices, double)
        try:
            yield stage
        finally:
            stage.disk.close()


def measure(slices: int, seconds: int) -> Footprint:
    """Run one exporter for a while."""
    with staged(slices) as stage:
        begun = time.perf_counter()
        once = subprocess.run(stage.command(0, "--once"), check=True, capture_output=True, text=True)
        once_s = time.perf_counter() - begun
        if not is_full(once.stdout, slices):
            raise SystemExit("--once did not show every slice")
        port = free_port()
        begun = time.perf_counter()
        with subprocess.Popen(stage.command(port)) as exporter:
            try:
                while not is_full(scrape(port), slices):
                    if time.perf_counter() - begun > PATIENCE_S or exporter.poll() is not None:
                        raise SystemExit("the exporter showed no full page")
                    time.sleep(LOOK_S)
                first_page_s = time.perf_counter() - begun
                start_mib = rss_mib(exporter.pid)
                for tick in range(seconds):
                    stage.disk.work(tick)
                    scrape(port)
                    time.sleep(1)
                process = Path(f"/proc/{exporter.pid}")
                return Footprint(
                    slices,
                    round(first_page_s, 2),
                    round(once_s, 2),
                    start_mib,
                    rss_mib(exporter.pid),
                    len(list((process / "fd").iterdir())),
                    len(list((process / "task").iterdir())),
                )
            finally:
                exporter.terminate()


def is_full(page: str, slices: int) -> bool:
    """Whether a page shows what every slice uses."""
    return page.count("\nslicemeter_slice_sm_seconds_total{") == slices and page.count(
        "\nslicemeter_device_power_watts{"
    ) == cards_of(slices)


def scrape(port: int) -> str:
    """The page; empty while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
            return text
    except OSError:
        return ""


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def rss_mib(pid: int) -> float:
    """What a process has in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    size = pages * os.sysconf("SC_PAGE_SIZE") / MIB
    return float(round(size, 1))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slices", type=int, nargs="+", default=[10, 100, 320])
    parser.add_argument("--seconds", type=int, default=20)
    options = parser.parse_args()
    heads = ("first page s", "--once s", "MiB first", "MiB end", "descriptors", "threads")
    print(f"{'slices':>7}" + "".join(f"{head:>14}" for head in heads))
    rows = []
    for slices in options.slices:
        found = asdict(measure(slices, options.seconds))
        rows.append(found)
        print(f"{slices:>7}" + "".join(f"{value:>14}" for value in list(found.values())[1:]))
    print(json.dumps({"benchmark": "footprint", "at_most_mib": AT_MOST_MIB, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
