"""`slicemeter exporter node|cluster`: settings, signals, and the role's own entry."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence

from exporter.errors import ExporterError
from exporter.settings import load_cluster_settings, load_node_settings

USAGE = """\
usage: slicemeter exporter node|cluster [--config FILE] [--once] [--SETTING VALUE …]

node     on every GPU node: slices, devices and tenants, from HAMi's cache files, NVML and pods
cluster  one per cluster: pending pods, reservations, node locks, capacity, pods that bypass HAMi

slicemeter exporter ROLE --help lists the settings."""


def main(argv: Sequence[str]) -> int:
    """Run one role until SIGTERM or SIGINT; returns the exit code."""
    arguments = list(argv)
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(USAGE)
        return 0
    role, rest = arguments[0], arguments[1:]
    if role not in {"node", "cluster"}:
        print(f'slicemeter exporter: no role "{role}"; there are: node, cluster', file=sys.stderr)
        return 2
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        return _run_node(rest) if role == "node" else _run_cluster(rest)
    except ExporterError as error:
        print(f"slicemeter exporter {role}: {error.detail}", file=sys.stderr)
        return 2


def _run_node(argv: Sequence[str]) -> int:
    settings = load_node_settings(argv, os.environ)
    from exporter.node.role import run  # noqa: PLC0415 - each role loads only itself
    from exporter.nvidia.nvml import NvmlSource  # noqa: PLC0415

    return run(settings, NvmlSource(), stop=_stop_on_signals())


def _run_cluster(argv: Sequence[str]) -> int:
    settings = load_cluster_settings(argv, os.environ)
    from exporter.cluster.role import run  # noqa: PLC0415 - each role loads only itself

    return run(settings, stop=_stop_on_signals())


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
