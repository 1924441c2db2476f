"""Decoding a node's regions, against the system calls that reading the same bytes costs at least.

Run: python -m benchmarks.exporter_decode [--files 320] [--rounds 30]

The floor opens each file, asks for its size, reads the same bytes in the two pieces in which they lie
(header with its two slots, tail) and closes it. `decode` is what the sampler does: the same, plus the
second look that proves the bytes belong together, plus all values. Both run in turns in one process;
the ratio of the fastest rounds (others may use the machine, too) is printed as a table and as JSON, and
judged by whoever reads it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from exporter.hami.layouts import V1_2_2008952 as LAYOUT
from exporter.hami.opening import CacheFile, read_cache
from exporter.hami.region import Region

GENUINE = Path(__file__).parents[1] / "tests/fixtures/hami-core/v1.2-2008952/two_processes.cache.gz"
HEAD_BYTES = LAYOUT.slot_offset(2)


def floor(paths: list[str]) -> None:
    """The least that reading these bytes costs."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        os.fstat(descriptor)
        os.pread(descriptor, HEAD_BYTES, 0)
        os.pread(descriptor, LAYOUT.tail_struct.size, LAYOUT.tail)
        os.close(descriptor)


def floor_in_one_piece(paths: list[str]) -> None:
    """The same, as if the bytes lay in one piece."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        os.fstat(descriptor)
        os.pread(descriptor, HEAD_BYTES + LAYOUT.tail_struct.size, 0)
        os.close(descriptor)


def decode(files: list[tuple[str, Region]]) -> None:
    """What the sampler does once a tick: it knows each file's last reading, and decodes it all anew."""
    for path, previous in files:
        read_cache(path, previous=previous)


def decode_unknown(paths: list[str]) -> None:
    """The same for files that were never read before."""
    for path in paths:
        read_cache(path)


def sm_look(files: list[tuple[CacheFile, Region]]) -> None:
    """One of the sampler's extra looks at utilisation, files kept open."""
    for file, region in files:
        file.sm_util(region)


def seconds(run: Callable[[], None]) -> float:
    """Processor time of one run, the kernel's part included."""
    start = time.process_time()
    run()
    return time.process_time() - start


def copies(folder: Path, count: int) -> list[str]:
    """Sparse copies of a genuine region with two processes, as HAMi-core leaves them."""
    data = gzip.decompress(GENUINE.read_bytes())
    paths = []
    for index in range(count):
        path = folder / f"{index}.cache"
        with path.open("wb") as file:
            file.truncate(len(data))
            file.write(data[:HEAD_BYTES])
            file.seek(LAYOUT.tail)
            file.write(data[LAYOUT.tail :])
        paths.append(str(path))
    return paths


def main() -> None:
    """Measure in turns and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=320)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = copies(Path(folder), options.files)
        opened = [(CacheFile(path), found) for path in paths if isinstance(found := read_cache(path), Region)]
        known = [(path, region) for path, (_, region) in zip(paths, opened, strict=True)]
        runs: dict[str, Callable[[], None]] = {
            "floor": lambda: floor(paths),
            "floor in one piece": lambda: floor_in_one_piece(paths),
            "decode": lambda: decode(known),
            "decode, first time": lambda: decode_unknown(paths),
            "sm_util look": lambda: sm_look(opened),
        }
        took: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(options.rounds):
            for name, run in runs.items():
                took[name].append(seconds(run))
        for file, _ in opened:
            file.close()
    least = {name: min(values) for name, values in took.items()}
    print(f"{options.files} regions x 2 processes, fastest of {options.rounds} rounds")
    print(f"{'':<20}{'ms':>8}{'us a file':>12}{'x floor':>10}")
    for name, value in least.items():
        ratio = value / least["floor"]
        print(f"{name:<20}{value * 1e3:>8.2f}{value / options.files * 1e6:>12.1f}{ratio:>10.2f}")
    result = {
        "benchmark": "decode",
        "files": options.files,
        "processes": 2,
        "decode_to_floor": round(least["decode"] / least["floor"], 2),
        "decode_to_floor_in_one_piece": round(least["decode"] / least["floor in one piece"], 2),
        "at_most": 3.0,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
