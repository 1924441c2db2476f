"""`slicemeter accounting usage`: what slices held and used."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.access.viewer import COMMAND_LINE
from accounting.reports.grouping import USAGE_KEYS, parse_keys
from accounting.reports.units import hours, peak_text, sm_ratio_text, sm_text
from accounting.reports.usage import UsageReport, report_usage, usage_document
from accounting.reports.usage_groups import BASES, group_usage, grouped_usage_document, require_measured
from slicemeter.accounting.narrowing import (
    add_filter_options,
    add_form_options,
    add_group_option,
    filters_of,
    print_csv,
)
from slicemeter.accounting.options import (
    now_ms,
    opened,
    parser,
    print_json,
    print_table,
)
from slicemeter.accounting.windows import add_window_options, window_of


def main(argv: Sequence[str]) -> int:
    """Print one row a slice, or one a group."""
    made = parser("usage", "What slices held and used in a window, one row a slice.")
    add_window_options(made)
    add_group_option(made, USAGE_KEYS, default="a row for each slice")
    made.add_argument(
        "--basis",
        choices=BASES,
        default=BASES[0],
        help="card time of groups by what was charged, or by the SM time that was measured",
    )
    add_filter_options(made, "tenant", "account", "cluster", "namespace", "node", "model")
    add_form_options(made)
    arguments = made.parse_args(argv)
    keys = parse_keys(arguments.group_by, USAGE_KEYS)
    if arguments.basis == "usage":
        keys = keys or ("tenant",)
    with opened(arguments) as database, database.reading() as session:
        window = window_of(arguments, now_ms())
        report = report_usage(session, COMMAND_LINE, window, filters_of(arguments))
    require_measured(report, arguments.basis)
    if arguments.json or arguments.csv:
        document = grouped_usage_document(report, keys, arguments.basis) if keys else usage_document(report)
        print_json(document) if arguments.json else print_csv(document)
    elif keys:
        _print_groups(report, keys)
    else:
        _print_slices(report)
    return 0


def _print_groups(report: UsageReport, keys: Sequence[str]) -> None:
    rows = [
        [
            *group.keys,
            str(group.slices),
            hours(group.own_ppm_ms),
            hours(group.charged_ppm_ms),
            sm_text(group.use),
            str(group.unmeasured or ""),
        ]
        for group in group_usage(report, keys)
    ]
    headings = [*(key.upper() for key in keys), "SLICES", "OWN", "CARD-HOURS", "SM HOURS", "UNMEASURED"]
    print_table(headings, rows)


def _print_slices(report: UsageReport) -> None:
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
