"""The days of a month as bars: what slices were charged, and what was idle."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from accounting.ledger.calendar import Month
from accounting.ledger.rounding import card_hours
from accounting.reports.cost import CostReport
from accounting.web.charts import Chart, Column, draw, round_top
from contract.units import CARD_HOUR_PPM_MS

_KEYS = (("charged", "charged"), ("idle", "idle"))


def day_bars(report: CostReport, month: Month, href_of: Callable[[str], str]) -> Chart | None:
    """Draw a report that is grouped by day; None where it has nothing.

    Args:
        report: Of one month.
        month: Which.
        href_of: Where a day's bar leads.
    """
    charged: dict[str, int] = {}
    idle: dict[str, int] = {}
    for row in report.rows:
        day = row.keys[0]
        charged[day] = charged.get(day, 0) + row.sums.charged_ppm_ms + row.sums.unallocated_ppm_ms
        idle[day] = idle.get(day, 0) + row.sums.idle_ppm_ms
    if not charged:
        return None
    length = (month.next().first_day - month.first_day).days
    days = [(month.first_day + timedelta(days=number)).isoformat() for number in range(length)]
    most = max(charged.get(day, 0) + idle.get(day, 0) for day in days)
    top = round_top(most, CARD_HOUR_PPM_MS)
    return draw(
        "days",
        f"Card-hours of each day of {month}",
        [
            Column(
                label=str(int(day[-2:])),
                text=f"{day}: {short(charged.get(day, 0))} card-hours charged, "
                f"{short(idle.get(day, 0))} idle",
                parts=[("charged", charged.get(day, 0)), ("idle", idle.get(day, 0))],
                href=href_of(day) if day in charged else "",
            )
            for day in days
        ],
        keys=_KEYS if any(idle.values()) else _KEYS[:1],
        top=top,
        labels=[short(top * part // 2) for part in range(3)],
    )


def short(quantity_ppm_ms: int) -> str:
    """Card-hours with no more digits than they need."""
    text = f"{card_hours(quantity_ppm_ms, 2):,f}"
    return text.rstrip("0").rstrip(".")
