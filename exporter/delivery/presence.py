"""What lasts in one state: a device that is there, a Node that is Ready; and the facts about it.

A fact runs from the change that began the state to the latest confirmation, and is said again as that
moves on. Invariants: `to` is never later than a confirmation, but for the moment of a change, where one
state ends and the next begins; a silence longer than two confirmation intervals is left open (accounting
bridges and flags it), so the fact after it begins anew.

Source: DESIGN section 5, `reference/ledger.md §5`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from contract.facts import DeviceState, Fact, NodeStateFact, PresenceFact
from contract.ids import ClusterCode, DeviceUuid, NodeUid, Witness

SINCE_LIMIT_MS = 24 * 3_600_000
"""How far back a Node's first state may reach; accounting refuses what is very old."""

StateFact: TypeAlias = PresenceFact | NodeStateFact


@dataclass(frozen=True, slots=True)
class PresentDevice:
    """A device that is there, in one state and size; `confirmed_at_ms` = when that was last known."""

    device_uuid: DeviceUuid
    node_uid: NodeUid
    node: str
    model: str
    vendor: str
    registered_mib: int
    slots: int
    confirmed_at_ms: int
    physical_mib: int | None = None
    state: DeviceState = "healthy"
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A Node's Ready condition; `since_ms` = its last transition."""

    node_uid: NodeUid
    node: str
    is_ready: bool
    heartbeat_at_ms: int
    confirmed_at_ms: int
    since_ms: int | None = None


class OpenState(msgspec.Struct):
    """A state that goes on: the fact as it is now, and as it was last said (None: not yet)."""

    latest: StateFact
    said: StateFact | None = None


class States:
    """One role's memory of the states it has reported.

    Args:
        cluster: The cluster's code.
        witness: Who speaks of devices; Nodes are the cluster witness's alone.
        confirm_interval_ms: How often states are confirmed.
        open_states: What the last run left.
    """

    def __init__(
        self,
        cluster: ClusterCode,
        witness: Witness,
        confirm_interval_ms: int,
        open_states: Iterable[OpenState] = (),
    ) -> None:
        self._cluster = cluster
        self._witness = witness
        self._near_ms = 2 * confirm_interval_ms
        self._open = {_subject(known.latest): known for known in open_states}

    def dump(self) -> list[OpenState]:
        """What must survive a restart."""
        return list(self._open.values())

    def see(
        self, devices: Iterable[PresentDevice], nodes: Iterable[SeenNode], *, is_due: bool
    ) -> Iterator[Fact]:
        """The facts that are due after a look at everything there is."""
        seen: set[Hashable] = set()
        facts: list[StateFact] = [self._device_fact(device) for device in devices]
        facts += [self._node_fact(node) for node in nodes]
        for fact in facts:
            seen.add(_subject(fact))
            yield from self._follow(fact, is_due=is_due)
        for subject in [subject for subject in self._open if subject not in seen]:
            yield from _say(self._open.pop(subject))

    def _follow(self, now: StateFact, *, is_due: bool) -> Iterator[Fact]:
        subject = _subject(now)
        known = self._open.get(subject)
        if known is None:
            known = self._open[subject] = OpenState(now)
        elif now.to_ms - known.latest.to_ms > self._near_ms:
            yield from _say(known)
            known = self._open[subject] = OpenState(now)
        elif _is_same(known.latest, now):
            to_ms = max(known.latest.to_ms, now.to_ms)
            known.latest = msgspec.structs.replace(now, from_ms=known.latest.from_ms, to_ms=to_ms)
        else:
            change_ms = max(known.latest.to_ms, now.from_ms)
            known.latest = msgspec.structs.replace(known.latest, to_ms=change_ms)
            yield from _say(known)
            to_ms = max(change_ms, now.to_ms)
            known = OpenState(msgspec.structs.replace(now, from_ms=change_ms, to_ms=to_ms))
            self._open[subject] = known
        if known.said is None or is_due:
            yield from _say(known)

    def _device_fact(self, device: PresentDevice) -> PresenceFact:
        return PresenceFact(
            cluster=self._cluster,
            node_uid=device.node_uid,
            node=device.node,
            device_uuid=device.device_uuid,
            witness=self._witness,
            from_ms=device.confirmed_at_ms,
            to_ms=device.confirmed_at_ms,
            state=device.state,
            model=device.model,
            vendor=device.vendor,
            registered_mib=device.registered_mib,
            slots=device.slots,
            physical_mib=device.physical_mib,
            reason=device.reason,
        )

    def _node_fact(self, node: SeenNode) -> NodeStateFact:
        at_ms = node.confirmed_at_ms
        since_ms = node.since_ms
        if since_ms is None or not at_ms - SINCE_LIMIT_MS <= since_ms <= at_ms:
            since_ms = at_ms
        return NodeStateFact(
            cluster=self._cluster,
            node_uid=node.node_uid,
            node=node.node,
            from_ms=since_ms,
            to_ms=at_ms,
            ready=node.is_ready,
            heartbeat_at_ms=node.heartbeat_at_ms,
        )


def _subject(fact: StateFact) -> Hashable:
    match fact:
        case PresenceFact():
            return fact.node_uid, fact.device_uuid
        case NodeStateFact():
            return fact.node_uid


def _is_same(known: StateFact, now: StateFact) -> bool:
    """Whether nothing but time went on."""
    if isinstance(known, NodeStateFact) and isinstance(now, NodeStateFact):
        return known.ready == now.ready
    return msgspec.structs.replace(now, from_ms=known.from_ms, to_ms=known.to_ms) == known


def _say(known: OpenState) -> Iterator[Fact]:
    """Say the state as it is now, unless that was said already."""
    if known.latest != known.said:
        known.said = known.latest
        yield known.latest
