"""Pods that wait for GPU slices: why, for how much, how long, and whether they can ever fit.

Waiting time is integrated from tick to tick; while the API server is away nothing is added, and what
passed meanwhile, or while the exporter was away, is added afterwards. Invariant: each unbound pod has
exactly one reason at a time, out of a closed set, so the reasons of a namespace add up to its pods.

Source: `reference/hami-kubernetes.md §4, §7.5, §8`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec

from contract.ids import PodUid
from exporter.cluster.events import Verdict
from exporter.cluster.nodes import CardShape
from exporter.cluster.pods import PodRecord
from exporter.hami.resources import Request

Why: TypeAlias = Literal["count", "type", "memory", "cores"]

GATED: Final = "SchedulingGated"
UNFILTERED: Final = "Unfiltered"
"""HAMi has said nothing of the pod yet."""
FILTERED: Final = "Filtered"
"""HAMi chose a device; the binding is on its way."""
NODE_LOCKED: Final = "NodeLocked"
BINDING_FAILED: Final = "BindingFailed"
FAILED_SCHEDULING: Final = "FailedScheduling"
"""The scheduler itself found no node, and HAMi was never asked."""

_USE_TYPE = "nvidia.com/use-gputype"
_NO_USE_TYPE = "nvidia.com/nouse-gputype"


class PendingKey(msgspec.Struct, frozen=True, order=True):
    """The labels of the pending families."""

    namespace: str
    tenant: str
    reason: str


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A waiting pod and its labels."""

    record: PodRecord
    key: PendingKey


def is_pending(record: PodRecord, schedulers: Collection[str]) -> bool:
    """An unbound pod that wants slices of HAMi; one of another scheduler bypasses it."""
    return (
        bool(record.requests)
        and not record.is_bound
        and not record.is_terminal
        and record.pod.spec.scheduler_name in schedulers
    )


def waits_for_lock(record: PodRecord, verdict: Verdict | None) -> str | None:
    """The node whose lock refused the pod last; None when it waits for none.

    Until it is bound, or the filter has run anew (`vgpu-time` moved on, or the node changed).
    """
    if verdict is None or verdict.kind != "lock_refused" or record.is_bound or record.is_terminal:
        return None
    node = record.keys.node
    if node is None or (verdict.node and verdict.node != node) or _is_filtered_after(record, verdict):
        return None
    return node


def reason_of(record: PodRecord, verdict: Verdict | None) -> str:
    """Why a pod waits: one word."""
    is_gated = any(
        condition.type == "PodScheduled" and condition.reason == GATED
        for condition in record.pod.status.conditions
    )
    if is_gated:
        return GATED
    if verdict is None:
        return FILTERED if record.holding.reserved else UNFILTERED
    if verdict.kind == "lock_refused" and waits_for_lock(record, verdict) is None:
        return FILTERED
    return FILTERED if _is_filtered_after(record, verdict) else (_REASONS.get(verdict.kind) or verdict.reason)


_REASONS: Final[Mapping[str, str]] = {
    "filtered": FILTERED,
    "bound": FILTERED,
    "lock_refused": NODE_LOCKED,
    "binding_failed": BINDING_FAILED,
    "not_scheduled": FAILED_SCHEDULING,
}
"""A failed filter has its own reason."""


def _is_filtered_after(record: PodRecord, verdict: Verdict) -> bool:
    filtered_at_ms = record.keys.filtered_at_ms
    return filtered_at_ms is not None and filtered_at_ms > verdict.at_ms and bool(record.holding.reserved)


def wanted_mib(requests: Iterable[Request], cards_mib: Collection[int]) -> int | None:
    """GPU memory a pod asks for: its app and sidecar containers, or its largest init container.

    Percentages and whole cards are taken of the smallest registered card, on which they ask for least.

    Returns:
        None when a part of it depends on a card and none is registered.
    """
    smallest = min(cards_mib, default=None)
    long_lived_mib, largest_init_mib = 0, 0
    for request in requests:
        if request.memory_mib is not None:
            per_card = request.memory_mib
        elif smallest is None:
            return None
        else:
            per_card = smallest * (request.memory_percent or 100) // 100
        memory = per_card * request.count
        if request.kind == "init":
            largest_init_mib = max(largest_init_mib, memory)
        else:
            long_lived_mib += memory
    return max(long_lived_mib, largest_init_mib)


