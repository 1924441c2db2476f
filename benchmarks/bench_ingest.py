"""Taking facts in over HTTP, against a bare COPY and merge of the same rows on the same server.

Run: python benchmarks/bench_ingest.py [--facts 100000] [--rounds 3] [--clients 4] [--no-sqlite]

Two passes: new hours, then the same hours once more, each a revision later, as exporters send them while
an hour goes on. The floor copies the rows into an unlogged table and merges them into `usage_fact` where
they are newer, batch by batch, each committed: the least that storing them costs. On SQLite the floor is an
`executemany` of the same upsert. The service is the real one in a process of its own; clients post the same
rows as gzip NDJSON, made before the clock starts. Floor and service use fresh databases of the same schema,
indexes and policies, durable as in earnest. Needs Debian's package postgresql. The ratios are printed and
judged by whoever reads them; DESIGN asks for at least 0.4 of new hours on PostgreSQL.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
from msgspec import structs

from accounting.access.tokens import create_token
from accounting.access.viewer import COMMAND_LINE
from accounting.facts.kinds import SLICE_USAGE
from accounting.store.database import Database
from accounting.store.migrate import upgrade
from accounting.store.partitions import make_ahead
from accounting.tenants.registry import add_account, add_cluster
from contract.facts import (
    CONTENT_TYPE,
    FACTS_PATH,
    HEADER_KUBE_SYSTEM_UID,
    HEADER_SENT_AT,
    HEADER_SOURCE,
    MAX_FACTS_PER_BATCH,
    SliceUsageFact,
    canonical_bytes,
)
from contract.ids import ClusterCode, DeviceUuid, EpochId, NodeUid, PodUid
from contract.units import MS_PER_HOUR
from lab.postgresql import Server, running_server

CLUSTER = ClusterCode("bench")
SLICES_PER_NODE = 80


def usage(number: int, hour_ms: int) -> SliceUsageFact:
    """An hour of one of many slices, ten to a card and eighty to a node."""
    node = number // SLICES_PER_NODE
    return SliceUsageFact(
        cluster=CLUSTER,
        pod_uid=PodUid(f"7b1f8c1e-0000-4000-8000-{number:012x}"),
        container="main",
        device_uuid=DeviceUuid(f"GPU-9c0e5c1a-0000-4000-8000-{number // 10:012x}"),
        node_uid=NodeUid(f"5d3a9f20-0000-4000-8000-{node:012x}"),
        hour_ms=hour_ms,
        epoch=EpochId(f"{node:032x}"),
        revision=1,
        from_ms=hour_ms,
        to_ms=hour_ms + MS_PER_HOUR,
        covered_ms=MS_PER_HOUR - 1_000,
        unknown_ms=1_000,
        sm_ppm_ms=number % 1_000 * MS_PER_HOUR,
        sm_down_ppm_ms=0,
        mem_used_mib_ms=4_000 * MS_PER_HOUR,
        mem_peak_mib=4_096,
        energy_active_mj=number % 100_000,
        blocked_ms=0,
        over_limit_ms=0,
        source="nvml",
    )


@contextmanager
def fresh_books(server: Server) -> Iterator[tuple[str, str]]:
    """A migrated PostgreSQL database with a cluster: its URL, and a reporter's token for it."""
    with server.migrated() as name:
        url = server.url(name)
        yield url, open_books(url)


@contextmanager
def fresh_file() -> Iterator[tuple[str, str]]:
    """The same on SQLite."""
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/books.sqlite"
        database = Database(url)
        upgrade(database)
        database.close()
        yield url, open_books(url)


def open_books(url: str) -> str:
    """Register a cluster and make a reporter's token for it."""
    now_ms = time.time_ns() // 1_000_000
    by: dict[str, Any] = {"by": COMMAND_LINE, "now_ms": now_ms}
    database = Database(url)
    with database.writing() as session:
        make_ahead(session, now_ms=now_ms)
        for code, kind in (("acme", "tenant"), ("platform", "platform")):
            add_account(session, code, kind=kind, currency="EUR", time_zone="UTC", grace_days=3, **by)  # type: ignore[arg-type]
        add_cluster(session, CLUSTER, account="acme", platform_account="platform", **by)
        token = create_token(session, role="reporter", cluster=CLUSTER, **by)
    database.close()
    return token


