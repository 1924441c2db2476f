"""When a device was there, and when it was down: one timeline out of everything that speaks of it.

Invariant: spans are sorted, disjoint and not empty; they cover the union of both witnesses' reports, of
every hold on the device and of the node states that explain a silence, plus gaps of up to six hours,
which are flagged. Presence is never added up twice. Source: DESIGN section 5, `reference/ledger.md §2, §5`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

from accounting.ledger.intervals import Interval, clip, subtract
from accounting.ledger.pricing import plain_model
from contract.facts import NodeStateFact, PresenceFact
from contract.units import MS_PER_HOUR

BRIDGE_MS = 6 * MS_PER_HOUR
"""The longest gap between confirmations that is filled."""

NODE_NOT_READY = "node_not_ready"

Basis = Literal["reported", "held", "node_state", "grace", "bridged"]
"""What a span of presence stands on; the last two confirm nothing."""


class HeldTime(NamedTuple):
    """A slice's hold on the device: confirmed up to `confirmed_to_ms`, by grace from there on."""

    from_ms: int
    confirmed_to_ms: int
    to_ms: int


@dataclass(frozen=True, slots=True)
class PresenceSpan:
    """The device was there, in one state and size, for one reason to think so."""

    from_ms: int
    to_ms: int
    is_down: bool
    reason: str | None
    model: str
    registered_mib: int
    basis: Basis

    @property
    def is_confirmed(self) -> bool:
        """Whether this time counts as covered."""
        return self.basis in {"reported", "held", "node_state"}


def not_ready_times(states: Iterable[NodeStateFact], *, as_of_ms: int, grace_ms: int) -> list[Interval]:
    """When the Node was not Ready, each time counted from its last heartbeat.

    A state holds until the next report of the node when that comes within the bridging limit, else for
    the grace beyond its last confirmation.
    """
    ordered = sorted(states, key=lambda state: (state.from_ms, state.ready, state.heartbeat_at_ms))
    times: list[Interval] = []
    for index, state in enumerate(ordered):
        if state.ready:
            continue
        follower = next(
            (later.from_ms for later in ordered[index + 1 :] if later.from_ms > state.from_ms), None
        )
        end_ms = min(as_of_ms, state.to_ms + grace_ms)
        if follower is not None and follower - state.to_ms <= BRIDGE_MS:
            end_ms = max(state.to_ms, follower)
        elif follower is not None:
            end_ms = min(end_ms, follower)
        times.append((min(state.heartbeat_at_ms, state.from_ms), end_ms))
    return clip(times, (0, as_of_ms))


def timeline(
    reports: Sequence[PresenceFact],
    held_times: Iterable[HeldTime],
    not_ready: Iterable[Interval],
    node_alive: Iterable[Interval],
    *,
    as_of_ms: int,
) -> list[PresenceSpan]:
    """The presence of one device up to `as_of_ms`.

    Args:
        reports: What both witnesses said of the device, in any order.
        held_times: The holds of all slices on it.
        not_ready: When its Node was not Ready (`not_ready_times`).
        node_alive: When the node witness showed life, by usage with living processes for instance. Its
            own presence reports count as life anyway.
        as_of_ms: Nothing later is said.

    Returns:
        The spans; none for a device that no witness ever reported, since its size is unknown.
    """
    known = _in_order(report for report in reports if report.from_ms < as_of_ms)
    sized = [report for report in known if report.registered_mib > 0]
    if not sized:
        return []
    holds = [hold for hold in held_times if hold.from_ms < min(hold.to_ms, as_of_ms)]
    sources = _Sources(
        node=_by_start(known, "node"),
        cluster=_by_start(known, "cluster"),
        held=clip([(hold.from_ms, hold.confirmed_to_ms) for hold in holds], (0, as_of_ms)),
        grace=clip([(hold.from_ms, hold.to_ms) for hold in holds], (0, as_of_ms)),
        absent_node=clip(
            subtract(not_ready, [*node_alive, *((r.from_ms, r.to_ms) for r in known if r.witness == "node")]),
            (known[0].from_ms, as_of_ms),
        ),
        known=known,
        sized=sized,
    )
    return _bridge(_spans(sources, as_of_ms))


def _in_order(reports: Iterable[PresenceFact]) -> list[PresenceFact]:
    return sorted(
        reports, key=lambda r: (r.from_ms, r.to_ms, r.state, r.reason or "", r.registered_mib, r.model)
    )


class Size(NamedTuple):
    """What kind of card a device is."""

    model: str
    registered_mib: int


def size_at(spans: Sequence[PresenceSpan], reports: Iterable[PresenceFact], at_ms: int) -> Size | None:
    """The size of a device while it was there, else as it was known last before, else first after.

    Args:
        spans: Its presence around the instant.
        reports: All that was ever said of it.
        at_ms: When.
    """
    index = bisect_right(spans, at_ms, key=lambda span: span.from_ms) - 1
    if index >= 0 and at_ms < spans[index].to_ms:
        return Size(spans[index].model, spans[index].registered_mib)
    sized = [report for report in _in_order(reports) if report.registered_mib > 0]
    if not sized:
        return None
    known = _LastKnown(sized).at(at_ms)
    return Size(plain_model(known.model), known.registered_mib)


