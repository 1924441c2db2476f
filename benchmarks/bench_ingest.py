"""Taking facts in over HTTP on PostgreSQL, against a bare COPY and merge of the same rows.

Run: python benchmarks/bench_ingest.py [--facts 100000] [--rounds 3] [--clients 4] [--json]

The floor copies the rows into an unlogged table and merges them into `usage_fact` where they are newer,
batch by batch, each committed: the least that storing them costs. The service is the real one in a
process of its own; clients post the same rows as gzip NDJSON, made before the clock starts. Both use one
server of the lab, durable as in earnest, and fresh databases of the same schema. Needs Debian's package
postgresql. The ratio is printed and judged by whoever reads it; DESIGN asks for at least 0.4.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg

from accounting.access.tokens import create_token
from accounting.access.viewer import COMMAND_LINE
from accounting.facts.kinds import SLICE_USAGE
from accounting.store.database import Database
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
def fresh_books(server: Server) -> Iterator[tuple[Database, str]]:
    """A migrated database with a cluster, and a reporter's token for it."""
    now_ms = time.time_ns() // 1_000_000
    with server.migrated() as name:
        database = Database(server.url(name))
        by: dict[str, Any] = {"by": COMMAND_LINE, "now_ms": now_ms}
        with database.writing() as session:
            make_ahead(session, now_ms=now_ms)
            for code, kind in (("acme", "tenant"), ("platform", "platform")):
                add_account(session, code, kind=kind, currency="EUR", time_zone="UTC", grace_days=3, **by)  # type: ignore[arg-type]
            add_cluster(session, CLUSTER, account="acme", platform_account="platform", **by)
            token = create_token(session, role="reporter", cluster=CLUSTER, **by)
        yield database, token
        database.close()


def floor_seconds(url: str, batches: Sequence[Sequence[SliceUsageFact]]) -> float:
    """COPY into an unlogged table and merge, a batch a transaction."""
    names = [column.name for column in SLICE_USAGE.table.columns]
    keys = [column.name for column in SLICE_USAGE.key_columns]
    rows = [
        [
            [row[name] for name in names]
            for row in (SLICE_USAGE.row_of(fact) | {"ingest_seq": number} for fact in batch)
        ]
        for number, batch in enumerate(batches, start=1)
    ]
    changes = ", ".join(f"{name} = excluded.{name}" for name in names if name not in keys)
    listed = ", ".join(names)
    merge = (
        f"INSERT INTO usage_fact ({listed}) SELECT {listed} FROM staged ON CONFLICT ({', '.join(keys)}) "
        f"DO UPDATE SET {changes} "
        "WHERE (excluded.revision, excluded.covered_ms) > (usage_fact.revision, usage_fact.covered_ms)"
    ).encode()
    with psycopg.connect(url) as connection:
        # Row-level security is part of the table, for both alike.
        connection.execute("SELECT set_config('slicemeter.viewer', 'everything', false)")
        connection.execute("CREATE UNLOGGED TABLE staged (LIKE usage_fact)")
        connection.commit()
        start = time.perf_counter()
        for batch in rows:
            connection.execute("TRUNCATE staged")
            with connection.cursor().copy(f"COPY staged ({listed}) FROM STDIN".encode()) as copy:
                for row in batch:
                    copy.write_row(row)
            connection.execute(merge)
            connection.commit()
        return time.perf_counter() - start


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


def http_seconds(url: str, token: str, bodies: Sequence[bytes], clients: int, facts: int) -> float:
    """Post every batch, several at a time, to the real service."""
    with serving(url) as address, ThreadPoolExecutor(clients) as pool:
        start = time.perf_counter()
        stored = sum(pool.map(lambda of: post(address, token, bodies[of::clients]), range(clients)))
        took = time.perf_counter() - start
    if stored != facts:
        raise SystemExit(f"{facts} facts were sent, {stored} stored")
    return took


def main() -> None:
    """Measure in turns and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--facts", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args()
    now_ms = time.time_ns() // 1_000_000
    hour_ms = now_ms - now_ms % MS_PER_HOUR - MS_PER_HOUR
    facts = [usage(number, hour_ms) for number in range(options.facts)]
    batches = [facts[at : at + MAX_FACTS_PER_BATCH] for at in range(0, len(facts), MAX_FACTS_PER_BATCH)]
    bodies = [gzip.compress(b"\n".join(map(canonical_bytes, batch)), 6) for batch in batches]
    took: dict[str, list[float]] = {"bare COPY + merge": [], "over HTTP": []}
    with running_server(is_durable=True) as server:
        for _ in range(options.rounds):
            with fresh_books(server) as (database, _token):
                took["bare COPY + merge"].append(floor_seconds(_plain(database), batches))
            with fresh_books(server) as (database, token):
                took["over HTTP"].append(
                    http_seconds(_plain(database), token, bodies, options.clients, len(facts))
                )
    rates = {name: len(facts) / statistics.median(seconds) for name, seconds in took.items()}
    ratio = rates["over HTTP"] / rates["bare COPY + merge"]
    print(f"{len(facts)} hours of slices in batches of {MAX_FACTS_PER_BATCH}, {options.clients} clients, ")
    print(f"median of {options.rounds} rounds, {os.cpu_count()} processors")
    print(f"{'':<20}{'rows/s':>10}{'of bare':>10}")
    for name, rate in rates.items():
        print(f"{name:<20}{rate:>10.0f}{rate / rates['bare COPY + merge']:>10.2f}")
    result = {
        "benchmark": "ingest",
        "facts": len(facts),
        "rows_per_second": {name: round(rate) for name, rate in rates.items()},
        "http_to_bare": round(ratio, 2),
        "at_least": 0.4,
    }
    print(json.dumps(result))


def _plain(database: Database) -> str:
    return database.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)


if __name__ == "__main__":
    main()
