"""`slicemeter accounting focus lint FILE`: does a FOCUS file keep the rules of the specification?"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from accounting.errors import InvalidError
from accounting.focus.across import Totals
from accounting.focus.details import DetailTotals
from accounting.focus.lint import Finding, Linter, dataset_of, version_of
from accounting.focus.model import DATASETS, VERSIONS
from accounting.focus.reading import open_focus
from slicemeter.accounting.options import Parser, print_json
from slicemeter.accounting.progress import Bar

_PROGRAM = "slicemeter accounting focus"
_ROWS_BETWEEN_LOOKS = 1_000


def _parser() -> Parser:
    made = Parser(prog=_PROGRAM, description="Files of FOCUS.", allow_abbrev=False)
    actions = made.add_subparsers(title="commands", dest="action", required=True, metavar="COMMAND")
    lint = actions.add_parser(
        "lint", help="check a file, CSV or Parquet: exit 0 clean, 1 findings, 2 unreadable"
    )
    lint.add_argument("file", type=Path)
    lint.add_argument("--focus-version", choices=VERSIONS, help="default: what its columns say")
    lint.add_argument("--focus-dataset", choices=DATASETS, help="default: what its columns say")
    lint.add_argument(
        "--invoice-detail",
        type=Path,
        metavar="FILE",
        help="the Invoice Detail file that its charges must add up to",
    )
    lint.add_argument("--limit", type=int, default=100, help="print so many findings; default: %(default)s")
    lint.add_argument("--json", action="store_true", help="one JSON object a finding, then one for the file")
    return made


def main(argv: Sequence[str]) -> int:
    """Check a file; 0 clean, 1 findings."""
    arguments = _parser().parse_args(argv)
    printed = count = 0
    totals = None if arguments.invoice_detail is None else _totals(arguments.invoice_detail)
    with open_focus(arguments.file) as file:
        dataset = arguments.focus_dataset or dataset_of(file.header)
        version = arguments.focus_version or version_of(file.header)
        if dataset != "cost-and-usage" and version == "1.2":
            raise InvalidError(f"FOCUS 1.2 has no dataset {dataset}; check it as --focus-version 1.4")
        with Linter(file.header, dataset, version, totals) as linter:
            for finding in _findings(linter, file.rows, file.findings):
                count += 1
                if printed < arguments.limit:
                    _show(finding, arguments)
                    printed += 1
            rows = linter.rows
    summary = {
        "file": str(arguments.file),
        "dataset": dataset,
        "version": version,
        "rows": rows,
        "findings": count,
    }
    if arguments.json:
        print_json(summary)
    else:
        more = f", {count - printed:,} of them not shown (--limit)" if count > printed else ""
        print(f"{arguments.file}: {dataset} of FOCUS {version}, {rows:,} rows, {count:,} findings{more}")
    return 1 if count else 0


def _findings(
    linter: Linter, rows: Iterator[Sequence[str]], of_types: Sequence[Finding]
) -> Iterator[Finding]:
    yield from of_types
    yield from linter.heading()
    with Bar() as progress:
        for cells in rows:
            yield from linter.row(cells)
            if linter.rows % _ROWS_BETWEEN_LOOKS == 0:
                progress("checking rows", linter.rows, 0)
    yield from linter.finish()


def _show(finding: Finding, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(
            {
                "row": finding.row,
                "column": finding.column,
                "rule": finding.rule,
                "detail": finding.detail,
                "way_out": finding.way_out,
            }
        )
        return
    where = f"row {finding.row}" if finding.row else "file"
    column = f" {finding.column}" if finding.column else ""
    print(f"{where}{column}: {finding.rule}: {finding.detail}; {finding.way_out}")


def _totals(path: Path) -> Totals:
    """What charges must come to, of a file of Invoice Detail."""
    with open_focus(path) as file:
        if dataset_of(file.header) != "invoice-detail":
            raise InvalidError(f"{path} is no file of Invoice Detail; export one with --focus-dataset")
        details = DetailTotals(file.header)
        with Linter(file.header, "invoice-detail", "1.4") as linter:
            broken = next(_findings(linter, details.through(file.rows), file.findings), None)
    if broken is not None:
        raise InvalidError(
            f"{path} has findings of its own, {broken.rule} in row {broken.row}; check it with: "
            f"{_PROGRAM} lint {path}"
        )
    return details.totals()
