"""What the ledger of one card and run of days must be, computed from the facts and written nowhere.

Rating stores it, verify compares it with what is stored. Invariant: it is a function of the facts, the
live prices and policies, the instant and the grace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.ledger.calendar import day_bounds_ms, midnights_ms
from accounting.ledger.columns import Columns
from accounting.ledger.energy import EnergyFacts, EnergyHour
from accounting.ledger.intervals import Interval
from accounting.ledger.policies import Policies
from accounting.ledger.pricing import EVERY_MODEL, SKU_ENERGY, Price, edges
from accounting.ledger.sweep import segments_of
from accounting.ledger.tenancy import IDLE_PATH, SHARED_PATH, Claim, Owner
from accounting.periods.card import Card, read_cards
from accounting.periods.energy import EnergyBooks, read_energy, unallocated_claim
from accounting.periods.lines import Booked, Hour, Line, Lines, device_hours
from accounting.periods.tariff import Account, Books
from accounting.prices.book import DEFAULT_BOOK, live_prices
from accounting.prices.discounts import live_discounts
from accounting.prices.policies import live_policies
from accounting.store.models import BillingAccount, Cluster
from accounting.store.versions import Known
from accounting.tenants.rules import live_tenancy, payers
from contract.ids import DeviceKey
from contract.units import MS_PER_HOUR, hour_start_ms

MS_PER_DAY = 24 * MS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Rulebook:
    """Everything but facts that a rating depends on, read once per transaction."""

    books: Mapping[str, Books]
    """By cluster code."""
    policies: Policies


@dataclass(frozen=True, slots=True)
class Computed:
    """The ledger of one card over a run of UTC days, and over the local days that these touch."""

    card: Card
    run: Interval
    days: Mapping[str, Interval]
    """By account: the whole local days that the lines cover."""
    hours: Mapping[int, Hour]
    energy: Mapping[int, EnergyHour]
    """Hours whose energy was reported."""
    lines: Sequence[Line]
    bypassing: frozenset[Owner]
    """Who owned pods that used the card without an allocation."""
    unmapped: frozenset[str]
    """Paths of keys' own leaves that slices or pods on the card stay with until further notice."""


def read_rulebook(session: Session, known: Known | None = None) -> Rulebook:
    """The live prices, policies and the accounts of every cluster.

    Args:
        session: The transaction.
        known: Take the versions that a sealed period was rated with; None: those that are live now.
    """
    accounts = {
        row.code: Account(row.code, row.currency, row.time_zone)
        for row in session.scalars(select(BillingAccount))
    }
    prices, discounts = live_prices(session, known), live_discounts(session, known)
    policies, tenancy = live_policies(session, known), live_tenancy(session, known)
    reached = payers(session)
    books = {
        row.code: Books(
            accounts[row.account],
            accounts[row.platform_account],
            prices,
            DEFAULT_BOOK,
            discounts,
            policies,
            tenancy,
            {code: accounts[code] for code in reached.of_cluster(row.code)},
        )
        for row in session.scalars(select(Cluster))
    }
    return Rulebook(books, policies)


def runs_of_days(days: Sequence[int]) -> list[Interval]:
    """UTC days as the fewest runs of neighbouring ones."""
    runs: list[Interval] = []
    for day_ms in sorted(set(days)):
        if runs and runs[-1][1] == day_ms:
            runs[-1] = (runs[-1][0], day_ms + MS_PER_DAY)
        else:
            runs.append((day_ms, day_ms + MS_PER_DAY))
    return runs


def cuts_of(books: Books, card: Card, window: Interval) -> list[int]:
    """Where the time of a card is cut besides its own events and full hours: in order."""
    cuts = {
        midnight
        for account in (books.account, books.platform)
        for midnight in midnights_ms(*window, account.time_zone)
    }
    models = {span.model for span in card.spans}
    cuts |= edges(price for price in books.prices if _concerns(price, books, models))
    paths = {IDLE_PATH, SHARED_PATH}
    for claim in {one.claim for one in card.slices.values()}:
        paths.update(owner.path for owner in books.owned(claim).owners)
    cuts |= owner_cuts(books, ((one.claim, one.held[:2]) for one in card.slices.values()))
    cuts |= edges(one for one in books.discounts if any(map(one.concerns, paths)))
    cuts |= books.policies.edges(("share", "energy", "unallocated"))
    return sorted(cut for cut in cuts if window[0] < cut < window[1])


def owner_cuts(books: Books, claims: Iterable[tuple[Claim, Interval]]) -> set[int]:
    """Where what was held or used changes hands; in another account also its midnights and prices.

    Nothing is cut where nobody changes, so that a rule leaves all other slices as they are.
    """
    cuts: set[int] = set()
    if books.have_one_owner_each:
        return cuts
    for claim, when in claims:
        owned = books.owned(claim)
        cuts.update(owned.changes_in(*when))
        for start, end, owner in owned.stretches(*when):
            account = books.account_of(owner)
            if account not in {books.account, books.platform}:
                of_account = {*midnights_ms(start, end, account.time_zone)}
                of_account |= edges(price for price in books.prices if price.currency == account.currency)
                cuts.update(at_ms for at_ms in of_account if start < at_ms < end)
    return cuts


