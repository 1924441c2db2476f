"""The sweep, segment by segment: what each holder of a card is charged between two neighbouring events.

`columns` divides the time; this is the same for whoever looks at single segments: explain, energy, the
reports. Invariant, for every segment and so for every sum of them: charged + idle + down = present,
exactly. Cuts come from events, UTC hours and the instants handed in, never from the window, so any window
whose edges are cuts gives the same segments. Source: `reference/ledger.md §2`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from accounting.ledger.columns import Columns, Hold, PolicySpan, divide_time
from accounting.ledger.intervals import Interval
from accounting.ledger.presence import PresenceSpan
from contract.ids import SliceKey
from contract.units import PPM


@dataclass(frozen=True, slots=True)
class Part:
    """What one slice is charged in one segment."""

    slice_key: SliceKey
    charged_ppm_ms: int
    own_ppm_ms: int
    is_degraded: bool
    """Charged while the device was down, because it was measured working."""


class Segment(NamedTuple):
    """A stretch between two neighbouring events of a device."""

    from_ms: int
    to_ms: int
    model: str
    registered_mib: int
    is_confirmed: bool
    is_down: bool
    held: Sequence[Hold]
    """The slices that are charged, by key; while the device is down only those measured working."""
    charged: Sequence[int]
    """What each of them is charged, in ppm·ms."""
    own: Sequence[int]
    """What each would be charged without neighbours."""
    idle_ppm_ms: int
    down_ppm_ms: int

    @property
    def parts(self) -> Iterator[Part]:
        """What each slice is charged."""
        for hold, charged, own in zip(self.held, self.charged, self.own, strict=True):
            yield Part(hold.slice_key, charged, own, self.is_down)

    @property
    def present_ppm_ms(self) -> int:
        """One card for the length of the segment."""
        return (self.to_ms - self.from_ms) * PPM

    @property
    def charged_ppm_ms(self) -> int:
        """What all slices are charged together."""
        return sum(self.charged)


def sweep(
    spans: Sequence[PresenceSpan],
    holds: Iterable[Hold],
    window: Interval,
    *,
    cuts: Iterable[int] = (),
    policies: Sequence[PolicySpan] = (),
) -> list[Segment]:
    """Divide the card's time in the window, as `divide_time` does.

    Returns:
        The segments in time order; none where the device was not present.
    """
    return segments_of(divide_time(spans, holds, window, cuts=cuts, policies=policies))


def segments_of(time: Columns) -> list[Segment]:
    """The segments of a card's time, one by one."""
    by_segment = np.argsort(time.segment_of, kind="stable")
    bounds = np.searchsorted(time.segment_of[by_segment], np.arange(len(time.from_ms) + 1)).tolist()
    held = [time.holds[index] for index in time.hold_of[by_segment].tolist()]
    charged = time.charged_ppm_ms[by_segment].tolist()
    own = time.own_ppm_ms[by_segment].tolist()
    rows = zip(
        time.from_ms.tolist(),
        time.to_ms.tolist(),
        time.span_of.tolist(),
        time.idle_ppm_ms.tolist(),
        time.down_ppm_ms.tolist(),
        bounds[:-1],
        bounds[1:],
        strict=True,
    )
    segments = []
    for from_ms, to_ms, span_of, idle, down, first, last in rows:
        span = time.spans[span_of]
        segments.append(
            Segment(
                from_ms,
                to_ms,
                span.model,
                span.registered_mib,
                span.is_confirmed,
                span.is_down,
                held[first:last],
                charged[first:last],
                own[first:last],
                idle,
                down,
            )
        )
    return segments
