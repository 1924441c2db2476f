"""What a scrape costs over HTTP: the real server on a node of 16 devices with 20 slices each.

Run it with `python -m benchmarks.exporter_scrape`; it prints a table, then one JSON line. Scrapers are
processes of their own and ask at the same moment: for the same page again, for a new one that was made
ahead as for a scraper that comes regularly, and for a new one that somebody has to make first. Times are of
this machine and are printed, never asserted; only that every answer is whole is checked.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import socket
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection

from contract.catalogue import UNKNOWN_REASONS
from contract.ids import DeviceUuid, PodUid
from contract.units import MIB
from exporter.delivery.metrics import DeliveryMetrics
from exporter.exposition.board import Board, Draft
from exporter.exposition.collector import Exposition
from exporter.exposition.pages import Pages, Scrape
from exporter.exposition.server import MetricsServer
from exporter.node.metering.counters import Labels, OwnerKey
from exporter.node.metering.meter import Rate
from exporter.node.showing.page import make_page
from exporter.node.snapshot import (
    DeviceTotals,
    DeviceView,
    OwnerTotals,
    RegionGauges,
    SliceGauges,
    SliceView,
    Snapshot,
)
from exporter.nvidia.source import DeviceReading

DEVICES = 16
SLICES_PER_DEVICE = 20
SNAPSHOTS = 20
WARM_UP_ROUNDS = 5
GIB = 1 << 30
MOST_BYTES = 16 * MIB
"""Far more than a page has."""

SHOW = "show"
"""The order to look at what came."""


@dataclass(frozen=True, slots=True)
class Row:
    """One case; times are milliseconds, as the scraper sees them, connection included."""

    page: str
    encoding: str
    scrapers: int
    body_bytes: int
    p50_ms: float
    p99_ms: float
    cpu_ms_a_scrape: float


@dataclass(frozen=True, slots=True)
class Served:
    """What is scraped."""

    board: Board
    pages: Pages
    snapshots: Sequence[Snapshot]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a scraper got."""

    seconds: float
    body_bytes: int
    is_whole: bool


def make_snapshot(tick: int) -> Snapshot:
    """A node at work at one tick: counters grow, half of the gauges move."""
    devices, slices = [], []
    for index in range(DEVICES):
        uuid = DeviceUuid(f"GPU-{index:08x}-1c2d-4e5f-8a9b-0c1d2e3f4a5b")
        devices.append(_device(uuid, index, tick))
        slices += [_slice(uuid, index, number, tick) for number in range(SLICES_PER_DEVICE)]
    return Snapshot(1_790_000_000_000 + tick * 1_000, "gpu-node-7.example", tuple(devices), tuple(slices))


def _device(uuid: DeviceUuid, index: int, tick: int) -> DeviceView:
    reading = DeviceReading(
        uuid=uuid,
        index=index,
        model="NVIDIA A100",
        driver_version="550.163.01",
        memory_total_bytes=80 * GIB,
        memory_used_bytes=40 * GIB + tick * MIB,
        memory_reserved_bytes=500 * MIB,
        utilization_percent=50 + tick % 50,
        power_mw=250_000 + tick,
        temperature_celsius=60,
        sm_clock_hz=1_410_000_000,
        memory_clock_hz=1_593_000_000,
    )
    return DeviceView(
        uuid=uuid,
        model="NVIDIA A100",
        vendor="NVIDIA",
        index=index,
        mode="hami-core",
        registered_mib=81_920,
        slots=20,
        core_percent=100,
        allocated_mib=80_000,
        slots_allocated=20,
        core_allocated_percent=100,
        reading=reading,
        memory_unattributed_bytes=tick * MIB,
        down_reason=None,
        totals=DeviceTotals(
            tick * 654_321_987, tick * 1_234, tick * 250_123, tick * 17, is_measured=True, has_energy=True
        ),
    )


def _slice(uuid: DeviceUuid, index: int, number: int, tick: int) -> SliceView:
    team, pod = f"team-{number % 5}", f"training-job-{index}-{number}-7d9f8b6c5-x2x4z"
    key = OwnerKey(PodUid(f"0d9ad4a1-9b58-4f66-8d0a-{index:06x}{number:06x}"), "main", uuid, is_slice=True)
    labels = Labels(team, pod, "main", team, "NVIDIA A100")
    region = RegionGauges(
        layout="v1.2",
        priority=1,
        limit_bytes=4_000 * MIB,
        sm_limit_percent=5,
        switch=1,
        context_bytes=300 * MIB,
        module_bytes=40 * MIB,
        data_bytes=tick * MIB,
        last_kernel_s=1_790_000_000 + tick,
    )
    gauges = SliceGauges(
        key=key,
        labels=labels,
        allocated_mib=4_000,
        core_percent=5,
        slots=1,
        held_from_ms=number,
        policy="default",
        enforcement="hami-core",
        memory_source="region",
        used_bytes=(400 + tick) * MIB,
        processes=2,
        stale_processes=0,
        region=region,
    )
    totals = OwnerTotals(
        sm_ppm_ms=tick * 49_876_543 + number,
        memory_used_byte_ms=tick * 400 * MIB * 1_000,
        memory_allocated_byte_ms=tick * 4_000 * MIB * 1_000,
        memory_peak_bytes=900 * MIB,
        energy_active_mj=tick * 12_345 + number,
        energy_idle_mj=tick * 678,
        blocked_ms=0,
        over_limit_ms=0,
        unknown_ms=dict.fromkeys(UNKNOWN_REASONS, 0),
        is_measured=True,
    )
    return SliceView(key, labels, gauges, totals, Rate(50_000 + tick, "nvml"), has_energy=True)