def _concerns(price: Price, books: Books, models: set[str]) -> bool:
    """Whether a price can hold for a card, so that one of another model or currency cuts nothing."""
    currencies = {books.account.currency, books.platform.currency}
    is_for_model = price.model == EVERY_MODEL or price.model in models or price.sku == SKU_ENERGY
    return price.book == books.book and price.currency in currencies and is_for_model


@dataclass(frozen=True, slots=True)
class Swept:
    """What happened on a card in a window of whole hours."""

    card: Card
    time: Columns
    energy: Mapping[int, EnergyHour]
    lines: Lines
    bypassing: frozenset[Owner]
    """Who owned pods that used the card without an allocation."""
    unmapped: frozenset[str]
    """Paths of keys' own leaves that slices or pods on the card stay with until further notice."""


def sweep_lines(
    session: Session,
    keys: Sequence[DeviceKey],
    window: Interval,
    rulebook: Rulebook,
    *,
    as_of_ms: int,
    grace_ms: int,
    trail: list[Booked] | None = None,
) -> Iterator[Swept]:
    """Sweep cards and book all that happened; days that the window cuts come out incomplete.

    Args:
        session: A transaction.
        keys: The cards, of one cluster.
        window: Widened to whole hours, since energy is told by the hour.
        rulebook: What holds.
        as_of_ms: Seen from this instant.
        grace_ms: As in `rate`.
        trail: Gets every step, for whoever explains.

    Yields:
        What happened, card by card.
    """
    whole = (hour_start_ms(window[0]), -hour_start_ms(-window[1]))
    energies = read_energy(session, keys, whole)
    for card in read_cards(session, keys, whole, as_of_ms=as_of_ms, grace_ms=grace_ms):
        yield _swept(card, energies.pop(card.key), rulebook, trail)


def _swept(
    card: Card, facts: Mapping[int, EnergyFacts], rulebook: Rulebook, trail: list[Booked] | None
) -> Swept:
    books = rulebook.books[card.key.cluster]
    cuts = cuts_of(books, card, card.window)
    time = card.divide(card.window, cuts=cuts, policies=rulebook.policies.share_spans())
    lines = Lines(card, books, trail)
    lines.add(time)
    claims = {one.claim for one in card.slices.values()}
    energy: Mapping[int, EnergyHour] = {}
    bypassing: frozenset[Owner] = frozenset()
    if facts:
        uses = _uses(card, facts)
        claims.update(claim for claim, _ in uses)
        energy = EnergyBooks(lines, sorted({*cuts, *owner_cuts(books, uses)})).add(segments_of(time), facts)
        bypassing = frozenset(
            books.owned(unallocated_claim(use)).at(use.from_ms)
            for hour in facts.values()
            for use in hour.unallocated
        )
    unmapped = frozenset(books.owned(claim).last.path for claim in claims)
    return Swept(card, time, energy, lines, bypassing, unmapped)


def _uses(card: Card, facts: Mapping[int, EnergyFacts]) -> list[tuple[Claim, Interval]]:
    """Whose every use is, and when it was."""
    uses = [
        (unallocated_claim(use), (use.from_ms, use.to_ms))
        for hour in facts.values()
        for use in hour.unallocated
    ]
    for hour_ms, hour in facts.items():
        for use in hour.slices:
            one = card.slice_near(use.slice_key, (hour_ms, hour_ms + MS_PER_HOUR))
            if one is not None:
                uses.append((one.claim, (use.from_ms, use.to_ms)))
    return uses


def compute(
    session: Session,
    key: DeviceKey,
    run: Interval,
    rulebook: Rulebook,
    *,
    as_of_ms: int,
    grace_ms: int,
    trail: list[Booked] | None = None,
) -> Computed:
    """Sweep a card over a run of UTC days and the local days that it touches; a `trail` gets every step."""
    (computed,) = compute_cards(
        session, [key], run, rulebook, as_of_ms=as_of_ms, grace_ms=grace_ms, trail=trail
    )
    return computed


def compute_cards(
    session: Session,
    keys: Sequence[DeviceKey],
    run: Interval,
    rulebook: Rulebook,
    *,
    as_of_ms: int,
    grace_ms: int,
    trail: list[Booked] | None = None,
) -> Iterator[Computed]:
    """Sweep cards of one cluster, in their order, as `compute` sweeps one: read together, and one kept."""
    if not keys:
        return
    books = rulebook.books[keys[0].cluster]
    days = {
        account.code: (
            day_bounds_ms(run[0], account.time_zone)[0],
            day_bounds_ms(run[1] - 1, account.time_zone)[1],
        )
        for account in books.accounts
    }
    window = (
        min(run[0], *(start for start, _ in days.values())),
        max(run[1], *(end for _, end in days.values())),
    )
    of_cards = sweep_lines(session, keys, window, rulebook, as_of_ms=as_of_ms, grace_ms=grace_ms, trail=trail)
    for swept in of_cards:
        yield Computed(
            card=swept.card,
            run=run,
            days=days,
            hours=device_hours(swept.time, run),
            energy={at_ms: hour for at_ms, hour in swept.energy.items() if run[0] <= at_ms < run[1]},
            lines=[
                line
                for key, line in swept.lines.lines.items()
                if days[key.account][0] <= key.day_ms < days[key.account][1]
            ],
            bypassing=swept.bypassing,
            unmapped=swept.unmapped,
        )
