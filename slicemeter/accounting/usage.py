"""`slicemeter accounting usage`: what slices held and used."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.access.viewer import COMMAND_LINE
from accounting.reports.units import hours, peak_text, sm_ratio_text, sm_text
from accounting.reports.usage import report_usage, usage_document
from slicemeter.accounting.options import (
    now_ms,
    opened,
    parser,
    print_json,
    print_table,
)
from slicemeter.accounting.windows import add_window_options, window_of


def main(argv: Sequence[str]) -> int:
    """Print one row a slice."""
    made = parser("usage", "What slices held and used in a window, one row a slice.")
    add_window_options(made)
    made.add_argument("--json", action="store_true", help="print a JSON object")
    arguments = made.parse_args(argv)
    with opened(arguments) as database, database.reading() as session:
        window = window_of(arguments, now_ms())
        report = report_usage(session, COMMAND_LINE, window)
    if arguments.json:
        print_json(usage_document(report))
        return 0
    rows = [
        [
            row.tenant,
            f"{row.slice.allocation.namespace}/{row.slice.allocation.pod}",
            row.slice.allocation.slice_key.container,
            row.slice.allocation.model,
            f"{row.held_ms / 3_600_000:.4f}",
            "unknown" if row.own_ppm_ms is None else hours(row.own_ppm_ms),
            "unknown" if row.charged_ppm_ms is None else hours(row.charged_ppm_ms),
            sm_ratio_text(row.use),
            peak_text(row.use),
        ]
        for row in report.rows
    ]
    headings = ["TENANT", "POD", "CONTAINER", "MODEL", "HELD H", "OWN", "CARD-HOURS", "MEAN SM", "PEAK"]
    print_table(headings, rows)
    for one in report.unallocated:
        pod = f"{one.namespace}/{one.pod} · {one.container}"
        print(
            f"without an allocation: {pod} of {one.tenant_key or 'nobody'} "
            f"on {one.cluster}/{one.device_uuid}, {sm_text(one.use)} SM hours, peak {peak_text(one.use)}"
        )
    if report.cards is not None:
        cards = report.cards
        print(
            f"cards: present {hours(cards.present_ppm_ms)} = charged {hours(cards.charged_ppm_ms)} "
            f"+ idle {hours(cards.idle_ppm_ms)} + down {hours(cards.down_ppm_ms)} card-hours"
        )
    return 0
