"""`slicemeter rules build DIR`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dashboards.writing import rule_files, write


def main(argv: Sequence[str]) -> int:
    """Write the recording rules and alerts into a folder and say where."""
    parser = argparse.ArgumentParser(prog="slicemeter rules", description="Write recording rules and alerts.")
    actions = parser.add_subparsers(dest="action", required=True)
    build = actions.add_parser("build", help="write a Prometheus rule file (Prometheus 2.42 or newer)")
    build.add_argument("folder", metavar="DIR", type=Path, help="folder to write into; made if need be")
    build.add_argument(
        "--runbooks", metavar="URL", default="docs/runbooks", help="where the runbook pages are (%(default)s)"
    )
    build.add_argument(
        "--grafana", metavar="URL", default="", help="address of Grafana, put before dashboard links (none)"
    )
    arguments = parser.parse_args(argv)
    try:
        paths = write(rule_files(runbooks=arguments.runbooks, grafana=arguments.grafana), arguments.folder)
    except OSError as error:
        print(f"slicemeter rules: cannot write to {arguments.folder}: {error.strerror}", file=sys.stderr)
        return 2
    for path in paths:
        print(path)
    return 0
