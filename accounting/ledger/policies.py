"""Which policy holds at an instant: how shares, idle capacity, energy and unallocated use are treated.

Invariant: at every instant each kind has exactly one answer; where no version is in force it is the
default, which is the first of its values. Source: `reference/ledger.md §2, §3, §4`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from accounting.ledger.columns import PolicySpan
from accounting.ledger.shares import POLICIES, Policy

PolicyKind: TypeAlias = Literal["share", "idle", "energy", "unallocated"]

VALUES: dict[PolicyKind, tuple[str, ...]] = {
    "share": POLICIES,
    "idle": ("keep", "even", "by_allocation"),
    "energy": ("memory", "none"),
    "unallocated": ("list", "price"),
}
"""By kind what may be said; the default first."""

KINDS: tuple[PolicyKind, ...] = tuple(VALUES)

FOREVER_MS = 253_402_300_799_999
"""Later than any instant of ours: where an open-ended validity ends."""

_SHARES: dict[str, Policy] = {policy: policy for policy in POLICIES}


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """A live version, in force on `[valid_from_ms, valid_to_ms)` (None: until further notice)."""

    id: int
    kind: PolicyKind
    value: str
    valid_from_ms: int
    valid_to_ms: int | None

    def is_valid_at(self, at_ms: int) -> bool:
        """Whether it is in force at an instant."""
        return self.valid_from_ms <= at_ms and (self.valid_to_ms is None or at_ms < self.valid_to_ms)


@dataclass(frozen=True, slots=True)
class Policies:
    """The live versions of every kind; those of one kind never overlap."""

    rules: tuple[PolicyRule, ...] = ()
    _by_kind: dict[PolicyKind, list[PolicyRule]] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        by_kind: dict[PolicyKind, list[PolicyRule]] = {kind: [] for kind in KINDS}
        for rule in sorted(self.rules, key=lambda rule: rule.valid_from_ms):
            by_kind[rule.kind].append(rule)
        object.__setattr__(self, "_by_kind", by_kind)

    def at(self, kind: PolicyKind, at_ms: int) -> PolicyRule | None:
        """The version in force; None: the default holds."""
        return next((rule for rule in self._by_kind[kind] if rule.is_valid_at(at_ms)), None)

    def value_at(self, kind: PolicyKind, at_ms: int) -> str:
        """What holds."""
        rule = self.at(kind, at_ms)
        return VALUES[kind][0] if rule is None else rule.value

    def share_spans(self) -> list[PolicySpan]:
        """The share policies as the sweep takes them."""
        return [
            PolicySpan(rule.valid_from_ms, _end(rule), _SHARES[rule.value]) for rule in self._by_kind["share"]
        ]

    def edges(self, kinds: Iterable[PolicyKind] = KINDS) -> set[int]:
        """The instants at which a policy begins or stops: sweeps and energy are cut there."""
        rules = [rule for kind in kinds for rule in self._by_kind[kind]]
        found = {rule.valid_from_ms for rule in rules}
        return found | {rule.valid_to_ms for rule in rules if rule.valid_to_ms is not None}


def _end(rule: PolicyRule) -> int:
    return FOREVER_MS if rule.valid_to_ms is None else rule.valid_to_ms
