"""`slicemeter accounting capacity`: what was there, hour by hour."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from accounting.ledger.calendar import at_text
from accounting.reports.capacity import CapacityReport, capacity_document, report_capacity
from accounting.reports.grouping import CAPACITY_KEYS, parse_keys
from accounting.reports.stranded import StrandedReport, report_stranded, stranded_document
from accounting.reports.units import hours
from accounting.reports.usage import CardSums
from accounting.store.models import DeviceHour
from slicemeter.accounting.narrowing import (
    add_filter_options,
    add_form_options,
    add_group_option,
    filters_of,
    print_csv,
)
from slicemeter.accounting.options import now_ms, opened, parser, print_json, print_table
from slicemeter.accounting.windows import add_window_options, window_of


def main(argv: Sequence[str]) -> int:
    """Print one row a device and hour, or one a group: charged + idle + down = present."""
    made = parser("capacity", "What was there: charged + idle + down = present, a row a device and hour.")
    add_window_options(made)
    add_group_option(made, CAPACITY_KEYS, default="a row for each device and hour")
    add_filter_options(made, "cluster", "node", "model")
    made.add_argument(
        "--stranded", action="store_true", help="instead, a row a device: memory and cores that nobody held"
    )
    add_form_options(made)
    arguments = made.parse_args(argv)
    keys = parse_keys(arguments.group_by, CAPACITY_KEYS)
    with opened(arguments) as database, database.reading() as session:
        window = window_of(arguments, now_ms())
        if arguments.stranded:
            _print_stranded(report_stranded(session, window, cluster=arguments.cluster), arguments)
            return 0
        report = report_capacity(
            session,
            window,
            filters=filters_of(arguments),
            group_by=keys,
            time_zone=arguments.tz or "UTC",
        )
        document = capacity_document(report)
        if arguments.json:
            print_json(document)
        elif arguments.csv:
            print_csv(document)
        else:
            _print_hours(report)
    return 0


def _print_hours(report: CapacityReport) -> None:
    names = [key.upper() for key in report.group_by] or ["HOUR", "CLUSTER", "NODE", "DEVICE", "MODEL"]
    rows = [[*group.keys, *_quantities(group.sums)] for group in report.groups] or [
        [at_text(row.hour_ms), row.cluster, row.node, row.device_uuid, row.model, *_quantities(row)]
        for row in report.rows
    ]
    rows.append(["total", *[""] * (len(names) - 1), *_quantities(report.sums)])
    print_table([*names, "PRESENT", "CHARGED", "IDLE", "DOWN"], rows)


def _quantities(sums: CardSums | DeviceHour) -> list[str]:
    return [
        hours(part) for part in (sums.present_ppm_ms, sums.charged_ppm_ms, sums.idle_ppm_ms, sums.down_ppm_ms)
    ]


def _print_stranded(report: StrandedReport, arguments: argparse.Namespace) -> None:
    if arguments.json or arguments.csv:
        document = stranded_document(report)
        print_json(document) if arguments.json else print_csv(document)
        return
    named = [((row.key.cluster, row.node, row.key.device_uuid, row.model), row.free) for row in report.rows]
    rows = [
        [*names, *map(hours, (free.up_ppm_ms, free.memory_ppm_ms, free.cores_ppm_ms, free.stranded_ppm_ms))]
        for names, free in [*named, (("total", "", "", ""), report.sums)]
    ]
    print_table(["CLUSTER", "NODE", "DEVICE", "MODEL", "UP", "MEMORY FREE", "CORES FREE", "STRANDED"], rows)