COLUMNS = (*SLICE_USAGE.columns, "ingest_seq")
_KEYS = [column.name for column in SLICE_USAGE.key_columns]
_CHANGES = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name not in _KEYS)
_LISTED = ", ".join(COLUMNS)
_ON_CONFLICT = (
    f"ON CONFLICT ({', '.join(_KEYS)}) DO UPDATE SET {_CHANGES} "
    "WHERE (excluded.revision, excluded.covered_ms) > (usage_fact.revision, usage_fact.covered_ms)"
)


def rows_of(batches: Sequence[Sequence[SliceUsageFact]]) -> list[list[tuple[Any, ...]]]:
    """The batches as rows of the table."""
    return [
        [(*SLICE_USAGE.values_of(fact), number) for fact in batch]
        for number, batch in enumerate(batches, start=1)
    ]


def copy_seconds(url: str, passes: Sequence[Sequence[Sequence[SliceUsageFact]]]) -> list[float]:
    """COPY into an unlogged table and merge, a batch a transaction; the seconds of each pass."""
    merge = f"INSERT INTO usage_fact ({_LISTED}) SELECT {_LISTED} FROM staged {_ON_CONFLICT}".encode()
    took = []
    with psycopg.connect(url) as connection:
        # Row-level security is part of the table, for both alike.
        connection.execute("SELECT set_config('slicemeter.viewer', 'everything', false)")
        connection.execute("CREATE UNLOGGED TABLE staged (LIKE usage_fact)")
        connection.commit()
        for batches in passes:
            rows = rows_of(batches)
            start = time.perf_counter()
            for batch in rows:
                connection.execute("TRUNCATE staged")
                with connection.cursor().copy(f"COPY staged ({_LISTED}) FROM STDIN".encode()) as copy:
                    for row in batch:
                        copy.write_row(row)
                connection.execute(merge)
                connection.commit()
            took.append(time.perf_counter() - start)
    return took


def upsert_seconds(url: str, passes: Sequence[Sequence[Sequence[SliceUsageFact]]]) -> list[float]:
    """The same on SQLite: an upsert of many rows, a batch a transaction."""
    upsert = f"INSERT INTO usage_fact ({_LISTED}) VALUES ({', '.join('?' * len(COLUMNS))}) {_ON_CONFLICT}"
    id_at = COLUMNS.index("allocation_id")
    took = []
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        for batches in passes:
            rows = [
                [(*row[:id_at], row[id_at].hex, *row[id_at + 1 :]) for row in batch]
                for batch in rows_of(batches)
            ]
            start = time.perf_counter()
            for batch in rows:
                connection.executemany(upsert, batch)
                connection.commit()
            took.append(time.perf_counter() - start)
    return took


@contextmanager
def serving(url: str) -> Iterator[str]:
    """The real service on a free port; its address as HOST:PORT."""
    command = [sys.executable, "-m", "slicemeter", "accounting", "serve", "--listen", "127.0.0.1:0"]
    # Rating is measured elsewhere.
    options = ["--rate-interval", "86400", "--database", url]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip().removeprefix("listening on http://")
        finally:
            process.send_signal(signal.SIGTERM)


