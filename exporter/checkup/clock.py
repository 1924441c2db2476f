"""Whether the wall clock can be right: the API server's own stamps lie in the past.

Invariant: only what is certainly wrong is a finding; the exact offset is known from accounting alone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from exporter.checkup.finding import Line, finding, ok
from exporter.kube.objects import Meta, parse_time_ms

CHECK = "clock"
FUTURE_MS = 5_000
EARLIEST_MS = 1_704_067_200_000
"""2024-01-01: no clock that is right shows an earlier time."""


def look_at_clock(metas: Sequence[Meta], now_ms: int) -> Line:
    """Compare our clock with when objects were created."""
    now = dt.datetime.fromtimestamp(now_ms // 1_000, tz=dt.UTC).isoformat()
    way_out = "set this node's clock (chrony, systemd-timesyncd): every interval is placed by it"
    if now_ms < EARLIEST_MS:
        return finding(CHECK, f"it shows {now}", way_out)
    created = [at_ms for meta in metas if (at_ms := parse_time_ms(meta.creation_timestamp)) is not None]
    ahead_ms = max(created, default=now_ms) - now_ms
    if ahead_ms > FUTURE_MS:
        behind = f"it shows {now}, {ahead_ms / 1_000:.0f} s before the API server made its newest object"
        return finding(CHECK, behind, way_out)
    return ok(CHECK, f"it shows {now}" + (", after all objects of the API server" if created else ""))
