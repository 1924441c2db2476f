"""`slicemeter accounting quality`: who reports, whose clock is off, what is missing, what was refused."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.reports.documents import Document
from accounting.reports.quality import quality_document
from slicemeter.accounting.options import now_ms, opened, parser, print_json, print_table

_PARTS = {
    "sources": (
        "exporters",
        ("cluster", "role", "node", "version", "last_seen", "silent_seconds", "clock_offset_ms", "clock",
         "facts_sent", "facts_stored", "contested_at"),
    ),
    "coverage": ("coverage", ("cluster", "coverage", "present_ms", "confirmed_ms")),
    "gaps": ("gaps", ("cluster", "node", "devices", "from", "to", "unconfirmed_ms")),
    "quarantine": ("quarantine", ("cluster", "reason", "facts", "newest")),
}  # fmt: skip
"""What is shown of each part of the document, under which heading."""


def main(argv: Sequence[str]) -> int:
    """Show how good the facts are; exit 1 where a clock is far off or two exporters report for one node."""
    made = parser("quality", "How good the facts are: exporters, clocks, coverage, gaps, quarantine.")
    made.add_argument(
        "--days", type=int, default=7, help="how far back coverage and gaps go; default: %(default)s"
    )
    made.add_argument("--json", action="store_true", help="print a JSON object")
    arguments = made.parse_args(argv)
    with opened(arguments) as database, database.reading() as session:
        document = quality_document(session, now_ms=now_ms(), days=arguments.days)
    if arguments.json:
        print_json(document)
    else:
        for part, (heading, names) in _PARTS.items():
            _show(heading, names, _rows(document, part))
    sources = _rows(document, "sources")
    return int(any(one["clock"] == "far_off" or one["contested_at"] for one in sources))


def _rows(document: Document, part: str) -> list[Document]:
    rows = document[part]
    assert isinstance(rows, list)
    return rows


def _show(heading: str, names: Sequence[str], rows: Sequence[Document]) -> None:
    print(heading if rows else f"{heading}: none")
    if rows:
        cells = [["-" if row[name] is None else str(row[name]) for name in names] for row in rows]
        print_table([name.upper() for name in names], cells)