def never_fits(record: PodRecord, nodes: Collection[tuple[CardShape, ...]]) -> Why | None:
    """Why no node, however empty, could take the pod; None when one could, or none is registered."""
    if not nodes:
        return None
    for why in _STAGES:
        nodes = [cards for cards in nodes if all(_fits(why, each, record, cards) for each in record.requests)]
        if not nodes:
            return why
    return None


_STAGES: Final[tuple[Why, ...]] = ("count", "type", "memory", "cores")


def _fits(stage: Why, request: Request, record: PodRecord, cards: tuple[CardShape, ...]) -> bool:
    """Whether a node has as many cards as asked for that pass this stage and those before it."""
    passed = list(cards)
    if stage != "count":
        passed = [card for card in passed if _is_wanted_type(record, card[2])]
    if stage in {"memory", "cores"}:
        passed = [card for card in passed if _has_memory(request, card[0])]
    if stage == "cores":
        passed = [card for card in passed if request.core_percent <= card[1]]
    return len(passed) >= request.count


def _has_memory(request: Request, card_mib: int) -> bool:
    if request.memory_mib is not None:
        return request.memory_mib <= card_mib
    return (request.memory_percent or 100) <= 100


def _is_wanted_type(record: PodRecord, model: str) -> bool:
    """HAMi matches comma lists of case-insensitive substrings."""
    annotations, low = record.pod.metadata.annotations, model.lower()

    def names(key: str) -> list[str]:
        return [word for part in annotations.get(key, "").split(",") if (word := part.strip().lower())]

    wanted, unwanted = names(_USE_TYPE), names(_NO_USE_TYPE)
    return (not wanted or any(word in low for word in wanted)) and not any(word in low for word in unwanted)


class WaitingSince(msgspec.Struct):
    """A pod that waits: up to when its time is counted, and under which labels."""

    counted_until_ms: int
    key: PendingKey


class WaitingCount(msgspec.Struct, frozen=True):
    """A counter of waiting time."""

    key: PendingKey
    milliseconds: int


class WaitingTime:
    """Counts waiting time by namespace, tenant and reason.

    Args:
        waiting: Pods that waited when the last run ended, by UID.
        counts: What the last run counted.
    """

    def __init__(
        self, waiting: Mapping[str, WaitingSince] | None = None, counts: Iterable[WaitingCount] = ()
    ) -> None:
        self._waiting = dict(waiting or {})
        self._counts = {count.key: count.milliseconds for count in counts}

    def tick(
        self, pending: Iterable[PendingPod], end_ms: Callable[[PodUid], int | None], view_ms: int
    ) -> None:
        """Add the time up to the present view.

        Args:
            pending: The pods that wait now.
            end_ms: When a pod that waits no longer was bound or deleted; None: not known.
            view_ms: Up to when it is known that they wait.
        """
        present: set[str] = set()
        for pod in pending:
            uid = pod.record.uid
            present.add(uid)
            known = self._waiting.setdefault(uid, WaitingSince(view_ms, pod.key))
            self._add(pod.key, view_ms - known.counted_until_ms)
            known.counted_until_ms, known.key = max(known.counted_until_ms, view_ms), pod.key
        for gone in [uid for uid in self._waiting if uid not in present]:
            left = self._waiting.pop(gone)
            ended_ms = end_ms(PodUid(gone))
            if ended_ms is not None:
                self._add(left.key, ended_ms - left.counted_until_ms)

    def has(self, uid: PodUid) -> bool:
        """Whether the pod waited at the last tick."""
        return uid in self._waiting

    def _add(self, key: PendingKey, milliseconds: int) -> None:
        self._counts[key] = self._counts.get(key, 0) + max(milliseconds, 0)

    def counts(self) -> Mapping[PendingKey, int]:
        """Milliseconds by labels."""
        return self._counts

    def dump(self) -> tuple[dict[str, WaitingSince], list[WaitingCount]]:
        """What must survive a restart."""
        counts = [WaitingCount(key, milliseconds) for key, milliseconds in self._counts.items()]
        return dict(self._waiting), counts
