"""A whole month of a large cluster: rate, close, verify, and the queries that a page makes.

Run: python benchmarks/bench_month.py [--sizes 1/250,1/125] [--nodes 1000] [--usage none|device|all]
     [--database postgresql|sqlite] [--jobs N] [--skip-verify] [--requests 20]

The month is October 2026 in Europe/Berlin; at size 1 it has 1,000 nodes × 8 cards × 10 slots with four
allocations a slot and day, told by both witnesses (`lab/scale`). It is written straight into the tables,
which is not counted. Rating runs as `slicemeter accounting rate` does, as the service's own role of a
server of the lab, durable as in earnest, with 1 GB of shared buffers; close and verify run in a process of
their own each. For each step: seconds, seconds of processor of our processes and of the server, and the
largest resident set of our processes together. Then the queries, through the API in process.
DESIGN asks of the full size on two cores that nobody else uses: rate and close in 10 minutes and 2 GiB,
at most 2.2 times the time for twice the data, queries in 100 ms (p95). Nothing is asserted here.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from fastapi.testclient import TestClient
from sqlalchemy import select
from sqlalchemy.engine import make_url

from accounting.access.tokens import create_token
from accounting.access.viewer import COMMAND_LINE
from accounting.api.app import create_app
from accounting.ledger.calendar import parse_month
from accounting.periods.close import Closed, close_period
from accounting.periods.rate import rate
from accounting.periods.verify import verify_month
from accounting.settings import Settings
from accounting.store.database import Database
from accounting.store.migrate import upgrade
from accounting.store.models import LedgerLine
from accounting.store.roles import grant_service
from lab.postgresql import OWNER, SERVICE, Server, running_server
from lab.scale.loading import USAGE_LOADED, load, open_books
from lab.scale.month import MONTH, NOW_MS

SERVER_SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "15min"}
GRACE_MS = 900_000
ACCOUNTS = ("company", "company-platform")
QUERIES = {
    "costs by tenant": "costs?period=2026-10&group_by=tenant",
    "costs by model": "costs?period=2026-10&group_by=model",
    "costs by day": "costs?period=2026-10&group_by=day",
    "costs by tenant and day": "costs?period=2026-10&group_by=tenant&group_by=day",
    "usage of an hour": "usage?from=2026-10-15T10:00:00Z&to=2026-10-15T11:00:00Z",
    "capacity of a day": "capacity?from=2026-10-15T00:00:00Z&to=2026-10-16T00:00:00Z",
    "statement of a tenant": "statements/2026-10?tenant=company/team-007",
    "explain a line": "explain/{line}",
    "invoices": "statements",
    "allocations, a page": "allocations?from=2026-10-15T10:00:00Z&to=2026-10-15T11:00:00Z&limit=100",
}
"""Under /api/v1/."""

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_LOOK_SECONDS = 0.05
_LOOKS_PER_SERVER_LOOK = 20


class Watch:
    """Looks at processes while something runs: their processor time, and the largest memory of ours."""

    def __init__(self, url: str) -> None:
        self._server = ServerTime(url)
        self.peak_bytes = 0
        self.seconds = self.ours_seconds = self.server_seconds = 0.0
        self._done = threading.Event()

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        self._server_began = self._server.seconds()
        self._ours_began = _ours_seconds()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self.seconds = time.perf_counter() - self._began
        self.ours_seconds = _ours_seconds() - self._ours_began
        self.server_seconds = max(0.0, self._server.seconds() - self._server_began)

    def _look(self) -> None:
        looks = 0
        while not self._done.wait(_LOOK_SECONDS):
            looks += 1
            if looks % _LOOKS_PER_SERVER_LOOK == 0:
                self._server.seconds()  # of a process that ends before the next look the rest is lost
            pids = [os.getpid(), *(child.pid for child in multiprocessing.active_children() if child.pid)]
            self.peak_bytes = max(self.peak_bytes, sum(map(_resident_bytes, pids)))


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _ours_seconds() -> float:
    """Processor time of this process and of those of its children that ended."""
    whole = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        spent = resource.getrusage(who)
        whole += spent.ru_utime + spent.ru_stime
    return whole


class ServerTime:
    """Processor time of the lab's server: of processes that ended, as it was when looked at last."""

    def __init__(self, url: str) -> None:
        port = make_url(url).port
        self._wanted = f"port={port}".encode()
        self._is_there = port is not None
        self._seen: dict[int, float] = {}

    def seconds(self) -> float:
        """Since the server began."""
        if not self._is_there:
            return 0.0
        parents = {pid for pid in _pids() if self._wanted in _read(pid, "cmdline")}
        for pid in _pids():
            fields = _read(pid, "stat").rpartition(b")")[2].split()
            if fields and (pid in parents or int(fields[1]) in parents):
                self._seen[pid] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
        return sum(self._seen.values())


