"""HAMi's node lock: when it was taken and by which pod.

    RFC3339                        HAMi 2.3, or a pod was not known
    RFC3339 "," namespace "," pod  HAMi ≥ 2.4

Read exactly as HAMi reads it, blanks included: a value that HAMi cannot parse is never removed by it and
blocks every bind on the node, so a lenient reader would hide the one thing worth an alert.

Source: `reference/hami-kubernetes.md §7.1`.
"""

from __future__ import annotations

from dataclasses import dataclass

from exporter.hami.annotations.flaw import Flaw, Kind, flaw
from exporter.hami.annotations.scalars import is_text, rfc3339_ms

KIND: Kind = "node-lock"
KEY = "hami.io/mutex.lock"


@dataclass(frozen=True, slots=True)
class NodeLock:
    """The lock's value.

    Attributes:
        acquired_at_ms: Unix milliseconds by the scheduler's clock; None when it cannot be read.
        namespace: The owner's; None when the value names none.
        pod: The owner's name; the UID is not stored, so an equal-named pod looks like the owner.
        errors: What could not be read.
    """

    acquired_at_ms: int | None
    namespace: str | None
    pod: str | None
    errors: tuple[Flaw, ...] = ()

    @property
    def is_readable(self) -> bool:
        """False for a value that only a person can remove."""
        return self.acquired_at_ms is not None


def parse_node_lock(text: str) -> NodeLock:
    """Read a lock's value; never raises. An empty text is no lock."""
    if not text:
        return NodeLock(None, None, None)
    fields = text.split(",")
    if len(fields) not in {1, 3}:
        detail = f"a lock has 1 or 3 fields, not {len(fields)}; HAMi will not remove it"
        return NodeLock(None, None, None, (flaw(KIND, text, "field_count", detail),))
    namespace, pod = (fields[1] or None, fields[2] or None) if len(fields) == 3 else (None, None)
    errors: list[Flaw] = []
    if not (is_text(namespace or "") and is_text(pod or "")):
        errors.append(flaw(KIND, text, "bad_value", "the owner's name is no short printable text"))
        namespace = pod = None
    acquired_at_ms = rfc3339_ms(fields[0])
    if acquired_at_ms is None:
        detail = f'"{fields[0][:40]}" is no RFC 3339 time; HAMi will not remove the lock'
        errors.append(flaw(KIND, text, "bad_time", detail))
    return NodeLock(acquired_at_ms, namespace, pod, tuple(errors))
