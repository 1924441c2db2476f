"""What the ledger of one card and run of days must be, computed from the facts and written nowhere.

Rating stores it, verify compares it with what is stored. Invariant: it is a function of the facts, the
live prices and policies, the instant and the grace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.ledger.calendar import day_bounds_ms, midnights_ms
from accounting.ledger.intervals import Interval
from accounting.ledger.pricing import EVERY_MODEL, Price, edges
from accounting.ledger.sweep import PolicySpan
from accounting.periods.card import Card, read_card, share_policies
from accounting.periods.lines import Account, Books, Hour, Line, Lines, device_hours
from accounting.prices.book import DEFAULT_BOOK, live_prices
from accounting.store.models import BillingAccount, Cluster
from accounting.store.versions import Known
from contract.ids import DeviceKey
from contract.units import MS_PER_HOUR

MS_PER_DAY = 24 * MS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Rulebook:
    """Everything but facts that a rating depends on, read once per transaction."""

    books: Mapping[str, Books]
    """By cluster code."""
    policies: Sequence[PolicySpan]


@dataclass(frozen=True, slots=True)
class Computed:
    """The ledger of one card over a run of UTC days, and over the local days that these touch."""

    card: Card
    run: Interval
    days: Mapping[str, Interval]
    """By account: the whole local days that the lines cover."""
    hours: Mapping[int, Hour]
    lines: Sequence[Line]


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
    prices = live_prices(session, known)
    books = {
        row.code: Books(accounts[row.account], accounts[row.platform_account], prices, DEFAULT_BOOK)
        for row in session.scalars(select(Cluster))
    }
    return Rulebook(books, share_policies(session, known))


def runs_of_days(days: Sequence[int]) -> list[Interval]:
    """UTC days as the fewest runs of neighbouring ones."""
    runs: list[Interval] = []
    for day_ms in sorted(set(days)):
        if runs and runs[-1][1] == day_ms:
            runs[-1] = (runs[-1][0], day_ms + MS_PER_DAY)
        else:
            runs.append((day_ms, day_ms + MS_PER_DAY))
    return runs


def cuts_of(books: Books, models: set[str], window: Interval) -> set[int]:
    """Where the sweep of a card is cut besides its own events and full hours."""
    cuts = {
        midnight
        for account in (books.account, books.platform)
        for midnight in midnights_ms(*window, account.time_zone)
    }
    return cuts | edges(price for price in books.prices if _concerns(price, books, models))


def _concerns(price: Price, books: Books, models: set[str]) -> bool:
    """Whether a price can hold for a card, so that one of another model or currency cuts nothing."""
    currencies = {books.account.currency, books.platform.currency}
    is_for_model = price.model == EVERY_MODEL or price.model in models
    return price.book == books.book and price.currency in currencies and is_for_model


def compute(
    session: Session, key: DeviceKey, run: Interval, rulebook: Rulebook, *, as_of_ms: int, grace_ms: int
) -> Computed:
    """Sweep a card over a run of UTC days and the local days that it touches."""
    books = rulebook.books[key.cluster]
    days = {
        account.code: (
            day_bounds_ms(run[0], account.time_zone)[0],
            day_bounds_ms(run[1] - 1, account.time_zone)[1],
        )
        for account in (books.account, books.platform)
    }
    window = (
        min(run[0], *(start for start, _ in days.values())),
        max(run[1], *(end for _, end in days.values())),
    )
    card = read_card(session, key, window, as_of_ms=as_of_ms, grace_ms=grace_ms)
    cuts = cuts_of(books, {span.model for span in card.spans}, window)
    segments = card.sweep(window, cuts=cuts, policies=rulebook.policies)
    lines = Lines(card, books)
    lines.add(segments)
    return Computed(
        card=card,
        run=run,
        days=days,
        hours=device_hours([segment for segment in segments if run[0] <= segment.from_ms < run[1]]),
        lines=[
            line
            for line_key, line in sorted(lines.lines.items(), key=lambda item: item[0])
            if days[line_key.account][0] <= line_key.day_ms < days[line_key.account][1]
        ],
    )