def post(address: str, token: str, bodies: Sequence[bytes]) -> int:
    """Post batches over one connection, as an exporter does; returns how many facts were stored."""
    connection = http.client.HTTPConnection(address)
    stored = 0
    for body in bodies:
        headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": CONTENT_TYPE,
            "Content-Encoding": "gzip",
            HEADER_SENT_AT: str(time.time_ns() // 1_000_000),
            HEADER_KUBE_SYSTEM_UID: "bench",
            HEADER_SOURCE: "role=cluster;epoch=bench;version=0",
        }
        connection.request("POST", FACTS_PATH, body, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != http.client.OK:
            raise SystemExit(f"the service answered {answer.status}: {text.decode()}")
        stored += json.loads(text)["stored"]
    connection.close()
    return stored


def http_seconds(
    url: str, token: str, passes: Sequence[Sequence[bytes]], clients: int, facts: int
) -> list[float]:
    """Post every batch, several at a time, to the real service; the seconds of each pass."""
    took = []
    with serving(url) as address, ThreadPoolExecutor(clients) as pool:
        for bodies in passes:
            start = time.perf_counter()
            posting = [pool.submit(post, address, token, bodies[of::clients]) for of in range(clients)]
            stored = sum(one.result() for one in posting)
            took.append(time.perf_counter() - start)
            if stored != facts:
                raise SystemExit(f"{facts} facts were sent, {stored} stored")
    return took


PASSES = ("new hours", "a revision later")


def measured(options: argparse.Namespace) -> dict[str, list[list[float]]]:
    """Seconds of each way, round and pass."""
    now_ms = time.time_ns() // 1_000_000
    hour_ms = now_ms - now_ms % MS_PER_HOUR - MS_PER_HOUR
    new = [usage(number, hour_ms) for number in range(options.facts)]
    later = [structs.replace(fact, revision=2, energy_active_mj=fact.energy_active_mj + 1) for fact in new]
    size = MAX_FACTS_PER_BATCH
    passes = [[facts[at : at + size] for at in range(0, len(facts), size)] for facts in (new, later)]
    bodies = [[gzip.compress(b"\n".join(map(canonical_bytes, batch)), 6) for batch in one] for one in passes]
    took: dict[str, list[list[float]]] = {}
    with running_server(is_durable=True) as server:
        for _ in range(options.rounds):
            with fresh_books(server) as (url, _token):
                took.setdefault("PostgreSQL, bare", []).append(copy_seconds(url, passes))
            with fresh_books(server) as (url, token):
                seconds = http_seconds(url, token, bodies, options.clients, len(new))
                took.setdefault("PostgreSQL, HTTP", []).append(seconds)
    for _ in range(0 if options.no_sqlite else options.rounds):
        with fresh_file() as (url, _token):
            took.setdefault("SQLite, bare", []).append(upsert_seconds(url, passes))
        with fresh_file() as (url, token):
            seconds = http_seconds(url, token, bodies, options.clients, len(new))
            took.setdefault("SQLite, HTTP", []).append(seconds)
    return took


def main() -> None:
    """Measure in turns and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--facts", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--no-sqlite", action="store_true", help="only PostgreSQL")
    options = parser.parse_args()
    took = measured(options)
    rates = {
        way: [options.facts / statistics.median(seconds) for seconds in zip(*rounds, strict=True)]
        for way, rounds in took.items()
    }
    print(f"{options.facts} hours of slices in batches of {MAX_FACTS_PER_BATCH}, {options.clients} clients,")
    print(f"median of {options.rounds} rounds, {os.cpu_count()} processors; rows/s, and of bare")
    print(f"{'':<20}" + "".join(f"{name:>24}" for name in PASSES))
    ratios: dict[str, list[float]] = {}
    for way, of_passes in rates.items():
        bare = rates[f"{way.partition(',')[0]}, bare"]
        ratios[way] = [round(rate / least, 2) for rate, least in zip(of_passes, bare, strict=True)]
        cells = zip(of_passes, ratios[way], strict=True)
        print(f"{way:<20}" + "".join(f"{rate:>16.0f}{ratio:>8.2f}" for rate, ratio in cells))
    result = {
        "benchmark": "ingest",
        "facts": options.facts,
        "passes": PASSES,
        "rows_per_second": {way: [round(rate) for rate in of_passes] for way, of_passes in rates.items()},
        "http_to_bare": ratios["PostgreSQL, HTTP"][0],
        "ratios": ratios,
        "at_least": 0.4,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
