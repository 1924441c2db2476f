"""Tenant rules and moves in the store: dated, never edited, previewed by whoever asks before they are saved.

Saving one says which cards' days it touches, and makes them due: those of slices and uses that change
hands, over the time in which they do. Invariant: of one state of the store and one set of versions that
is known, every claim has one owner at every instant (`ledger.tenancy`), whatever was recorded in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.audit import record
from accounting.access.viewer import COMMAND_LINE
from accounting.errors import InvalidError, NotFoundError
from accounting.ledger.calendar import at_text
from accounting.ledger.tenancy import ANYTHING, SHARED_PATH, Claim, Move, Owner, Ownership, Rule, Tenancy
from accounting.prices.versioning import Recording, Validity, end_version, make_room, withdraw_version
from accounting.store.models import BillingAccount, Cluster, Tenant, TenantMove, TenantRule
from accounting.store.versions import Known, is_live
from accounting.tenants.touched import ChangedHands, mark_changed_hands
from accounting.tenants.tree import BUILTIN, TenantTree, find_tenant

MAX_PRIORITY = 1_000_000
_MAX_GLOB = 253
_MAX_LABELS = 32


@dataclass(frozen=True, slots=True)
class Asked:
    """What a rule asks of a slice, and whose it then is. Names are globs; `*` asks for nothing."""

    priority: int
    tenant: str
    cluster: str = ANYTHING
    tenant_key: str = ANYTHING
    namespace: str = ANYTHING
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def in_words(self) -> str:
        """What it asks for."""
        names = (("cluster", self.cluster), ("tenant key", self.tenant_key), ("namespace", self.namespace))
        asked = [f'{name} "{glob}"' for name, glob in names if glob != ANYTHING]
        return ", ".join([*asked, *(f'label {key}="{glob}"' for key, glob in self.labels)])


@dataclass(frozen=True, slots=True)
class Payers:
    """The accounts that rules and moves lead to, or ever led to."""

    of_rules: Sequence[tuple[str, str]]
    """Glob of clusters, account."""
    of_moves: Sequence[str]

    def of_cluster(self, cluster: str) -> set[str]:
        """Besides the cluster's own two."""
        return {*self.of_moves, *(code for glob, code in self.of_rules if fnmatchcase(cluster, glob))}


def payers(session: Session) -> Payers:
    """Of every version, also of superseded ones, whose lines must be found to be replaced."""
    of_rules = (
        select(TenantRule.cluster, Tenant.account)
        .join(Tenant, Tenant.id == TenantRule.tenant_id)
        .where(Tenant.kind != BUILTIN)
    )
    of_moves = select(Tenant.account).join(TenantMove, TenantMove.tenant_id == Tenant.id)
    return Payers(
        [(cluster, account) for cluster, account in session.execute(of_rules.distinct())],
        session.scalars(of_moves.distinct()).all(),
    )


def clusters_of(session: Session, account: str) -> list[str]:
    """The clusters whose slices or idle capacity an account bears, or may by a tenant rule or move."""
    reached = payers(session)
    return [
        cluster.code
        for cluster in session.scalars(select(Cluster).order_by(Cluster.code))
        if account in {cluster.account, cluster.platform_account, *reached.of_cluster(cluster.code)}
    ]


def live_tenancy(session: Session, known: Known | None = None) -> Tenancy:
    """The rules and moves that nobody superseded or withdrew: now, or as far as was `known`."""
    rules = session.execute(
        select(TenantRule, Tenant)
        .join(Tenant, Tenant.id == TenantRule.tenant_id)
        .where(is_live(TenantRule, known))
    )
    paths = select(Tenant.id, Tenant.path).join(TenantMove, TenantMove.from_tenant_id == Tenant.id)
    from_paths = {row.id: row.path for row in session.execute(paths)}
    moves = session.execute(
        select(TenantMove, Tenant)
        .join(Tenant, Tenant.id == TenantMove.tenant_id)
        .where(is_live(TenantMove, known))
    )
    return Tenancy(
        tuple(_rule(row, _owner(tenant)) for row, tenant in rules),
        tuple(
            Move(row.id, from_paths[row.from_tenant_id], _owner(tenant), row.valid_from_ms, row.valid_to_ms)
            for row, tenant in moves
        ),
    )