@dataclass(frozen=True, slots=True)
class _Sources:
    node: list[PresenceFact]
    cluster: list[PresenceFact]
    held: list[Interval]
    grace: list[Interval]
    absent_node: list[Interval]
    """The Node was not Ready and its witness silent."""
    known: list[PresenceFact]
    sized: list[PresenceFact]
    """Those that know how large the card is; never none."""


def _by_start(reports: Iterable[PresenceFact], witness: str) -> list[PresenceFact]:
    return [report for report in reports if report.witness == witness and report.from_ms < report.to_ms]


class _Cursor:
    """Answers "what covers this instant?" for instants that only grow."""

    def __init__(self, intervals: Sequence[Interval]) -> None:
        self._intervals = intervals
        self._next = 0

    def covers(self, at_ms: int) -> bool:
        while self._next < len(self._intervals) and self._intervals[self._next][1] <= at_ms:
            self._next += 1
        return self._next < len(self._intervals) and self._intervals[self._next][0] <= at_ms


class _ReportCursor:
    """Answers "which report of this witness covers this instant?"; the one that began last speaks."""

    def __init__(self, reports: Sequence[PresenceFact]) -> None:
        self._reports = reports
        self._next = 0
        self._begun: list[PresenceFact] = []

    def at(self, at_ms: int) -> PresenceFact | None:
        while self._next < len(self._reports) and self._reports[self._next].from_ms <= at_ms:
            self._begun.append(self._reports[self._next])
            self._next += 1
        self._begun = [report for report in self._begun if report.to_ms > at_ms]
        return self._begun[-1] if self._begun else None


class _LastKnown:
    """The report that began last before an instant, else the first one after it."""

    def __init__(self, reports: Sequence[PresenceFact]) -> None:
        self._reports = reports
        self._index = 0

    def at(self, at_ms: int) -> PresenceFact:
        while self._index + 1 < len(self._reports) and self._reports[self._index + 1].from_ms <= at_ms:
            self._index += 1
        return self._reports[self._index]


def _spans(sources: _Sources, as_of_ms: int) -> list[PresenceSpan]:
    edges = {edge for interval in (*sources.held, *sources.grace, *sources.absent_node) for edge in interval}
    edges.update(
        edge for r in (*sources.node, *sources.cluster) for edge in (r.from_ms, min(r.to_ms, as_of_ms))
    )
    node, cluster = _ReportCursor(sources.node), _ReportCursor(sources.cluster)
    held, grace, absent = _Cursor(sources.held), _Cursor(sources.grace), _Cursor(sources.absent_node)
    last_state, last_size = _LastKnown(sources.known), _LastKnown(sources.sized)
    spans: list[PresenceSpan] = []
    ordered = sorted(edge for edge in edges if edge <= as_of_ms)
    for start, end in pairwise(ordered):
        from_node, from_cluster = node.at(start), cluster.at(start)
        state = from_node or from_cluster or last_state.at(start)
        size = state if state.registered_mib > 0 else last_size.at(start)
        is_held, is_grace, is_absent = held.covers(start), grace.covers(start), absent.covers(start)
        basis: Basis
        if from_node or from_cluster:
            basis = "reported"
        elif is_held:
            basis = "held"
        elif is_absent:
            basis = "node_state"
        elif is_grace:
            basis = "grace"
        else:
            continue
        is_down = state.state == "down" and state.from_ms <= start
        reason = state.reason if is_down else None
        if is_absent:
            is_down, reason = True, NODE_NOT_READY
        model = plain_model(size.model or last_size.at(start).model)
        _append(spans, PresenceSpan(start, end, is_down, reason, model, size.registered_mib, basis))
    return spans


def _append(spans: list[PresenceSpan], span: PresenceSpan) -> None:
    """Add a span, joined with its neighbour when nothing but time separates them."""
    if (
        spans
        and spans[-1].to_ms == span.from_ms
        and replace(spans[-1], from_ms=span.from_ms, to_ms=span.to_ms) == span
    ):
        spans[-1] = replace(spans[-1], to_ms=span.to_ms)
    else:
        spans.append(span)


def _bridge(spans: Sequence[PresenceSpan]) -> list[PresenceSpan]:
    """Fill gaps of up to six hours with the state that was known before them."""
    filled: list[PresenceSpan] = []
    for span in spans:
        if filled and 0 < span.from_ms - filled[-1].to_ms <= BRIDGE_MS:
            before = filled[-1]
            _append(filled, replace(before, from_ms=before.to_ms, to_ms=span.from_ms, basis="bridged"))
        _append(filled, span)
    return filled
