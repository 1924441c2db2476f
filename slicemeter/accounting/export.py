"""`slicemeter accounting export PERIOD`: a month of the ledger as a file for other programs."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from shutil import copyfileobj
from typing import BinaryIO

from accounting.access.viewer import COMMAND_LINE
from accounting.errors import InvalidError
from accounting.exports.making import FORMATS, Wanted, write_export
from accounting.exports.publishing import published
from accounting.focus.model import DATASETS, VERSIONS
from slicemeter.accounting.options import Parser, opened, parser
from slicemeter.accounting.progress import Bar
from slicemeter.accounting.windows import month_from

_STDOUT = Path("-")


def _parser() -> Parser:
    made = parser("export", "A month of the ledger as a file: CSV, JSON, Parquet, or FOCUS.")
    made.add_argument("period", help="a month, as 2026-10")
    made.add_argument("--tenant", help="its path, or its code where only one has it; with all below it")
    made.add_argument("--account", help="all its tenants; or, with --tenant, where a tenant has several")
    made.add_argument(
        "--format", choices=FORMATS, required=True, help="focus is CSV; Parquet needs slicemeter[parquet]"
    )
    made.add_argument(
        "--focus-version", choices=VERSIONS, default=VERSIONS[0], help="of FOCUS; default: %(default)s"
    )
    made.add_argument(
        "--focus-dataset", choices=DATASETS, default=DATASETS[0], help="of FOCUS; default: %(default)s"
    )
    made.add_argument(
        "-o", "--out", type=Path, required=True, metavar="FILE", help="where to write; - is standard output"
    )
    made.add_argument("--force", action="store_true", help="replace the file if it is there")
    return made


def main(argv: Sequence[str]) -> int:
    """Write an export to a file, or print it."""
    arguments = _parser().parse_args(argv)
    wanted = Wanted(
        month=month_from(arguments.period),
        form=arguments.format,
        tenant=arguments.tenant,
        account=arguments.account,
        version=arguments.focus_version,
        dataset=arguments.focus_dataset,
    )
    if arguments.out == _STDOUT:
        _print(arguments, wanted)
        return 0
    with published(arguments.out, is_forced=arguments.force) as file:
        rows = _write(arguments, wanted, file)
    print(f"{arguments.out}: {rows:,} rows", file=sys.stderr)
    return 0


def _print(arguments: argparse.Namespace, wanted: Wanted) -> None:
    """Print an export when it is whole, so that no reader takes half of one for all."""
    if wanted.form in {"parquet", "focus-parquet"} and sys.stdout.isatty():
        raise InvalidError("Parquet is nothing for a terminal; name a file with --out, or use a pipe")
    with tempfile.TemporaryFile() as whole:
        _write(arguments, wanted, whole)
        whole.seek(0)
        copyfileobj(whole, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _write(arguments: argparse.Namespace, wanted: Wanted, file: BinaryIO) -> int:
    with opened(arguments) as database, database.reading() as session, Bar() as progress:
        return write_export(session, COMMAND_LINE, wanted, file, progress=progress).rows
