"""One line of a check-up: what was looked at, how it is, and the way out; and a bound on every wait.

Invariant: no question takes longer than `ANSWER_SECONDS`, whatever hangs behind it; one that hangs is
itself the finding.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

from exporter.errors import ExporterError

T = TypeVar("T")

ANSWER_SECONDS = 5.0

Verdict: TypeAlias = Literal["ok", "note", "finding"]


@dataclass(frozen=True, slots=True)
class Line:
    """What one check found.

    Attributes:
        check: What was looked at.
        verdict: `note` = nothing is wrong by itself, but it may be why something is not on the page.
        detail: How it is.
        way_out: What to do; empty where there is nothing to do.
    """

    check: str
    verdict: Verdict
    detail: str
    way_out: str = ""


def ok(check: str, detail: str) -> Line:
    """All is well."""
    return Line(check, "ok", detail)


def note(check: str, detail: str, way_out: str = "") -> Line:
    """Well, unless something else is expected here."""
    return Line(check, "note", detail, way_out)


def finding(check: str, detail: str, way_out: str) -> Line:
    """Something is wrong."""
    return Line(check, "finding", detail, way_out)


@dataclass(frozen=True, slots=True)
class Looked(Generic[T]):
    """The lines of a check, and what it read for the checks after it; None = it could not."""

    lines: Sequence[Line]
    found: T | None = None


def bounded(check: str, look: Callable[[], Looked[T]], way_out: str) -> Looked[T]:
    """What `look` gives, or that it gave nothing in time.

    Args:
        check: The name of the line where there is no answer.
        look: May hang: it runs in a thread that is then left behind.
        way_out: What to do when it hangs.
    """
    answers: list[Looked[T]] = []

    def ask() -> None:
        try:
            answers.append(look())
        except ExporterError as error:
            answers.append(Looked([finding(check, error.detail, way_out)]))
        except Exception as error:  # noqa: BLE001 - one check that breaks must not hide the others
            answers.append(Looked([finding(check, f"{type(error).__name__}: {error}", way_out)]))

    thread = threading.Thread(target=ask, name=f"check-{check}", daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    if answers:
        return answers[0]
    return Looked([finding(check, f"no answer within {ANSWER_SECONDS:g} s", way_out)])