@dataclass(frozen=True, slots=True)
class Owners:
    """Who owns what in every cluster."""

    tenancy: Tenancy
    accounts: Mapping[str, str]
    """By cluster: the account under which its keys' own leaves are."""
    platforms: Mapping[str, str]

    def of(self, claim: Claim) -> Ownership:
        """The owners of a claim over all time."""
        return self.tenancy.of(self.accounts[claim.cluster], claim)

    def account_of(self, owner: Owner, cluster: str) -> str:
        """The account that an owner's lines are in."""
        return self.platforms[cluster] if owner.account is None else owner.account


def read_owners(session: Session, known: Known | None = None) -> Owners:
    """The live rules and moves, and where they are applied."""
    clusters = session.scalars(select(Cluster)).all()
    return Owners(
        live_tenancy(session, known),
        {one.code: one.account for one in clusters},
        {one.code: one.platform_account for one in clusters},
    )


def _rule(row: TenantRule, owner: Owner) -> Rule:
    labels = tuple(sorted(read_labels(row.labels).items()))
    asked = (row.cluster, row.tenant_key, row.namespace, labels)
    return Rule(row.id, row.priority, *asked, owner, row.valid_from_ms, row.valid_to_ms)


def _owner(tenant: Tenant) -> Owner:
    return Owner(tenant.path, None if tenant.kind == BUILTIN else tenant.account)


def read_labels(text: str) -> dict[str, str]:
    """The labels of a rule."""
    return msgspec.json.decode(text, type=dict[str, str])


def list_rules(session: Session) -> Sequence[tuple[TenantRule, str | None]]:
    """Every version with its tenant's path (None: withdrawn), by priority and in the order of recording."""
    rows = session.execute(
        select(TenantRule, Tenant.path)
        .outerjoin(Tenant, Tenant.id == TenantRule.tenant_id)
        .order_by(TenantRule.priority, TenantRule.id)
    )
    return [(rule, path) for rule, path in rows]


def add_rule(
    session: Session, asked: Asked, validity: Validity, recording: Recording
) -> tuple[TenantRule, ChangedHands]:
    """Record a rule; over the same validity it supersedes the one of its priority, with a reason.

    One that begins within an open-ended one of the same priority ends it there.

    Returns:
        The rule, and what it makes change hands; the days concerned are due from here on.

    Raises:
        InvalidError: Something that cannot be, or no reason to supersede.
        NotFoundError: No such tenant.
        ConflictError: It overlaps a live rule of its priority over another validity.
    """
    _require(asked, validity)
    tenant = _target(session, asked.tenant, recording.now_ms)
    before = live_tenancy(session)
    same = (TenantRule.priority == asked.priority, TenantRule.tenant_id.is_not(None))
    room = make_room(session, TenantRule, same, validity, recording, described=_described)
    row = TenantRule(
        priority=asked.priority,
        cluster=asked.cluster,
        tenant_key=asked.tenant_key,
        namespace=asked.namespace,
        labels=msgspec.json.encode(dict(asked.labels), order="sorted").decode(),
        tenant_id=tenant.id,
        valid_from_ms=validity.from_ms,
        valid_to_ms=validity.to_ms,
        recorded_at_ms=recording.now_ms,
        recorded_by=recording.by.name,
        supersedes_id=room.supersedes_id,
        reason=recording.reason,
    )
    session.add(row)
    session.flush()
    after = {"tenant": tenant.path, "asks": asked.in_words, "validity": validity.text()}
    _record(session, "tenant rule add", str(asked.priority), after, recording)
    return row, mark_changed_hands(session, before, live_tenancy(session))


