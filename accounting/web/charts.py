"""Pictures as numbers: bars in pixels, drawn by a template as SVG, with a text for each bar.

Invariant: a picture adds nothing up and leaves nothing out; its bars are the rows of the table beneath it,
and a value that is None has no bar, which is not a bar of 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

WIDTH, HEIGHT = 960, 210
_LEFT, _TOP, _BOTTOM = 58, 12, 26
_GAP = Decimal("0.22")
"""Of a column's width."""
_LABELS_AT_MOST = 12


@dataclass(frozen=True, slots=True)
class Column:
    """One column as a page wants it: parts from the bottom up, and one bar within them."""

    label: str
    text: str
    """What a pointer or a screen reader is told."""
    parts: Sequence[tuple[str, int]]
    """CSS class and quantity."""
    inner: tuple[str, int] | None = None
    """A narrower bar before the others, from the bottom."""
    href: str = ""


@dataclass(frozen=True, slots=True)
class Rect:
    """A bar, in pixels from the upper left corner."""

    css: str
    x: Decimal
    y: Decimal
    width: Decimal
    height: Decimal


@dataclass(frozen=True, slots=True)
class DrawnColumn:
    """One column in pixels."""

    rects: Sequence[Rect]
    x: Decimal
    width: Decimal
    middle: Decimal
    label: str
    """Empty: not every column has room for its own."""
    text: str
    href: str


@dataclass(frozen=True, slots=True)
class Across:
    """A line across, with its label."""

    y: Decimal
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture with its words."""

    name: str
    """Of its ids on the page."""
    title: str
    keys: Sequence[tuple[str, str]]
    """CSS class and what it means."""
    columns: Sequence[DrawnColumn]
    across: Sequence[Across]
    baseline: int = HEIGHT - _BOTTOM
    top: int = _TOP
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT


def draw(
    name: str,
    title: str,
    columns: Sequence[Column],
    *,
    keys: Sequence[tuple[str, str]],
    top: int,
    labels: Sequence[str],
) -> Chart:
    """Put columns into pixels.

    Args:
        name: A word that is an id on the page.
        title: What the picture shows, with its unit.
        columns: From left to right.
        keys: CSS classes and what they mean.
        top: The quantity at the upper end of the scale.
        labels: Of the lines across, from the bottom to the top, evenly spaced.
    """
    step = Decimal(WIDTH - _LEFT) / max(len(columns), 1)
    every = -(-len(columns) // _LABELS_AT_MOST) or 1
    return Chart(
        name=name,
        title=title,
        keys=keys,
        columns=[
            _drawn(column, _LEFT + place * step, step, top, is_labelled=place % every == 0)
            for place, column in enumerate(columns)
        ],
        across=[
            Across(_px(HEIGHT - _BOTTOM - _room() * place / (len(labels) - 1)), label)
            for place, label in enumerate(labels)
        ],
    )


def round_top(most: int, unit: int) -> int:
    """The round number of units (as ppm·ms in a card-hour) that the highest bar stays below."""
    step = max(unit // 100, 1)
    while most > step:
        for factor in range(2, 21, 2):
            if most <= step * factor:
                return step * factor
        step *= 10
    return step


def _room() -> Decimal:
    return Decimal(HEIGHT - _TOP - _BOTTOM)


def _px(pixels: Decimal) -> Decimal:
    return pixels.quantize(Decimal("0.01"))


def _drawn(column: Column, left: Decimal, step: Decimal, top: int, *, is_labelled: bool) -> DrawnColumn:
    x, width = left + step * _GAP / 2, step * (1 - _GAP)
    rects: list[Rect] = []
    at = Decimal(HEIGHT - _BOTTOM)
    for css, quantity in column.parts:
        height = _room() * quantity / top
        at -= height
        if quantity > 0:
            rects.append(Rect(css, _px(x), _px(at), _px(width), _px(height)))
    if column.inner is not None and column.inner[1] > 0:
        css, quantity = column.inner
        height = _room() * min(quantity, top) / top
        rects.append(
            Rect(css, _px(x + width / 4), _px(HEIGHT - _BOTTOM - height), _px(width / 2), _px(height))
        )
    return DrawnColumn(
        rects=rects,
        x=_px(left),
        width=_px(step),
        middle=_px(left + step / 2),
        label=column.label if is_labelled else "",
        text=column.text,
        href=column.href,
    )
