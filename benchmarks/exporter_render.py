"""What a page costs: our encoder against prometheus-client's, on 16 devices with 20 slices each.

Run it with `python -m benchmarks.exporter_render`; it prints a table, then one JSON line. Times are of this
machine and are printed, never asserted; only that both write the same bytes is checked.
"""

from __future__ import annotations

import gzip
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from contract.catalogue import Family, families_of
from exporter.exposition.board import Board
from exporter.exposition.collector import PageCollector
from exporter.exposition.encoder import PageEncoder
from exporter.exposition.page import NATIVE_FAMILIES, Page, PageBuilder

DEVICES = 16
SLICES_PER_DEVICE = 20
PAGES = 30
STOCK_ROUNDS = 7


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison; times are medians, milliseconds."""

    encoding: str
    series: int
    page_bytes: int
    stock_ms: float
    first_ms: float
    next_ms: float
    shared_ms: float
    ratio: float
    byte_equal: bool


def build_pages() -> list[Page]:
    """Pages of one node as ticks make them: the same series, other values."""
    chance = random.Random(1)
    families = [family for family in families_of("node") if family.name not in NATIVE_FAMILIES]
    series = [(family, labels) for family in families for labels in _labels(family)]
    pages = []
    for tick in range(PAGES):
        builder = PageBuilder()
        for family, labels in series:
            builder.add(family.name, labels, 1.0 if family.type == "info" else _value(family, chance))
        pages.append(builder.build(float(tick)))
    return pages


def _labels(family: Family) -> list[tuple[str, ...]]:
    """A node's series of a family; a closed label takes each of its words."""
    words = family.closed or ("word",)
    rows = []
    for device in range(DEVICES):
        uuid = f"GPU-{device:08x}-1c2d-4e5f-8a9b-0c1d2e3f4a5b"
        if family.group == "device":
            known = {"node": "gpu-node-7.example", "device_uuid": uuid}
            rows += [_row(family, known, word) for word in words]
        elif family.group == "slice":
            for number in range(SLICES_PER_DEVICE):
                pod = f"training-job-{device}-{number}-7d9f8b6c5-x2x4z"
                known = {"node": "gpu-node-7.example", "namespace": f"team-{number % 5}", "pod": pod}
                known |= {"container": "main", "device_uuid": uuid, "tenant": f"team-{number % 5}"}
                rows += [_row(family, known, word) for word in words]
    if family.group == "tenant":
        rows = [("gpu-node-7.example", f"team-{tenant}", "NVIDIA A100") for tenant in range(5)]
    elif family.group == "self":
        rows = [_row(family, {}, word) for word in words]
    return rows


def _row(family: Family, known: dict[str, str], word: str) -> tuple[str, ...]:
    return tuple(known.get(label, word) for label in family.labels)


def _value(family: Family, chance: random.Random) -> float:
    if family.name.endswith("_bytes"):
        return float(chance.randrange(0, 80 * 2**30, 2**20))
    if family.type == "counter":
        return chance.uniform(0, 1e7)
    return chance.choice([0.0, 1.0, chance.random()])


def milliseconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def compare(pages: list[Page], *, openmetrics: bool) -> Row:
    """Render the same pages in both ways."""
    board = Board()
    registry = CollectorRegistry()
    registry.register(PageCollector(board, "node"))

    def stock() -> bytes:
        if openmetrics:
            text: bytes = generate_openmetrics(registry)  # type: ignore[no-untyped-call]
            return text.removesuffix(b"# EOF\n")
        return generate_latest(registry)

    encoder = PageEncoder()
    byte_equal = True
    stock_ms: list[float] = []
    ours_ms: list[float] = []
    for number, page in enumerate(pages):
        board.publish(page)
        ours_ms.append(milliseconds(lambda page=page: encoder.render(page, openmetrics=openmetrics)))  # type: ignore[misc]
        if number < STOCK_ROUNDS:
            stock_ms.append(milliseconds(stock))
            byte_equal = byte_equal and stock() == encoder.render(page, openmetrics=openmetrics)
    last = pages[-1]
    shared_ms = milliseconds(lambda: encoder.render(last, openmetrics=openmetrics))
    next_ms = statistics.median(ours_ms[1:])
    return Row(
        encoding="openmetrics" if openmetrics else "text",
        series=sum(len(family.samples) for family in last.families),
        page_bytes=len(encoder.render(last, openmetrics=openmetrics)),
        stock_ms=statistics.median(stock_ms),
        first_ms=ours_ms[0],
        next_ms=next_ms,
        shared_ms=shared_ms,
        ratio=statistics.median(stock_ms) / next_ms,
        byte_equal=byte_equal,
    )


def main() -> int:
    """Print the table and the JSON line; 1 if the bytes differ."""
    pages = build_pages()
    rows = [compare(pages, openmetrics=openmetrics) for openmetrics in (False, True)]
    print(f"render {DEVICES} devices × {SLICES_PER_DEVICE} slices, {rows[0].series} series; ms, medians")
    heads = f"{'stock':>8} {'first':>8} {'next':>8} {'again':>8} {'ratio':>7}"
    print(f"{'encoding':<12} {'bytes':>9} {heads}  equal")
    for row in rows:
        verdict = "yes" if row.byte_equal else "NO"
        print(
            f"{row.encoding:<12} {row.page_bytes:>9} {row.stock_ms:>8.1f} {row.first_ms:>8.1f} "
            f"{row.next_ms:>8.2f} {row.shared_ms:>8.3f} {row.ratio:>6.1f}x  {verdict}"
        )
    encoder = PageEncoder()
    encoder.render(pages[-1], openmetrics=False)
    first_ms = milliseconds(lambda: encoder.render_gzip(pages[-1], b"", openmetrics=False))
    again_ms = milliseconds(lambda: encoder.render_gzip(pages[-1], b"", openmetrics=False))
    packed = encoder.render_gzip(pages[-1], b"", openmetrics=False)
    text = gzip.decompress(packed)
    stock_gzip_ms = milliseconds(lambda: gzip.compress(text))
    print(f"gzip         {len(packed):>9} {stock_gzip_ms:>8.1f} {first_ms:>8.1f} {'':>8} {again_ms:>8.3f}")
    result = {
        "benchmark": "render",
        "devices": DEVICES,
        "slices_per_device": SLICES_PER_DEVICE,
        "rows": [asdict(row) for row in rows],
        "gzip": {"bytes": len(packed), "stock_ms": stock_gzip_ms, "first_ms": first_ms, "again_ms": again_ms},
    }
    print(json.dumps(result))
    return 0 if all(row.byte_equal for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
