"""`--dry-run` of versions: what one would change in the open months; nothing is kept."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from sqlalchemy.orm import Session

from accounting.periods.whatif import foretell_versions
from accounting.reports.tenants import foretold_document
from accounting.store.database import Database
from slicemeter.accounting.options import print_json
from slicemeter.accounting.progress import Bar
from slicemeter.accounting.tenant_tables import print_foretold


def add_dry_run_option(target: argparse.ArgumentParser) -> None:
    """Add `--dry-run`."""
    target.add_argument(
        "--dry-run", action="store_true", help="only say what it would change in the open months, to the cent"
    )


def print_dry_run(
    database: Database, change: Callable[[Session], object], arguments: argparse.Namespace
) -> None:
    """Make the change, say what it would make of the open months, take it back."""
    with Bar() as progress:
        told = foretell_versions(database, change, progress=progress)
    if arguments.json:
        print_json(foretold_document(told))
    else:
        print_foretold(told)