def end_rule(
    session: Session, priority: int, at_ms: int, recording: Recording
) -> tuple[TenantRule, ChangedHands]:
    """Let the rule of a priority hold no longer from an instant on.

    Raises:
        NotFoundError: No rule of this priority holds at that instant.
    """
    before = live_tenancy(session)
    rows = session.scalars(
        select(TenantRule).where(
            TenantRule.priority == priority,
            is_live(TenantRule, None),
            TenantRule.tenant_id.is_not(None),
            TenantRule.valid_from_ms < at_ms,
        )
    ).all()
    holding = [row for row in rows if row.valid_to_ms is None or row.valid_to_ms > at_ms]
    if not holding:
        raise NotFoundError(
            f"no rule of priority {priority} holds before and at {at_text(at_ms)}; list them with: "
            "slicemeter accounting tenant rule list"
        )
    ended = end_version(session, holding[0], at_ms, recording)
    after = {"ends": at_text(at_ms), "reason": recording.reason}
    _record(session, "tenant rule end", str(priority), after, recording)
    return ended, mark_changed_hands(session, before, live_tenancy(session))


def withdraw_rule(session: Session, rule_id: int, recording: Recording) -> ChangedHands:
    """Take a rule back over all of its validity, as if it had never been; it stays readable.

    Raises:
        NotFoundError: There is no such live rule.
        InvalidError: No reason.
    """
    before = live_tenancy(session)
    row = session.get(TenantRule, rule_id)
    if row is None or row.superseded_at_ms is not None or row.tenant_id is None:
        raise NotFoundError(
            f"no live tenant rule {rule_id}; list them with: slicemeter accounting tenant rule list"
        )
    withdraw_version(session, row, recording)
    after = {"rule": rule_id, "reason": recording.reason}
    _record(session, "tenant rule withdraw", str(row.priority), after, recording)
    return mark_changed_hands(session, before, live_tenancy(session))


def _record(
    session: Session, action: str, what: str, after: Mapping[str, str | int | None], recording: Recording
) -> None:
    record(session, at_ms=recording.now_ms, by=recording.by, action=action, what=what, after=dict(after))


def _described(row: TenantRule) -> str:
    when = Validity(row.valid_from_ms, row.valid_to_ms).text()
    return f"tenant rule {row.id} has priority {row.priority} {when}"


def _require(asked: Asked, validity: Validity) -> None:
    validity.require("a tenant rule")
    if not 0 <= asked.priority <= MAX_PRIORITY:
        raise InvalidError(f"priority {asked.priority}: from 0, which goes first, to {MAX_PRIORITY}")
    globs = {"cluster": asked.cluster, "tenant key": asked.tenant_key, "namespace": asked.namespace}
    globs |= {f"label {key}": glob for key, glob in asked.labels}
    for name, glob in globs.items():
        # No tenant key at all is something that may be asked for; the others always are there.
        if len(glob) > _MAX_GLOB or not glob.isprintable() or (not glob and name in {"cluster", "namespace"}):
            raise InvalidError(
                f'{name} "{glob}": a glob of up to {_MAX_GLOB} printable characters, as team-*'
            )
    keys = [key for key, _ in asked.labels]
    if len(keys) > _MAX_LABELS or len(set(keys)) < len(keys) or not all(keys):
        raise InvalidError(f"labels: each once, with a name, and at most {_MAX_LABELS}")
    if not asked.in_words:
        raise InvalidError("a rule that asks for nothing would take every slice; name at least a cluster")


def _target(session: Session, name: str, now_ms: int) -> Tenant:
    wanted = name.strip("/")
    if wanted == SHARED_PATH:
        platform = session.scalar(
            select(BillingAccount.code).where(BillingAccount.kind == "platform").order_by(BillingAccount.code)
        )
        if platform is None:
            raise NotFoundError("no account of kind platform, which would bear what is shared; add one first")
        return session.get_one(Tenant, TenantTree(session, now_ms=now_ms).at(SHARED_PATH, platform))
    tenant = find_tenant(session, COMMAND_LINE, wanted)
    if tenant.kind == BUILTIN:
        raise InvalidError(f'no rule leads to "{tenant.path}"; of what is built in only to {SHARED_PATH}')
    return tenant
