"""The node role with scripted cards, as a process of its own that `exporter_footprint` looks at.

Run: python -m benchmarks.exporter_alone SLICES [flags of `slicemeter exporter node`]

A module of its own, since its memory is measured: it imports what the exporter imports, pynvml as on a real
node included, and nothing of the API double or of what makes its certificates.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import suppress

from benchmarks.exporter_stand import Cards, processes_of
from exporter.node import role
from exporter.nvidia.nvml import NvmlSource
from exporter.nvidia.source import SourceDownError
from exporter.settings import load_node_settings


def main() -> int:
    """Run the role until it is told to end."""
    slices, argv = int(sys.argv[1]), sys.argv[2:]
    with suppress(SourceDownError):
        NvmlSource().open()  # no driver here, but pynvml is imported as where there is one
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    cards = Cards(processes_of(slices), lambda: time.time_ns() // 1_000_000, has_samples=True)
    return role.run(load_node_settings(argv, {}), cards, stop=stop)


if __name__ == "__main__":
    sys.exit(main())
