"""A picture of the month: a bar for each local day, what was charged and how much of it was used.

Invariant: the bars are the statement's lines, added up by day; a day without any measured use shows none,
which is not a use of 0. The same statement is the same picture, to the byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from accounting.ledger.calendar import local_date
from accounting.ledger.rounding import card_hours
from accounting.periods.statement import Statement

WIDTH, HEIGHT = 960, 190
_LEFT, _TOP, _BOTTOM = 46, 12, 24
_GAP = 0.22
"""Of a day's width."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One day, in pixels from the upper left corner; `used_height` is None where nothing was measured."""

    day: str
    number: int
    x: float
    width: float
    y: float
    height: float
    used_y: float | None
    used_height: float | None
    is_labelled: bool
    text: str
    """What a pointer or a screen reader is told."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line across, with its label."""

    y: float
    label: str


@dataclass(frozen=True, slots=True)
class Picture:
    """The picture; None of its figures is rounded before it is drawn."""

    bars: Sequence[Bar]
    lines: Sequence[Line]
    baseline: float
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT

    @property
    def is_measured(self) -> bool:
        """Whether any day has a measured use."""
        return any(bar.used_height is not None for bar in self.bars)


def month_picture(statement: Statement) -> Picture:
    """Draw a statement's month."""
    days = _days(statement)
    charged = dict.fromkeys(days, 0)
    used: dict[str, int] = {}
    for line in statement.lines:
        if line.kind in {"usage", "idle", "unallocated"}:
            charged[line.day] = charged.get(line.day, 0) + line.charged_ppm_ms
        if line.use is not None:
            used[line.day] = used.get(line.day, 0) + line.use.sm_ppm_ms
    top = _top(max([*charged.values(), *used.values(), 1]))
    height = HEIGHT - _TOP - _BOTTOM
    step = (WIDTH - _LEFT) / len(days)
    bars = [
        _bar(day, place, step, charged[day] * height / top, _scaled(used.get(day), height, top))
        for place, day in enumerate(days)
    ]
    texts = [f"{day}: {_hours(charged[day])} card-hours{_of_use(used.get(day))}" for day in days]
    return Picture(
        bars=[_told(bar, text) for bar, text in zip(bars, texts, strict=True)],
        lines=[
            Line(round(_TOP + height - part * height / 2, 2), _hours(top * part // 2)) for part in range(3)
        ],
        baseline=_TOP + height,
    )


def _days(statement: Statement) -> list[str]:
    first = local_date(statement.starts_at_ms, statement.time_zone)
    last = local_date(statement.ends_at_ms - 1, statement.time_zone)
    found: list[date] = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    return [day.isoformat() for day in found]


def _top(most: int) -> int:
    """The round number of card-hours, in ppm·ms, that the highest bar stays below."""
    hour = 3_600_000_000_000
    step = hour // 100
    while most > step:
        for factor in (2, 3, 4, 5, 6, 8, 10):
            if most <= step * factor:
                return step * factor
        step *= 10
    return step


def _scaled(used: int | None, height: int, top: int) -> float | None:
    return None if used is None else used * height / top


def _bar(day: str, place: int, step: float, height: float, used: float | None) -> Bar:
    baseline = HEIGHT - _BOTTOM
    number = int(day[-2:])
    return Bar(
        day=day,
        number=number,
        x=round(_LEFT + place * step + step * _GAP / 2, 2),
        width=round(step * (1 - _GAP), 2),
        y=round(baseline - height, 2),
        height=round(height, 2),
        used_y=None if used is None else round(baseline - used, 2),
        used_height=None if used is None else round(used, 2),
        is_labelled=number == 1 or number % 5 == 0,
        text="",
    )


def _told(bar: Bar, text: str) -> Bar:
    return Bar(
        bar.day, bar.number, bar.x, bar.width, bar.y, bar.height, bar.used_y, bar.used_height,
        bar.is_labelled, text,
    )  # fmt: skip


def _hours(quantity_ppm_ms: int) -> str:
    text = f"{card_hours(quantity_ppm_ms, 2):,f}"
    return text.rstrip("0").rstrip(".")


def _of_use(used: int | None) -> str:
    return ", use not measured" if used is None else f", {_hours(used)} SM hours used"
