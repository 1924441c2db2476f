"""The options that narrow a report and add it up, and the forms it comes in; shared by those that report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from accounting.reports.documents import Document
from accounting.reports.grouping import Filters
from accounting.reports.rows_csv import rows_csv

_HELP = {
    "tenant": "only this one and all below it: its path, or its code where only one has it",
    "account": "only of this account",
    "cluster": "only of this cluster",
    "namespace": "only of this namespace",
    "node": "only on this node",
    "model": "only on this GPU model",
    "sku": "only of this SKU",
}


def add_group_option(
    target: argparse.ArgumentParser, keys: Sequence[str], *, default: str, also: str | None = None
) -> None:
    """Add `--group-by`; `also` is an older name of it."""
    names = ["--group-by"] if also is None else ["--group-by", also]
    target.add_argument(
        *names,
        dest="group_by",
        metavar="KEY[,KEY…]",
        action="append",
        default=[],
        help=f"some of {', '.join(keys)}; default: {default}",
    )


def add_filter_options(target: argparse.ArgumentParser, *names: str) -> None:
    """Add an option for each of these fields of `Filters`."""
    for name in names:
        target.add_argument(f"--{name}", help=_HELP[name])


def filters_of(arguments: argparse.Namespace) -> Filters:
    """What the options narrow to."""
    return Filters(**{name: getattr(arguments, name, None) for name in _HELP})


def add_form_options(target: argparse.ArgumentParser) -> None:
    """Add `--json` and `--csv`."""
    forms = target.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print a JSON object")
    forms.add_argument("--csv", action="store_true", help="print the rows as CSV")


def print_csv(document: Document) -> None:
    """Print the rows of a document."""
    sys.stdout.write(rows_csv(document).replace("\r\n", "\n"))
