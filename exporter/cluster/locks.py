"""Node locks: which are held, and how each one ended.

HAMi takes a lock on the node for each bind; one that nobody frees blocks every bind there for five
minutes, and one that HAMi cannot parse blocks for ever. Invariant: every change of the annotation that was
seen is counted by exactly one outcome, and each outcome of a node is there from 0.

Ages are judged by the locks' own times, for expiry is judged by the scheduler's clock; and since node and
pod watches are not ordered, an ending is judged a second after it was seen.

Source: `reference/hami-kubernetes.md §7`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from contract.catalogue import LOCK_OUTCOMES
from exporter.hami.annotations.node_lock import KEY, NodeLock, parse_node_lock
from exporter.hami.annotations.pod_keys import BindPhase
from exporter.kube.objects import Node

Outcome: TypeAlias = Literal["released", "expired", "dangling", "manual"]

JUDGE_AFTER_MS: Final = 1_000
"""How long an ending waits for the owner's own update."""

NEAR_TIMEOUT_MS: Final = 3_000
"""A lock so near the timeout counts as expired: its time has whole seconds, by another clock."""

STUCK_AFTER_MS: Final = 30_000
STUCK_SEEN_MS: Final = 2_000
"""A bound owner must have been seen bound for so long: its own times may lie far back."""


@dataclass(frozen=True, slots=True)
class Owner:
    """What is known of a lock's owner when its lock ended.

    Attributes:
        exists: The pod was there when the lock ended.
        binding_failed_ms: When a binding of it last failed; None: never seen.
    """

    exists: bool
    bind_phase: BindPhase | None = None
    is_terminal: bool = False
    binding_failed_ms: int | None = None


class Owners(Protocol):
    """Who knows the pods."""

    def owner(self, namespace: str, pod: str, at_ms: int) -> Owner:
        """What is known of a pod, as of an instant."""


class Ending(msgspec.Struct, frozen=True):
    """A lock that is no longer on the node; `next_acquired_ms` is the time of the one that replaced it."""

    text: str
    seen_at_ms: int
    next_acquired_ms: int | None


class LockState(msgspec.Struct):
    """What is remembered of a node.

    Attributes:
        text: The annotation as last seen, None for none.
        since_ms: When it was first seen, so that its outcomes were 0, Unix time.
    """

    node: str
    text: str | None
    outcomes: dict[str, int]
    endings: list[Ending] = []
    since_ms: int | None = None


def judge(lock: NodeLock, ending: Ending, owner: Owner | None, timeout_ms: int) -> Outcome:
    """How a lock ended: the first line of the reference's table that fits.

    Args:
        lock: The lock that ended.
        ending: When it was seen to be gone.
        owner: None for a lock that names no owner.
        timeout_ms: HAMi's timeout.
    """
    if lock.acquired_at_ms is None:
        return "manual"
    until_ms = ending.seen_at_ms if ending.next_acquired_ms is None else ending.next_acquired_ms
    is_expired = until_ms - lock.acquired_at_ms >= timeout_ms - NEAR_TIMEOUT_MS
    if owner is not None and _has_released(owner, lock.acquired_at_ms):
        return "released"
    if owner is not None and not owner.exists:
        return "dangling"
    if is_expired:
        return "expired"
    is_at_it = owner is not None and not owner.is_terminal and owner.bind_phase == "allocating"
    return "manual" if is_at_it else "released"


def _has_released(owner: Owner, acquired_at_ms: int) -> bool:
    """The owner's own state says that whoever served it let go of the lock."""
    has_failed = owner.binding_failed_ms is not None and owner.binding_failed_ms >= acquired_at_ms
    return owner.exists and (owner.bind_phase in {"success", "failed"} or has_failed)


class NodeLocks:
    """Follows the lock annotation of every node.

    Args:
        timeout_ms: HAMi's timeout.
        states: What the last run knew, by node UID: changes while it was away are counted, too.
    """

    def __init__(self, timeout_ms: int, states: Mapping[str, LockState] | None = None) -> None:
        self._timeout_ms = timeout_ms
        self._states = dict(states or {})

    def see(self, node: Node, seen_at_ms: int) -> None:
        """Take in a node as it was at one moment; call it for every change, in order.

        A lock that is there at first sight was taken before, so it is not counted as acquired.
        """
        text = node.metadata.annotations.get(KEY)
        known = self._states.get(node.metadata.uid)
        if known is None:
            outcomes = dict.fromkeys(LOCK_OUTCOMES, 0)
            self._states[node.metadata.uid] = LockState(
                node.metadata.name, text, outcomes, since_ms=seen_at_ms
            )
            return
        if text == known.text:
            return
        if known.text is not None:
            next_ms = None if text is None else parse_node_lock(text).acquired_at_ms
            known.endings.append(Ending(known.text, seen_at_ms, next_ms))
        if text is not None:
            known.outcomes["acquired"] += 1
        known.text = text

    def forget(self, node_uid: str) -> None:
        """A node is gone, and its lock with it: that is no outcome."""
        self._states.pop(node_uid, None)

    def judge(self, owners: Owners, now_ms: int) -> None:
        """Count the outcomes of the endings that have waited long enough."""
        for state in self._states.values():
            due = [ending for ending in state.endings if now_ms - ending.seen_at_ms >= JUDGE_AFTER_MS]
            for ending in due:
                lock = parse_node_lock(ending.text)
                owner = None
                if lock.namespace is not None and lock.pod is not None:
                    owner = owners.owner(lock.namespace, lock.pod, ending.seen_at_ms)
                state.outcomes[judge(lock, ending, owner, self._timeout_ms)] += 1
            if due:
                state.endings = [ending for ending in state.endings if ending not in due]

    def states(self) -> Mapping[str, LockState]:
        """What is known, by node UID; also what must survive a restart."""
        return self._states