def scraper(port: int, orders: Connection) -> None:
    """Scrape once for each order, in a process of its own; the order is the `Accept-Encoding` header.

    What came is looked at when the next order asks for it: then all others have theirs, and the work does
    not take the processor from the server while it is measured.
    """
    buffer = memoryview(bytearray(MOST_BYTES))
    while (encoding := orders.recv()) is not None:
        request = f"GET /metrics HTTP/1.0\r\nAccept-Encoding: {encoding}\r\n\r\n".encode()
        began = time.perf_counter()
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(request)
            length = 0
            while count := connection.recv_into(buffer[length:]):
                length += count
        orders.send(time.perf_counter() - began)
        assert orders.recv() == SHOW
        head, _, body = bytes(buffer[:length]).partition(b"\r\n\r\n")
        text = gzip.decompress(body) if encoding == "gzip" else body
        is_whole = head.split(maxsplit=2)[1] == b"200" and text.count(b"\nslicemeter_slice_info{") == (
            DEVICES * SLICES_PER_DEVICE
        )
        orders.send((len(body), is_whole))


@contextmanager
def scrapers(port: int, number: int) -> Iterator[list[Connection]]:
    """Scrapers that wait for orders."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(number)]
    processes = [context.Process(target=scraper, args=(port, theirs)) for _, theirs in pipes]
    for process in processes:
        process.start()
    try:
        yield [ours for ours, _ in pipes]
    finally:
        for ours, _ in pipes:
            ours.send(None)
        for process in processes:
            process.join()


def measure(served: Served, orders: Sequence[Connection], encoding: str, page: str, rounds: int) -> Row:
    """Let all scrapers ask at once, many times."""
    answers: list[Answer] = []
    cpu_s = 0.0
    for number in range(WARM_UP_ROUNDS + rounds):
        if page != "same" or number == 0:
            snapshot = served.snapshots[number % len(served.snapshots)]
            served.board.publish(Draft(lambda snapshot=snapshot: make_page(snapshot)))  # type: ignore[misc]
        if page == "ahead":
            # As the sampler does for those that it expects.
            served.pages.metrics(Scrape(gzip=encoding == "gzip"))
        began_s = time.process_time()
        for each in orders:
            each.send(encoding)
        took_s = [each.recv() for each in orders]
        spent_s = time.process_time() - began_s
        for each in orders:
            each.send(SHOW)
        got = [Answer(seconds, *each.recv()) for each, seconds in zip(orders, took_s, strict=True)]
        if number >= WARM_UP_ROUNDS:
            cpu_s += spent_s
            answers += got
    if not all(answer.is_whole for answer in answers):
        raise SystemExit("a page was not whole")
    milliseconds = sorted(answer.seconds * 1_000 for answer in answers)
    return Row(
        page=page,
        encoding=encoding,
        scrapers=len(orders),
        body_bytes=answers[-1].body_bytes,
        p50_ms=statistics.median(milliseconds),
        p99_ms=milliseconds[int(len(milliseconds) * 0.99)],
        cpu_ms_a_scrape=cpu_s * 1_000 / len(answers),
    )


def main() -> int:
    """Print the table and the JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    snapshots = [make_snapshot(tick) for tick in range(1, SNAPSHOTS + 1)]
    series = sum(len(family.values) for family in make_page(snapshots[0]).families)
    board = Board()
    exposition = Exposition(board, "node")
    DeliveryMetrics(exposition.registry)
    server = MetricsServer(exposition, lambda: (True, []), host="127.0.0.1", port=0)
    server.start()
    served = Served(board, server.pages, snapshots)
    rows = []
    try:
        for number in (1, 4):
            with scrapers(server.port, number) as orders:
                rows += [
                    measure(served, orders, encoding, page, options.rounds)
                    for encoding in ("identity", "gzip")
                    for page in ("same", "ahead", "new")
                ]
    finally:
        server.stop()
    print(
        f"scrape {DEVICES} devices × {SLICES_PER_DEVICE} slices, {series} series; ms, {options.rounds} rounds"
    )
    print(
        f"{'scrapers':>8} {'encoding':<9} {'page':<6} {'bytes':>9} {'p50':>7} {'p99':>7} {'cpu/scrape':>11}"
    )
    for row in rows:
        print(
            f"{row.scrapers:>8} {row.encoding:<9} {row.page:<6} {row.body_bytes:>9} {row.p50_ms:>7.1f} "
            f"{row.p99_ms:>7.1f} {row.cpu_ms_a_scrape:>11.2f}"
        )
    print(json.dumps({"benchmark": "scrape", "series": series, "rows": [asdict(row) for row in rows]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
