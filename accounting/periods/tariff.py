"""What holds for a cluster at an instant: price, discount and policies, each looked up once between edges.

Invariant: nothing changes between two neighbouring edges, so an answer is kept for all instants there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from accounting.ledger.policies import Policies, PolicyKind, PolicyRule
from accounting.ledger.pricing import (
    SKU_ENERGY,
    Discount,
    Price,
    edges,
    resolve_discount,
    resolve_sku,
)
from accounting.ledger.tenancy import Claim, Owner, Ownership, Tenancy


@dataclass(frozen=True, slots=True)
class Account:
    """What rating needs of a billing account."""

    code: str
    currency: str | None
    """None: a showback account, stated in card-hours."""
    time_zone: str


@dataclass(frozen=True, slots=True)
class Books:
    """Who pays for a cluster, at which prices, less what, and by which policies."""

    account: Account
    platform: Account
    prices: Sequence[Price]
    book: str
    discounts: Sequence[Discount] = ()
    policies: Policies = field(default_factory=Policies)
    tenancy: Tenancy = field(default_factory=Tenancy)
    others: Mapping[str, Account] = field(default_factory=dict)
    """Accounts besides those two that a rule or move leads to, or ever led to, by code."""
    tariff: Tariff = field(init=False, compare=False, repr=False)
    """Looks up what holds at an instant, and remembers it for all cards."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tariff", Tariff(self))

    @property
    def accounts(self) -> Sequence[Account]:
        """Everyone who may have lines of the cluster's cards."""
        return list({one.code: one for one in (self.account, self.platform, *self.others.values())}.values())

    @property
    def have_one_owner_each(self) -> bool:
        """Whether no rule and no move ever leads anything elsewhere than its tenant key does."""
        return not self.tenancy.rules and not self.tenancy.moves

    def owned(self, claim: Claim) -> Ownership:
        """The owners of a claim over all time."""
        return self.tenancy.of(self.account.code, claim)

    def account_of(self, owner: Owner) -> Account:
        """The account that an owner's lines are in."""
        if owner.account is None:
            return self.platform
        return self.account if owner.account == self.account.code else self.others[owner.account]


class Tariff:
    """Answers for one cluster's books.

    Attributes:
        edges: The instants at which anything changes, in order.
    """

    def __init__(self, books: Books) -> None:
        self._books = books
        self.edges = sorted(
            edges(books.prices) | edges(books.discounts) | books.policies.edges() | books.tenancy.edges()
        )
        self._prices: dict[tuple[int, str, str, str | None], Price | None] = {}
        self._discounts: dict[tuple[int, str], Discount | None] = {}
        self._policies: dict[tuple[int, PolicyKind], PolicyRule | None] = {}
        self._sells_energy: dict[tuple[int, str | None], bool] = {}

    def between(self, at_ms: int) -> int:
        """The number of the edges before an instant: equal numbers, equal answers."""
        return bisect_right(self.edges, at_ms)

    def price(self, account: Account, sku: str, model: str, at_ms: int) -> Price | None:
        """The list price of a SKU in an account; None: unrated, or a showback account."""
        key = (self.between(at_ms), sku, model, account.currency)
        if key not in self._prices:
            self._prices[key] = (
                None
                if account.currency is None
                else resolve_sku(
                    self._books.prices,
                    book=self._books.book,
                    sku=sku,
                    model=model,
                    currency=account.currency,
                    at_ms=at_ms,
                )
            )
        return self._prices[key]

    def discount(self, tenant_path: str, at_ms: int) -> Discount | None:
        """What a tenant pays less."""
        key = (self.between(at_ms), tenant_path)
        if key not in self._discounts:
            self._discounts[key] = resolve_discount(
                self._books.discounts, book=self._books.book, tenant_path=tenant_path, at_ms=at_ms
            )
        return self._discounts[key]

    def policy(self, kind: PolicyKind, at_ms: int) -> PolicyRule | None:
        """The policy version in force; None: the default holds."""
        key = (self.between(at_ms), kind)
        if key not in self._policies:
            self._policies[key] = self._books.policies.at(kind, at_ms)
        return self._policies[key]

    def sells_energy(self, account: Account, at_ms: int) -> bool:
        """Whether energy is on the account's ledger: it has a price there, or an energy policy is in force.

        Until then energy is measured and shown only, so that whoever never prices it is not asked to.
        """
        key = (self.between(at_ms), account.currency)
        if key not in self._sells_energy:
            priced = any(
                (price.book, price.sku, price.currency) == (self._books.book, SKU_ENERGY, account.currency)
                and price.is_valid_at(at_ms)
                for price in self._books.prices
            )
            self._sells_energy[key] = priced or self.policy("energy", at_ms) is not None
        return self._sells_energy[key]
