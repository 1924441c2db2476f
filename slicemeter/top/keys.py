"""Single keys from a terminal, without waiting for Enter; the terminal is as before afterwards."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from types import TracebackType
from typing import Self

_ARROWS = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down"}


class Keys:
    """Reads keys while the block lasts; reads nothing where standard input is no terminal."""

    def __init__(self) -> None:
        self._file = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._before: list[int | list[bytes | int]] | None = None

    def __enter__(self) -> Self:
        if self._file is not None:
            self._before = termios.tcgetattr(self._file)
            tty.setcbreak(self._file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None and self._before is not None:
            termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)

    def wait(self, seconds: float) -> str | None:
        """The next key's name, or None when none came in time."""
        readable = [] if self._file is None else [self._file]
        if not select.select(readable, [], [], max(0.0, seconds))[0] or self._file is None:
            return None
        typed = os.read(self._file, 16)
        if not typed:  # the terminal went away
            return "q"
        return _ARROWS.get(typed, typed[:1].decode("ascii", "replace"))
