"""How work that takes long tells how far it is, without knowing who looks."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told now and then what is being done and how much of it."""

    def __call__(self, what: str, done: int, total: int) -> None:
        """`done` of `total` parts of `what` are done; a total of 0 means that nobody knows it."""


def unseen(what: str, done: int, total: int) -> None:
    """For whoever does not look."""
