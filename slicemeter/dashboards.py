"""`slicemeter dashboards build DIR`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dashboards.writing import LANGUAGES, dashboard_files, write


def main(argv: Sequence[str]) -> int:
    """Write the Grafana dashboards into a folder and say which."""
    parser = argparse.ArgumentParser(
        prog="slicemeter dashboards", description="Write the Grafana dashboards."
    )
    actions = parser.add_subparsers(title="commands", dest="action", required=True, metavar="COMMAND")
    build = actions.add_parser("build", help="write every dashboard as JSON (Grafana 10 or newer)")
    build.add_argument("folder", metavar="DIR", type=Path, help="folder to write into; made if need be")
    build.add_argument(
        "--lang", choices=sorted(LANGUAGES), default="en", help="language of the titles (%(default)s)"
    )
    arguments = parser.parse_args(argv)
    try:
        paths = write(dashboard_files(arguments.lang), arguments.folder)
    except OSError as error:
        print(f"slicemeter dashboards: cannot write to {arguments.folder}: {error.strerror}", file=sys.stderr)
        return 2
    for path in paths:
        print(path)
    return 0
