"""`slicemeter exporter node|cluster|check`: settings, signals, and the role's own entry."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence

from exporter.checkup.finding import Line
from exporter.errors import ExporterError
from exporter.setting import SettingsError
from exporter.settings import load_cluster_settings, load_node_settings

USAGE = """\
usage: slicemeter exporter node|cluster [--config FILE] [--once] [--SETTING VALUE …]
       slicemeter exporter check [--role node|cluster] [--json] [--config FILE] [--SETTING VALUE …]

node     on every GPU node: slices, devices and tenants, from HAMi's cache files, NVML and pods
cluster  one per cluster: pending pods, reservations, node locks, capacity, pods that bypass HAMi
check    why is my page empty? Looks once at all that a role needs, by that role's settings, and says what is
         wrong and the way out; it disturbs no exporter that runs. Exit code 1 = something is wrong

slicemeter exporter ROLE --help lists the settings."""


def main(argv: Sequence[str]) -> int:
    """Run one role until SIGTERM or SIGINT; returns the exit code."""
    arguments = list(argv)
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(USAGE)
        return 0
    role, rest = arguments[0], arguments[1:]
    if role == "check":
        return _check(rest)
    if role not in {"node", "cluster"}:
        print(f'slicemeter exporter: no role "{role}"; there are: node, cluster', file=sys.stderr)
        return 2
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        return _run_node(rest) if role == "node" else _run_cluster(rest)
    except SettingsError as error:
        print(f"slicemeter {error.detail.removeprefix('slicemeter ')}", file=sys.stderr)
        return 2
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


def _check(argv: Sequence[str]) -> int:
    """Check what a role needs; everything but our own two flags is the role's setting."""
    parser = argparse.ArgumentParser(
        prog="slicemeter exporter check", add_help=False, allow_abbrev=False, exit_on_error=False
    )
    parser.add_argument("--role", choices=("node", "cluster"), default="node")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-h", "--help", action="store_true")
    try:
        ours, settings = parser.parse_known_args(list(argv))
        if ours.help:
            print(USAGE)
            return 0
        lines = _check_node(settings) if ours.role == "node" else _check_cluster(settings)
    except (ExporterError, argparse.ArgumentError) as error:
        print(f"slicemeter exporter check: {getattr(error, 'detail', error)}", file=sys.stderr)
        return 2
    from exporter.checkup.report import as_json, as_table, has_finding  # noqa: PLC0415 - only when checking

    print(as_json(ours.role, lines) if ours.json else as_table(lines))
    return 1 if has_finding(lines) else 0


def _check_node(argv: Sequence[str]) -> list[Line]:
    settings = load_node_settings(argv, os.environ)
    from exporter.checkup.node import check_node  # noqa: PLC0415 - each role loads only itself
    from exporter.nvidia.nvml import NvmlSource  # noqa: PLC0415

    return check_node(settings, NvmlSource())


def _check_cluster(argv: Sequence[str]) -> list[Line]:
    settings = load_cluster_settings(argv, os.environ)
    from exporter.checkup.cluster import check_cluster  # noqa: PLC0415 - each role loads only itself

    return check_cluster(settings)


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
