"""What the exporter claims about speed, as one table: decode, render, scrape, sampler, memory, start.

Run: python benchmarks/bench_exporter.py [--quick] [--markdown]

Each part is a program of its own (`exporter_*.py`) and runs in a process of its own; all in one run on one
machine. The table shows each figure beside the floor of the design, then comes one JSON line. Nothing is
asserted: the figures are judged by whoever reads them. `--markdown` prints the section of
`docs/benchmarks.md` instead.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).parents[1]
Result: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: what was measured, how much it was, and what the design asks for (empty: nothing)."""

    what: str
    measured: str
    floor: str
    holds: bool | None


def run(part: str, *flags: str) -> Result:
    """The JSON line of one part."""
    print(f"… {part}", file=sys.stderr)
    command = [sys.executable, "-m", f"benchmarks.exporter_{part}", *flags]
    done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def decode_rows(result: Result) -> Iterator[Row]:
    """Decoding against the system calls that it needs at least."""
    ratio, most = result["decode_to_floor"], result["at_most"]
    what = f"decode {result['files']} regions × {result['processes']} processes"
    yield Row(what, f"{ratio} × open, fstat, pread, close", f"at most {most:g} ×", ratio <= most)


def render_rows(result: Result) -> Iterator[Row]:
    """Our encoder against the stock one."""
    for row in result["rows"]:
        what = f"render {result['devices']} devices × {result['slices_per_device']} slices, {row['encoding']}"
        how = "byte-equal" if row["byte_equal"] else "NOT BYTE-EQUAL"
        measured = f"{row['ratio']:.1f} × faster than `generate_latest` ({row['next_ms']:.1f} ms), {how}"
        yield Row(what, measured, "at least 5 ×, byte-equal", row["ratio"] >= 5 and row["byte_equal"])


def scrape_rows(result: Result) -> Iterator[Row]:
    """Scrapes over HTTP as scrapers see them."""
    words = {"identity": "plain", "gzip": "gzip"}
    pages = {"same": "same page", "ahead": "page made ahead", "new": "new page"}
    for row in result["rows"]:
        scrapers = "1 scraper" if row["scrapers"] == 1 else f"{row['scrapers']} scrapers at once"
        what = f"scrape {result['series']} series, {pages[row['page']]}, {words[row['encoding']]}, {scrapers}"
        measured = f"p50 {row['p50_ms']:.1f} ms, p99 {row['p99_ms']:.1f} ms"
        has_floor = row["page"] == "same"
        yield Row(
            what, measured, "p99 15 ms" if has_floor else "", row["p99_ms"] <= 15 if has_floor else None
        )


def sampler_rows(result: Result) -> Iterator[Row]:
    """Processor time of a tick at 1 Hz."""
    for row in result["results"]:
        best, median = row["least_percent_of_core_per_100_slices"], row["percent_of_core_per_100_slices"]
        most = row["at_most_percent"]
        what = f"sampler, {row['rung']} rung, {row['slices']} slices"
        measured = f"{best} % of a core per 100 slices (median {median} %; a tick {row['tick_least_ms']} ms)"
        # With few slices what a tick costs by itself is most of it.
        has_floor = row["slices"] >= 100
        yield Row(what, measured, f"{most:g} %" if has_floor else "", best <= most if has_floor else None)


def footprint_rows(result: Result) -> Iterator[Row]:
    """Memory and start of a running exporter."""
    most = result["at_most_mib"]
    for row in result["rows"]:
        held = max(row["start_mib"], row["end_mib"])
        measured = f"{row['end_mib']} MiB, {row['descriptors']} descriptors, {row['threads']} threads"
        has_floor = row["slices"] == 320
        yield Row(
            f"resident memory, {row['slices']} slices",
            measured,
            f"{most} MiB" if has_floor else "",
            held <= most if has_floor else None,
        )
    for row in result["rows"]:
        yield Row(
            f"start to the first full page, {row['slices']} slices", f"{row['first_page_s']} s", "", None
        )
        yield Row(f"`--once`, {row['slices']} slices", f"{row['once_s']} s", "", None)


PARTS: dict[str, tuple[Callable[[Result], Iterator[Row]], list[str]]] = {
    "decode": (decode_rows, ["--rounds", "5"]),
    "render": (render_rows, []),
    "scrape": (scrape_rows, ["--rounds", "30"]),
    "sampler": (sampler_rows, ["--ticks", "10"]),
    "footprint": (footprint_rows, ["--seconds", "3"]),
}
"""How each part is read, and the flags that make it quick."""


def machine() -> str:
    """The machine in a few neutral words."""
    python = f"CPython {platform.python_version()}"
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, {python}"


def verdict(row: Row) -> str:
    """Whether a floor holds, in a word."""
    return "" if row.holds is None else "yes" if row.holds else "no"


def markdown(rows: list[Row]) -> str:
    """The section of the docs."""
    lines = [
        "## Exporter",
        "",
        f"Measured in one run on one machine ({machine()}) by `make bench`.",
        "Processor time of a tick is that of the fastest of many, since others ran beside it; times of",
        "scrapes are as the scraper sees them, connection included.",
        "",
        "| What | Measured | Floor | Holds |",
        "|---|---|---|---|",
        *(f"| {row.what} | {row.measured} | {row.floor} | {verdict(row)} |" for row in rows),
    ]
    return "\n".join(lines)


def main() -> None:
    """Run all parts, print one table and one JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds: to see that it runs")
    parser.add_argument("--markdown", action="store_true", help="print the section of docs/benchmarks.md")
    parser.add_argument("--part", choices=sorted(PARTS), action="append", help="only these")
    options = parser.parse_args()
    rows: list[Row] = []
    results = []
    for part in options.part or PARTS:
        read, quick = PARTS[part]
        result = run(part, *(quick if options.quick else []))
        results.append(result)
        rows += read(result)
    if options.markdown:
        print(markdown(rows))
        return
    widths = [max(len(getattr(row, name)) for row in rows) for name in ("what", "measured", "floor")]
    print(f"exporter; {machine()}")
    for row in rows:
        columns = (row.what, row.measured, row.floor)
        cells = "  ".join(f"{text:<{width}}" for text, width in zip(columns, widths, strict=True))
        print(f"{cells}  {verdict(row)}".rstrip())
    print(json.dumps({"benchmark": "exporter", "rows": [asdict(row) for row in rows], "parts": results}))


if __name__ == "__main__":
    main()
