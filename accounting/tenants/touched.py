"""What changes hands between two states of rules and moves: whose claims, which cards, over which time.

Invariant: rating the days that are marked here gives the ledger that rating every day would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec
from sqlalchemy import or_, select, union
from sqlalchemy.orm import Session

from accounting.ledger.intervals import Interval
from accounting.ledger.policies import FOREVER_MS
from accounting.ledger.tenancy import Claim, Ownership, Tenancy, leaf_path
from accounting.prices.versioning import mark_rated_days
from accounting.settings import MAX_GRACE_MS
from accounting.store.models import AllocationReport, Cluster, Tenant, UnallocatedFact
from accounting.tenants.tree import LEAF
from contract.ids import ClusterCode, DeviceKey, DeviceUuid, NodeUid
from contract.units import MS_PER_HOUR

_BEGINNING_MS = 0


@dataclass(frozen=True, slots=True)
class ChangedHands:
    """Cards whose slices or uses get another owner, and from when to when; an open end is far away."""

    cards: Mapping[DeviceKey, Interval]

    @property
    def window(self) -> Interval | None:
        """From the first to the last such time; None: nothing changes hands."""
        if not self.cards:
            return None
        return min(start for start, _ in self.cards.values()), max(end for _, end in self.cards.values())


def known_claims(session: Session) -> set[Claim]:
    """Every combination of names that some fact has."""
    held = AllocationReport
    rows = session.execute(select(held.cluster, held.tenant_key, held.namespace, held.labels).distinct())
    claims = {claim_of(*row) for row in rows}
    used = UnallocatedFact
    others = session.execute(select(used.cluster, used.tenant_key, used.namespace).distinct())
    return claims | {Claim(*row) for row in others}


def claim_of(cluster: str, tenant_key: str, namespace: str, labels: str) -> Claim:
    """The claim of a stored report; its labels are JSON."""
    read = msgspec.json.decode(labels, type=dict[str, str])
    return Claim(cluster, tenant_key, namespace, tuple(sorted(read.items())))


def mark_changed_hands(session: Session, before: Tenancy, after: Tenancy) -> ChangedHands:
    """Make the days due on which something changes hands, and list the leaves that stay unmapped.

    Args:
        session: The writing transaction that recorded `after`.
        before: The rules and moves as they were.
        after: As they are now.
    """
    accounts = {row.code: row.account for row in session.scalars(select(Cluster))}
    claims = sorted(known_claims(session), key=lambda one: (one.cluster, one.tenant_key, one.namespace))
    cards: dict[DeviceKey, Interval] = {}
    for claim in claims:
        account = accounts.get(claim.cluster)
        if account is None:
            continue
        window = _differ(before.of(account, claim), after.of(account, claim))
        if window is None:
            continue
        for key in _cards_of(session, claim, window):
            start, end = cards.get(key, window)
            cards[key] = (min(start, window[0]), max(end, window[1]))
    for key, (start, end) in sorted(cards.items()):
        mark_rated_days(session, start, None if end >= FOREVER_MS else end, device=key)
    _list_unmapped(session, after, accounts, claims)
    return ChangedHands(cards)


def _differ(before: Ownership, after: Ownership) -> Interval | None:
    """From the first to the last instant at which two histories name other owners."""
    edges = sorted({_BEGINNING_MS, FOREVER_MS, *before.starts_ms, *after.starts_ms})
    found = [
        (start, end)
        for start, end in pairwise(edges)
        if start >= _BEGINNING_MS and before.at(start) != after.at(start)
    ]
    return (found[0][0], found[-1][1]) if found else None


def _cards_of(session: Session, claim: Claim, window: Interval) -> Sequence[DeviceKey]:
    """The cards on which a claim held or used something in a window."""
    held, used = AllocationReport, UnallocatedFact
    labels = msgspec.json.encode(dict(claim.labels), order="sorted").decode()
    holding = select(held.cluster, held.node_uid, held.device_uuid).where(
        held.cluster == claim.cluster,
        held.tenant_key == claim.tenant_key,
        held.namespace == claim.namespace,
        held.labels == labels,
        held.bound_at_ms < window[1],
        or_(held.ended_at_ms > window[0], held.confirmed_at_ms + MAX_GRACE_MS > window[0]),
    )
    using = select(used.cluster, used.node_uid, used.device_uuid).where(
        used.cluster == claim.cluster,
        used.tenant_key == claim.tenant_key,
        used.namespace == claim.namespace,
        used.hour_ms > max(0, window[0] - MS_PER_HOUR),
        used.hour_ms < window[1],
    )
    rows = session.execute(union(holding, using))
    return [DeviceKey(ClusterCode(row[0]), NodeUid(row[1]), DeviceUuid(row[2])) for row in rows]


def _list_unmapped(
    session: Session, tenancy: Tenancy, accounts: Mapping[str, str], claims: Iterable[Claim]
) -> None:
    """A leaf is unmapped while some claim of its key stays with it for good."""
    meant: set[str] = set()
    staying: set[str] = set()
    for claim in claims:
        account = accounts.get(claim.cluster)
        if account is not None:
            meant.add(leaf_path(account, claim.tenant_key))
            staying.add(tenancy.of(account, claim).last.path)
    for leaf in session.scalars(select(Tenant).where(Tenant.kind == LEAF)):
        if leaf.path in meant:
            leaf.is_unmapped = leaf.path in staying
    session.flush()
