"""The picture of a statement's month, the one of its PDF, as bars that lead to their days."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from accounting.periods.statement import Statement
from accounting.reports.month_picture import Bar, month_picture
from accounting.web.charts import Across, Chart, DrawnColumn, Rect

_CHARGED = ("charged", "card-hours charged, or idle where they are billed")
_USED = ("used", "SM hours used")


def month_chart(statement: Statement, href_of: Callable[[str], str]) -> Chart | None:
    """The picture; None where the month has no lines."""
    if not statement.lines:
        return None
    picture = month_picture(statement)
    step = (Decimal(picture.width) - picture.left) / len(picture.bars)
    return Chart(
        name="month",
        title=f"Card-hours of each day of {statement.period}",
        keys=(_CHARGED, _USED) if picture.is_measured else (_CHARGED,),
        columns=[
            DrawnColumn(
                rects=_rects(bar),
                x=(picture.left + place * step).quantize(Decimal("0.01")),
                width=step.quantize(Decimal("0.01")),
                middle=Decimal(str(bar.x)) + Decimal(str(bar.width)) / 2,
                label=str(bar.number) if bar.is_labelled else "",
                text=bar.text,
                href=href_of(bar.day),
            )
            for place, bar in enumerate(picture.bars)
        ],
        across=[Across(Decimal(str(line.y)), line.label) for line in picture.lines],
        baseline=int(picture.baseline),
        width=picture.width,
        height=picture.height,
        left=picture.left,
    )


def _rects(bar: Bar) -> list[Rect]:
    x, width = Decimal(str(bar.x)), Decimal(str(bar.width))
    rects = []
    if bar.height:
        rects.append(Rect("charged", x, Decimal(str(bar.y)), width, Decimal(str(bar.height))))
    if bar.used_height and bar.used_y is not None:
        used = Decimal(str(bar.used_y)), width / 2, Decimal(str(bar.used_height))
        rects.append(Rect("used", x + width / 4, *used))
    return rects
