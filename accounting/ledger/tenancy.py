"""Whose a slice is at an instant: by a rule, by what its tenant key means, and by where that was moved.

Without a rule a slice belongs to the leaf whose code is its tenant key, under the account of its cluster:
`ACCOUNT/KEY`. Of the rules that match, the lowest priority number wins; then a move leads on to where the
tenant, or one above it, belongs at that instant.

Invariant: for one set of live rules and moves every claim has exactly one owner at every instant, in
whatever order facts, rules and moves came. Source: `reference/ledger.md §4` (tenant rules).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import unquote

IDLE_PATH = "platform/idle"
SHARED_PATH = "platform/shared"
UNASSIGNED_PATH = "unassigned"
BUILT_IN = frozenset({IDLE_PATH, SHARED_PATH, UNASSIGNED_PATH})

ANYTHING = "*"
"""The glob of a rule that does not ask."""

_EARLIEST_MS = -(2**62)


class CircularMoveError(ValueError):
    """Moves lead in a circle, which saving refuses."""


def path_step(code: str) -> str:
    """A code as one step of a path: a slash in it must not open a new level."""
    return code.replace("%", "%25").replace("/", "%2F")


def code_of(path: str) -> str:
    """The code that the last step of a path stands for."""
    return path if path in BUILT_IN else unquote(path.rpartition("/")[2])


def leaf_path(account: str, tenant_key: str) -> str:
    """The path of the tenant that a key means when no rule says otherwise."""
    if not tenant_key:
        return UNASSIGNED_PATH
    path = f"{path_step(account)}/{path_step(tenant_key)}"
    # No key gives a step with another escape than those two, so the built-in path stays the product's.
    return f"{path_step(account)}/%{ord(tenant_key[0]):02X}{tenant_key[1:]}" if path in BUILT_IN else path


def is_at_or_below(path: str, root: str) -> bool:
    """Whether a path is a root, or lies below it."""
    return path == root or path.startswith(f"{root}/")


class Claim(NamedTuple):
    """What a fact says about whose it is."""

    cluster: str
    tenant_key: str
    namespace: str
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Owner:
    """Who pays: a tenant and the account that its lines are in."""

    path: str
    account: str | None
    """None: the platform account of the cluster."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A live rule over `[valid_from_ms, valid_to_ms)` (None: until further notice); its names are globs."""

    id: int
    priority: int
    cluster: str
    tenant_key: str
    namespace: str
    labels: tuple[tuple[str, str], ...]
    owner: Owner
    valid_from_ms: int
    valid_to_ms: int | None

    def matches(self, claim: Claim) -> bool:
        """Whether it speaks of a claim: all that it asks for must be there."""
        labels = dict(claim.labels)
        return (
            fnmatchcase(claim.cluster, self.cluster)
            and fnmatchcase(claim.tenant_key, self.tenant_key)
            and fnmatchcase(claim.namespace, self.namespace)
            and all(key in labels and fnmatchcase(labels[key], value) for key, value in self.labels)
        )

    def is_valid_at(self, at_ms: int) -> bool:
        """Whether it holds at an instant."""
        return _is_valid_at(self, at_ms)


@dataclass(frozen=True, slots=True)
class Move:
    """A live move: what belonged to a path, or below it, belongs to another over a validity."""

    id: int
    from_path: str
    owner: Owner
    """Where `from_path` itself leads; what lies below goes with it."""
    valid_from_ms: int
    valid_to_ms: int | None

    def is_valid_at(self, at_ms: int) -> bool:
        """Whether it holds at an instant."""
        return _is_valid_at(self, at_ms)


def _is_valid_at(version: Rule | Move, at_ms: int) -> bool:
    return version.valid_from_ms <= at_ms and (version.valid_to_ms is None or at_ms < version.valid_to_ms)


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owners of one claim over all time: each from its start to the next one's."""

    starts_ms: Sequence[int]
    owners: Sequence[Owner]

    def at(self, at_ms: int) -> Owner:
        """The owner at an instant."""
        return self.owners[bisect_right(self.starts_ms, at_ms) - 1]

    def changes_in(self, from_ms: int, to_ms: int) -> Sequence[int]:
        """The instants inside an interval at which the owner becomes another."""
        first = bisect_right(self.starts_ms, from_ms)
        return [at_ms for at_ms in self.starts_ms[first:] if at_ms < to_ms]

    def stretches(self, from_ms: int, to_ms: int) -> list[tuple[int, int, Owner]]:
        """An interval, cut where the owner changes: from, to, owner."""
        edges = [from_ms, *self.changes_in(from_ms, to_ms), to_ms]
        return [(start, end, self.at(start)) for start, end in pairwise(edges) if start < end]

    @property
    def last(self) -> Owner:
        """Who it belongs to until further notice."""
        return self.owners[-1]


@dataclass(frozen=True, slots=True)
class Tenancy:
    """The live rules and moves; whoever asks twice about a claim gets a kept answer."""

    rules: tuple[Rule, ...] = ()
    moves: tuple[Move, ...] = ()
    _edges: tuple[int, ...] = field(init=False, compare=False)
    _known: dict[tuple[str, Claim], Ownership] = field(init=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        ordered = sorted(self.rules, key=lambda rule: (rule.priority, rule.id))
        object.__setattr__(self, "rules", tuple(ordered))
        object.__setattr__(self, "_edges", tuple(sorted(self.edges())))

    def edges(self) -> set[int]:
        """The instants at which a rule or move begins or stops to hold."""
        versions: list[Rule | Move] = [*self.rules, *self.moves]
        found = {one.valid_from_ms for one in versions}
        return found | {one.valid_to_ms for one in versions if one.valid_to_ms is not None}

    def of(self, account: str, claim: Claim) -> Ownership:
        """The owners of a claim, given the account of its cluster."""
        known = self._known.get((account, claim))
        if known is None:
            known = self._known[account, claim] = self._ownership(account, claim)
        return known

    def _ownership(self, account: str, claim: Claim) -> Ownership:
        rules = [rule for rule in self.rules if rule.matches(claim)]
        starts: list[int] = []
        owners: list[Owner] = []
        for at_ms in (_EARLIEST_MS, *self._edges) if rules or self.moves else (_EARLIEST_MS,):
            named = next((rule.owner for rule in rules if rule.is_valid_at(at_ms)), None)
            if named is None:
                named = Owner(leaf_path(account, claim.tenant_key), account)
            owner = follow_moves(self.moves, named, at_ms)
            if not owners or owners[-1] != owner:
                starts.append(at_ms)
                owners.append(owner)
        return Ownership(starts, owners)


def follow_moves(moves: Iterable[Move], owner: Owner, at_ms: int) -> Owner:
    """Where a tenant belongs at an instant; of several moves above it the nearest counts.

    Raises:
        CircularMoveError: It leads in a circle.
    """
    valid = [move for move in moves if move.is_valid_at(at_ms)]
    seen = {owner.path}
    while True:
        above = [move for move in valid if is_at_or_below(owner.path, move.from_path)]
        if not above:
            return owner
        move = max(above, key=lambda one: len(one.from_path))
        owner = Owner(move.owner.path + owner.path[len(move.from_path) :], move.owner.account)
        if owner.path in seen:
            raise CircularMoveError(f'moves lead from "{owner.path}" back to it')
        seen.add(owner.path)
