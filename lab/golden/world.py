"""The words in which a month is told: nodes and cards, pods that hold slices of them, outages.

Invariant: everything is a value; times are Unix milliseconds, and a month told twice is the same month.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from contract.ids import ClusterCode, DeviceUuid, NodeUid, PodUid, TenantKey

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(text: str) -> int:
    """`2026-10-16T10:00Z` as Unix milliseconds."""
    return int((datetime.fromisoformat(text) - _EPOCH).total_seconds()) * 1_000


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU; `idle_watts` is what its board draws when nobody uses it."""

    uuid: DeviceUuid
    model: str
    registered_mib: int
    idle_watts: int
    slots: int = 10


@dataclass(frozen=True, slots=True)
class Outage:
    """A node that nobody could reach for a while.

    Attributes:
        last_heartbeat_ms: The Node counts as not Ready from here.
        alive_until_ms: Its exporter and processes lived on until here, and kept what they had to report.
        ready_ms: The node is back, and reports what it kept.
    """

    last_heartbeat_ms: int
    alive_until_ms: int
    ready_ms: int


@dataclass(frozen=True, slots=True)
class Node:
    """A node with its cards; a mock node has no exporter of its own and nothing is measured on it."""

    cluster: ClusterCode
    uid: NodeUid
    name: str
    cards: tuple[Card, ...]
    is_mock: bool = False
    outage: Outage | None = None

    def card(self, uuid: DeviceUuid) -> Card:
        """Its card of this UUID."""
        return next(card for card in self.cards if card.uuid == uuid)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod whose one container holds a slice on each of its cards.

    Attributes:
        ended_ms: When it was seen to end; None: nobody saw that.
        vanished_ms: With no end seen, when both witnesses confirmed it last; None: it still runs.
        missed_ms: When the cluster witness missed it in a relist, although it ran on.
        sm_percent: Its part of each card's SM time while it runs.
        active_watts: What it adds to each board's power.
        bypasses: It uses the card without an allocation.
    """

    node: Node
    uid: PodUid
    namespace: str
    name: str
    tenant_key: TenantKey
    cards: tuple[DeviceUuid, ...]
    mem_mib: int
    core_percent: int
    bound_ms: int
    started_ms: int
    ended_ms: int | None = None
    vanished_ms: int | None = None
    missed_ms: int | None = None
    sm_percent: int = 0
    active_watts: int = 0
    bypasses: bool = False

    def known_until(self, at_ms: int) -> int:
        """Up to when, seen from an instant, it is known to be there."""
        return min(at_ms, self.ended_ms or at_ms, self.vanished_ms or at_ms)


@dataclass(frozen=True, slots=True)
class World:
    """Everything that happened, as far as GPUs are concerned."""

    watched_from_ms: int
    """The exporters were installed."""
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
