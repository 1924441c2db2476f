"""The node exporter with the lab's cards instead of NVML: `python -m lab.node_exporter`.

The shipped command has no switch for this; here its public entry gets a device source as an argument.
Everything else, settings included, is the exporter's own.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from exporter.node.role import run
from exporter.setting import SettingsError
from exporter.settings import load_node_settings
from lab.devices.simulated import NoDriver, SimulatedDevices, StartFile
from lab.scenarios.plan import ClusterPlan


def main(argv: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    parser = argparse.ArgumentParser(prog="lab.node_exporter", description=__doc__, allow_abbrev=False)
    parser.add_argument("--plan", required=True, type=Path, help="the cluster's plan, as JSON")
    parser.add_argument("--start-file", required=True, type=Path, help="says when the scenario starts")
    parser.add_argument("--powered-s", required=True, type=int, help="when energy counters began")
    mine, rest = parser.parse_known_args(argv)
    try:
        settings = load_node_settings(rest, os.environ)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    cluster = msgspec.json.decode(mine.plan.read_bytes(), type=ClusterPlan)
    start = StartFile(mine.start_file)
    simulated = SimulatedDevices(cluster, start.start_s, powered_s=mine.powered_s)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return run(settings, NoDriver() if cluster.is_mock else simulated, stop=stop)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