def _pids() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdecimal()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _measured(step: Callable[[str, int], dict[str, Any]], url: str, jobs: int, answers: Any) -> None:
    """In a process of its own, so that no step has the memory of the one before."""
    with Watch(url) as watch:
        found = step(url, jobs)
    answers.send(
        {
            "seconds": round(watch.seconds, 1),
            "processor_seconds": round(watch.ours_seconds, 1),
            "server_seconds": round(watch.server_seconds, 1),
            "peak_mib": round(watch.peak_bytes / 2**20),
            **found,
        }
    )


def measure(step: Callable[[str, int], dict[str, Any]], url: str, jobs: int) -> dict[str, Any]:
    """What a step costs."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_measured, args=(step, url, jobs, theirs))
    process.start()
    theirs.close()
    try:
        answer: dict[str, Any] = ours.recv()
    except EOFError:
        raise SystemExit(f"{step.__name__} failed; see above") from None
    process.join()
    return answer


def step_rate(url: str, jobs: int) -> dict[str, Any]:
    """Rate all that is due."""
    rated = rate(Database(url), as_of_ms=NOW_MS, grace_ms=GRACE_MS, jobs=jobs)
    return {"rows": rated.lines}


def step_close(url: str, jobs: int) -> dict[str, Any]:
    """Close both accounts."""
    database, month = Database(url), parse_month(MONTH)
    for account in ACCOUNTS:
        closed = close_period(
            database, account, month, by=COMMAND_LINE, now_ms=NOW_MS, grace_ms=GRACE_MS, jobs=jobs
        )
        if not isinstance(closed, Closed):
            raise SystemExit(f"{account} cannot be closed: {[one.detail for one in closed.blockers]}")
    return {"rows": len(ACCOUNTS)}


def step_verify(url: str, jobs: int) -> dict[str, Any]:
    """Verify the closed month."""
    verified = verify_month(Database(url), parse_month(MONTH), jobs=jobs)
    if not verified.holds:
        raise SystemExit(f"the month does not hold: {verified.findings[:3]}")
    return {"rows": verified.lines}


def measure_queries(url: str, requests: int) -> dict[str, dict[str, float]]:
    """p50 and p95 in milliseconds of each query, warm."""
    database = Database(url)
    with database.writing() as session:
        token = create_token(session, role="admin", by=COMMAND_LINE, now_ms=NOW_MS)
        line = session.scalar(select(LedgerLine.id).where(LedgerLine.kind == "usage").limit(1))
    app = create_app(Settings(), database=database, clock=lambda: NOW_MS)
    found = {}
    with TestClient(app, headers={"Authorization": f"Bearer {token}"}) as client:
        for name, path in QUERIES.items():
            took = []
            for _ in range(requests + 1):
                start = time.perf_counter()
                answer = client.get(f"/api/v1/{path.format(line=line)}")
                took.append((time.perf_counter() - start) * 1_000)
                if answer.status_code != 200:
                    raise SystemExit(f"{path} answered {answer.status_code}: {answer.text[:300]}")
                if took[-1] > 20_000:
                    break  # it will not become better, and there are others
            took = sorted(took[1:] or took)
            p95 = took[min(len(took) - 1, round(0.95 * len(took)))]
            found[name] = {"p50_ms": round(statistics.median(took), 1), "p95_ms": round(p95, 1)}
    database.close()
    return found


@contextmanager
def books(kind: str, server: Server | None) -> Iterator[tuple[str, str]]:
    """New books: their URL for whoever loads them, and for whoever works with them."""
    if server is None:
        with TemporaryDirectory(prefix="slicemeter-month-") as folder:
            url = f"sqlite:///{folder}/books.sqlite"
            database = Database(url)
            upgrade(database)
            open_books(database)
            database.close()
            yield url, url
        return
    assert kind == "postgresql"
    with server.database() as name:
        database = Database(server.url(name))
        upgrade(database)
        open_books(database)
        grant_service(database, SERVICE)
        database.close()
        yield server.url(name, OWNER), server.url(name, SERVICE)


def run_size(size: Fraction, options: argparse.Namespace, server: Server | None) -> dict[str, Any]:
    """Load one size and measure all steps on it."""
    nodes = max(1, round(options.nodes * size))
    with books(options.database, server) as (loading, working):
        start = time.perf_counter()
        database = Database(loading)
        loaded = load(database, nodes=nodes, usage=options.usage, progress=lambda _done, _total: None)
        database.close()
        print(f"size {size}: loaded {loaded} in {time.perf_counter() - start:.0f} s", file=sys.stderr)
        result: dict[str, Any] = {
            "size": str(size),
            "cards": loaded.cards,
            "allocation_reports": loaded.allocation_reports,
            "device_hours": loaded.device_hours,
            "slice_hours": loaded.slice_hours,
        }
        steps = {"rate": step_rate, "close": step_close} | (
            {} if options.skip_verify else {"verify": step_verify}
        )
        for name, step in steps.items():
            result[name] = measure(step, working, options.jobs)
            print(f"  {name}: {result[name]}", file=sys.stderr)
        result["lines"] = result["rate"]["rows"]
        result["queries"] = measure_queries(working, options.requests) if options.requests else {}
    return result


def print_table(results: list[dict[str, Any]]) -> None:
    """What each step cost at each size, and how it grew."""
    steps = [name for name in ("rate", "close", "verify") if name in results[0]]
    head = f"{'size':>6}{'cards':>7}{'lines':>11}"
    print(head + "".join(f"{name:>10}{'cpu':>8}{'server':>8}{'MiB':>6}" for name in steps) + f"{'growth':>8}")
    before: dict[str, Any] | None = None
    for one in results:
        row = f"{one['size']:>6}{one['cards']:>7}{one['lines']:>11}"
        for name in steps:
            cost = one[name]
            row += f"{cost['seconds']:>9.1f}s{cost['processor_seconds']:>8.1f}{cost['server_seconds']:>8.1f}"
            row += f"{cost['peak_mib']:>6}"
        if before is not None:
            row += f"{one['growth']:>8.2f}"
        print(row)
        before = one
    for name in results[-1]["queries"]:
        cells = (
            f"{one['queries'][name]['p50_ms']:>10.1f}{one['queries'][name]['p95_ms']:>10.1f}"
            for one in results
        )
        print(f"{name:<26}{''.join(cells)}  ms (p50, p95 by size)")


def main() -> None:
    """Measure the sizes and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="1/250,1/125", help="parts of the full size, smallest first")
    parser.add_argument("--nodes", type=int, default=1_000, help="of the full size")
    parser.add_argument("--usage", choices=USAGE_LOADED, default="none", help="measurements to load")
    parser.add_argument("--database", choices=("postgresql", "sqlite"), default="postgresql")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--skip-verify", action="store_true")
    parser.add_argument("--requests", type=int, default=20, help="of each query; 0: none")
    options = parser.parse_args()
    sizes = [Fraction(text) for text in options.sizes.split(",")]
    results: list[dict[str, Any]] = []

    def run(server: Server | None) -> None:
        for size in sizes:
            result = run_size(size, options, server)
            if results:
                before = results[-1]
                took = [sum(one[name]["seconds"] for name in ("rate", "close")) for one in (before, result)]
                larger = Fraction(result["cards"], before["cards"])
                # As if the size had doubled, whatever the step between the sizes was.
                result["growth"] = round((took[1] / took[0]) ** (1 / _doublings(larger)), 2)
            results.append(result)

    if options.database == "postgresql":
        with running_server(is_durable=True, settings=SERVER_SETTINGS) as server:
            run(server)
    else:
        run(None)
    print(
        f"October 2026, measurements loaded: {options.usage}; {options.database}, {options.jobs} processes, "
    )
    print(f"{os.cpu_count()} processors, load average before and while: {os.getloadavg()[2]:.1f}")
    print_table(results)
    print(json.dumps({"benchmark": "month", "database": options.database, "usage": options.usage,
                      "jobs": options.jobs, "sizes": results, "growth_at_most": 2.2}))  # fmt: skip


def _doublings(larger: Fraction) -> float:
    return math.log2(larger)


if __name__ == "__main__":
    main()
