"""`slicemeter accounting waste`: what is held and not used."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.access.viewer import COMMAND_LINE
from accounting.reports.units import hours
from accounting.reports.waste import WasteReport, WasteRow, report_waste, waste_by_tenant, waste_document
from slicemeter.accounting.narrowing import add_filter_options, add_form_options, filters_of, print_csv
from slicemeter.accounting.options import now_ms, opened, parser, print_json, print_table
from slicemeter.accounting.windows import add_window_options, window_of


def main(argv: Sequence[str]) -> int:
    """Print one row a slice, or one a tenant, those that waste most first."""
    made = parser("waste", "What is held and not used, and a request that would have done.")
    add_window_options(made)
    made.add_argument("--by", choices=("slice", "tenant"), default="slice", help="default: %(default)s")
    add_filter_options(made, "tenant", "account", "cluster", "namespace", "node", "model")
    add_form_options(made)
    arguments = made.parse_args(argv)
    by_tenant = arguments.by == "tenant"
    with opened(arguments) as database, database.reading() as session:
        report = report_waste(session, COMMAND_LINE, window_of(arguments, now_ms()), filters_of(arguments))
    if arguments.json:
        print_json(waste_document(report, by_tenant=by_tenant))
    elif arguments.csv:
        print_csv(waste_document(report, by_tenant=by_tenant))
    elif by_tenant:
        _print_tenants(report)
    else:
        _print_slices(report)
    return 0


def _print_tenants(report: WasteReport) -> None:
    print_table(
        ["TENANT", "SLICES", "UNMEASURED", "NOT RUNNING", "IDLE CORES", "IDLE GIB HOURS"],
        [
            [
                row.tenant,
                str(row.slices),
                str(row.unmeasured or ""),
                hours(row.not_running_ppm_ms),
                hours(row.idle_core_ppm_ms),
                _gib_hours(row.idle_mem_mib_ms),
            ]
            for row in waste_by_tenant(report)
        ],
    )


def _print_slices(report: WasteReport) -> None:
    headings = ["TENANT", "POD", "CONTAINER", "NOT RUNNING", "IDLE CORES", "CORES", "P95", "TRY"]
    headings += ["IDLE GIB HOURS", "MIB", "P95", "PEAK", "TRY"]
    print_table(headings, [_cells(row) for row in report.rows])


def _cells(row: WasteRow) -> list[str]:
    allocation = row.slice.slice.allocation
    suggestion = row.suggestion
    return [
        row.slice.tenant,
        f"{allocation.namespace}/{allocation.pod}",
        allocation.slice_key.container,
        "unknown" if row.not_running_ppm_ms is None else hours(row.not_running_ppm_ms),
        "" if row.idle_core_ppm_ms is None else hours(row.idle_core_ppm_ms),
        f"{allocation.core_percent} %" if allocation.core_percent else "",
        "not measured" if row.sm_p95_ppm is None else f"{row.sm_p95_ppm / 10_000:.0f} %",
        "" if suggestion.core_percent is None else f"{suggestion.core_percent} %",
        "" if row.idle_mem_mib_ms is None else _gib_hours(row.idle_mem_mib_ms),
        str(allocation.mem_mib),
        "not measured" if row.mem_p95_mib is None else str(row.mem_p95_mib),
        "" if row.mem_peak_mib is None else str(row.mem_peak_mib),
        "" if suggestion.mem_mib is None else str(suggestion.mem_mib),
    ]


def _gib_hours(mib_ms: int) -> str:
    return f"{mib_ms / 1024 / 3_600_000:.2f}"
