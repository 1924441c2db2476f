"""A real Prometheus on loopback: for scraping our pages, and for asking about history made with promtool."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0


@contextmanager
def prometheus(program: str, folder: Path, *targets: tuple[int, str]) -> Iterator[str]:
    """A Prometheus over `folder/tsdb` that scrapes ports and paths each second; gives its address."""
    jobs = "".join(
        f"- job_name: job{port}\n  scrape_interval: 1s\n  scrape_timeout: 1s\n  metrics_path: {path}\n"
        f"  honor_labels: true\n  static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n"
        for port, path in targets
    )
    (folder / "prometheus.yml").write_text(f"scrape_configs:\n{jobs}" if jobs else "scrape_configs: []\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    process = subprocess.Popen(
        [
            program,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            "--storage.tsdb.retention.time=10y",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ],
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def make_blocks(promtool: str, folder: Path, openmetrics: str) -> None:
    """Turn a history into what a Prometheus over `folder/tsdb` has stored."""
    history = folder / "history.txt"
    history.write_text(openmetrics)
    done = subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", str(history), str(folder / "tsdb")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def ask(address: str, expression: str, at_s: float | None = None) -> list[dict[str, Any]]:
    """The result of a query, now or at a time; empty while nobody answers yet."""
    words = {"query": expression} if at_s is None else {"query": expression, "time": f"{at_s:.3f}"}
    return _asked(f"{address}/api/v1/query?{urllib.parse.urlencode(words)}")


def ask_over(
    address: str, expression: str, from_s: float, to_s: float, step_s: float
) -> list[dict[str, Any]]:
    """The result of a query at each step of a stretch of time."""
    words = {"query": expression, "start": f"{from_s:.3f}", "end": f"{to_s:.3f}", "step": f"{step_s:g}"}
    return _asked(f"{address}/api/v1/query_range?{urllib.parse.urlencode(words)}")


def wait_up(address: str) -> None:
    """Wait until it answers queries."""
    wait_for(address, "vector(1)")


def wait_for(address: str, expression: str, patience_s: float = PATIENCE_S) -> list[dict[str, Any]]:
    """The first result of a query that is not empty."""
    deadline = time.monotonic() + patience_s
    while not (found := ask(address, expression)):
        assert time.monotonic() < deadline, expression
        threading.Event().wait(0.2)
    return found


def values(series: Sequence[Any]) -> list[float]:
    """The values of one series of a range query."""
    return [float(value) for _, value in series]


def _asked(url: str) -> list[dict[str, Any]]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return found
    except OSError:
        return []
