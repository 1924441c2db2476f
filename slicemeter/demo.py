"""`slicemeter demo`: the whole stack on this computer, without a GPU and without a cluster."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.demo import Options, run
from lab.processes import LabError
from slicemeter.accounting import main as accounting


def main(argv: Sequence[str]) -> int:
    """Run the demo; 0 when it ended as asked, 1 when a figure is off or a part failed."""
    parser = argparse.ArgumentParser(
        prog="slicemeter demo",
        description="Three clusters, their exporters and accounting on this computer: no GPU, no cluster. "
        "Shows a live table until Ctrl-C.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="play the scenario once, print every figure as expected and as measured, exit 1 if one is off",
    )
    parser.add_argument(
        "--disturb",
        action="store_true",
        help="with --once: kill accounting for the middle third and each exporter once with kill -9; "
        "no figure may change",
    )
    parser.add_argument(
        "--picture",
        metavar="FILE",
        type=Path,
        help="with --once: write the live table as it stood shortly before the end, as SVG",
    )
    arguments = parser.parse_args(argv)
    if not arguments.once and (arguments.disturb or arguments.picture):
        parser.error("--disturb and --picture go with --once")
    if arguments.picture and not arguments.picture.resolve().parent.is_dir():
        parser.error(f"--picture: there is no folder {arguments.picture.parent}")
    return run(Options(arguments.once, arguments.disturb, arguments.picture), accounting_command)


def accounting_command(arguments: Sequence[str]) -> str:
    """Run `slicemeter accounting …` in this process: a dozen commands would take as many seconds else."""
    printed = io.StringIO()
    complained = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complained):
        try:
            code = accounting(arguments)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 2
    if code:
        print(complained.getvalue(), end="", file=sys.stderr)
        raise LabError(f"slicemeter accounting {' '.join(arguments[:2])} ended with exit code {code}")
    return printed.getvalue()
