"""`slicemeter accounting capacity`: what was there, hour by hour."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from accounting.ledger.calendar import at_text
from accounting.reports.capacity import capacity_document, report_capacity
from accounting.reports.stranded import StrandedReport, report_stranded, stranded_document
from accounting.reports.units import hours
from slicemeter.accounting.options import now_ms, opened, parser, print_json, print_table
from slicemeter.accounting.windows import add_window_options, window_of


def main(argv: Sequence[str]) -> int:
    """Print one row a device and hour: charged + idle + down = present."""
    made = parser("capacity", "What was there: charged + idle + down = present, a row a device and hour.")
    add_window_options(made)
    made.add_argument("--cluster", help="only this one")
    made.add_argument(
        "--stranded", action="store_true", help="instead, a row a device: memory and cores that nobody held"
    )
    made.add_argument("--json", action="store_true", help="print a JSON object")
    arguments = made.parse_args(argv)
    with opened(arguments) as database, database.reading() as session:
        window = window_of(arguments, now_ms())
        if arguments.stranded:
            _print_stranded(report_stranded(session, window, cluster=arguments.cluster), arguments)
            return 0
        report = report_capacity(session, window, cluster=arguments.cluster)
        if arguments.json:
            print_json(capacity_document(report))
            return 0
        rows = [
            [
                at_text(row.hour_ms),
                row.cluster,
                row.node,
                row.device_uuid,
                row.model,
                *(hours(part) for part in (row.present_ppm_ms, row.charged_ppm_ms)),
                *(hours(part) for part in (row.idle_ppm_ms, row.down_ppm_ms)),
            ]
            for row in report.rows
        ]
    sums = report.sums
    parts = (sums.present_ppm_ms, sums.charged_ppm_ms, sums.idle_ppm_ms, sums.down_ppm_ms)
    rows.append(["total", "", "", "", "", *(hours(part) for part in parts)])
    print_table(["HOUR", "CLUSTER", "NODE", "DEVICE", "MODEL", "PRESENT", "CHARGED", "IDLE", "DOWN"], rows)
    return 0


def _print_stranded(report: StrandedReport, arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(stranded_document(report))
        return
    named = [((row.key.cluster, row.node, row.key.device_uuid, row.model), row.free) for row in report.rows]
    rows = [
        [*names, *map(hours, (free.up_ppm_ms, free.memory_ppm_ms, free.cores_ppm_ms, free.stranded_ppm_ms))]
        for names, free in [*named, (("total", "", "", ""), report.sums)]
    ]
    print_table(["CLUSTER", "NODE", "DEVICE", "MODEL", "UP", "MEMORY FREE", "CORES FREE", "STRANDED"], rows)
