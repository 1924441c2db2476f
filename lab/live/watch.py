"""Shows a running stack: a live table in a terminal, plain lines elsewhere.

Invariant: it looks and never acts; what it shows comes from the album and the costs it is given.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live

from lab.footprint import Footprint
from lab.live.front_page import Question
from lab.live.render import Screen, render
from lab.live.view import Address, Costs, cluster_line, slice_rows
from lab.pages import Album, Page

PLAIN_TABLE_EVERY_S = 20
_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
PICTURE_WIDTH = 138
ANY_HEIGHT = 1_000
"""A file has as many lines as one writes."""


class Watch:
    """What a person sees of one run.

    Args:
        console: Where to show it.
        codes: The clusters, in order.
        album: The exporters' pages.
        addresses: What one may open, the one to open first in front.
        questions: What one may ask the API; the first is on the screen.
        hint: The last line: how to stop.
    """

    def __init__(
        self,
        console: Console,
        codes: Sequence[str],
        album: Album,
        *,
        addresses: Sequence[Address],
        questions: Sequence[Question],
        hint: str,
    ) -> None:
        self._console = console
        self._codes = codes
        self._album = album
        self._addresses = addresses
        self._questions = questions
        self._hint = hint
        self._live: Live | None = None
        self._last_step = ""
        self._next_table_s = PLAIN_TABLE_EVERY_S
        self.screen: Screen | None = None
        """What was shown last."""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, screen=False)
            self._live.start()
        else:
            for address in self._addresses:
                self._say(f"{address.name}: {address.place}")
            for question in self._questions:
                self._say(f"ask {question.who}: {question.command}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, elapsed_s: float, step: str, costs: Costs, peak: Footprint) -> None:
        """Show the present moment."""
        self.screen = Screen(
            elapsed_s=int(elapsed_s),
            step=step,
            rows=[row for code in self._codes for row in slice_rows(code, self._node(code), costs)],
            clusters=[
                cluster_line(code, self._album.latest(f"node {code}"), self._album.latest(f"cluster {code}"))
                for code in self._codes
            ],
            addresses=self._addresses,
            question=self._questions[0] if self._questions else None,
            peak=peak,
            hint=self._hint,
        )
        if self._live is not None:
            self._live.update(render(self.screen, self._console.size), refresh=True)
            return
        if step != self._last_step:
            self._last_step = step
            self._say(f"{int(elapsed_s):4} s  {step}")
        if elapsed_s >= self._next_table_s:
            self._next_table_s += PLAIN_TABLE_EVERY_S
            self._console.print(render(self.screen, (self._console.width, ANY_HEIGHT)))

    def _node(self, code: str) -> Sequence[Page]:
        return self._album.pages(f"node {code}")

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def picture(screen: Screen, width: int = PICTURE_WIDTH) -> str:
    """A screen as SVG, for documents; folders of this computer and fonts from elsewhere are left out."""
    pages = [replace(address, place=_without_folder(address.place)) for address in screen.addresses]
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(
            record=True, width=width, file=nowhere, force_terminal=True, color_system="truecolor"
        )
        console.print(render(replace(screen, addresses=pages, question=None), (width, ANY_HEIGHT)))
        return _FONTS.sub("", console.export_svg(title="slicemeter demo"))


def _without_folder(place: str) -> str:
    if not place.startswith("file://"):
        return place
    return f"file:///…/{'/'.join(PurePosixPath(place).parts[-2:])}"
