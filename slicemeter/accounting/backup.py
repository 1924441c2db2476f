"""`slicemeter accounting backup FILE`: a checked copy of the books while they are in use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from accounting.store.backup import backup
from slicemeter.accounting.options import opened, parser
from slicemeter.accounting.progress import Bar


def main(argv: Sequence[str]) -> int:
    """Copy the books."""
    made = parser("backup", "Copy the books (SQLite) into a new file while they are in use, and check it.")
    made.add_argument("file", type=Path, help="a file that does not exist")
    arguments = made.parse_args(argv)
    with opened(arguments) as database, Bar() as progress:
        size = backup(database, arguments.file, progress=progress)
    print(f"{arguments.file}: {size:,} bytes, checked")
    return 0
