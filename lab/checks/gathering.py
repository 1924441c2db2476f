"""Waits until accounting has everything, then asks it everything, once.

Invariant: it waits for signs that the last fact was taken in and rated, never for a figure to be right;
after the longest wait it gathers all the same, and the figures show what is missing.
"""

from __future__ import annotations

import datetime as dt
import time
import urllib.parse
from collections.abc import Callable, Mapping
from threading import Event

from lab.bookkeeping import Document
from lab.checks.evidence import BookEvidence, Evidence, Isolation
from lab.pages import Page, ask
from lab.scenarios.plan import ClusterPlan
from lab.stack import Stack

SETTLE_WITHIN_S = 30.0
"""The longest wait for each sign."""

AFTER_END_S = 3
"""By then an exporter has seen the ends: a page younger than that says whether they have left."""

STEADY_BEFORE_END_S = 1.0


def gather(stack: Stack, ready: Mapping[str, bool], pause: Event) -> Evidence:
    """Everything the checks look at; `ready` was noted while the pods still ran."""
    assert stack.start_s is not None
    assert stack.scenario.ends_s is not None
    ends_at_s = stack.start_s + stack.scenario.ends_s
    _settle(stack, ends_at_s, pause)
    steady: dict[str, Page] = {}
    for target in stack.exporter_targets:
        before = [
            page for page in stack.album.pages(target.name) if page.at_s < ends_at_s - STEADY_BEFORE_END_S
        ]
        steady[target.name] = before[-1]
    return Evidence(
        scenario=stack.scenario,
        start_s=stack.start_s,
        album=stack.album,
        steady=steady,
        ready=ready,
        books=_books(stack, stack.start_s),
        was_disturbed=stack.is_disturbed,
    )


def _settle(stack: Stack, ends_at_s: int, pause: Event) -> None:
    """Let the exporters send everything, end them, and let accounting rate it."""
    _wait(stack, pause, lambda: _has_left(stack, ends_at_s + AFTER_END_S))
    # Devices are present for as long as an exporter says so: books that stand still are verified whole.
    stack.stop_exporters()
    stopped_s = time.time()
    _wait(stack, pause, lambda: _rated_since(stack, stopped_s))
    _wait(stack, pause, lambda: all(not found["pending"] for found in _verified(stack)))


def _wait(stack: Stack, pause: Event, is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SETTLE_WITHIN_S
    while not is_done() and time.monotonic() < deadline:
        stack.check()
        pause.wait(0.2)


def _has_left(stack: Stack, after_s: float) -> bool:
    """Whether every fact that the exporters had by then was taken by accounting."""
    return all(
        any(_holds_only_younger(page, after_s) for page in stack.album.pages(target.name))
        for target in stack.exporter_targets
    )


def _holds_only_younger(page: Page, after_s: float) -> bool:
    oldest_s = page.value("outbox_oldest_timestamp_seconds")
    is_known = page.value("outbox_facts") is not None
    return is_known and page.at_s > after_s and (oldest_s is None or oldest_s > after_s)


def _rated_since(stack: Stack, since_s: float) -> bool:
    """Whether every tenant's statement was rated after that moment."""
    for cluster in stack.scenario.clusters:
        statements = stack.books.statements(cluster)
        if not statements:
            return False
        for statement in statements:
            as_of = statement["as_of"]
            if as_of is None or dt.datetime.fromisoformat(as_of).timestamp() <= since_s:
                return False
    return True


def _books(stack: Stack, start_s: int) -> BookEvidence:
    books, window = stack.books, _window(start_s)
    allocations = books.document(f"/api/v1/allocations?{window}")
    capacity = books.document(f"/api/v1/capacity?{window}")
    first, second, *_ = stack.scenario.clusters
    return BookEvidence(
        statements={cluster.code: books.statements(cluster) for cluster in stack.scenario.clusters},
        allocations=None if allocations is None else allocations["rows"],
        capacity=capacity,
        verified=_verified(stack),
        isolation=_isolation(stack, first, second, window),
    )


def _verified(stack: Stack) -> list[Document]:
    """What `verify` finds in every month touched."""
    answers = [stack.books.document(f"/api/v1/verify/{period}") for period in stack.books.periods()]
    return [found for found in answers if found is not None]


def _window(start_s: int) -> str:
    """From a day before the scenario to an hour from now, so that every touched hour is in it."""
    begin = dt.datetime.fromtimestamp(start_s, dt.UTC) - dt.timedelta(days=1)
    end = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    times = {"from": f"{begin:%Y-%m-%dT%H:00:00Z}", "to": f"{end:%Y-%m-%dT%H:00:00Z}"}
    return urllib.parse.urlencode(times)


def _isolation(stack: Stack, own: ClusterPlan, other: ClusterPlan, window: str) -> Isolation:
    """Everything one tenant's token gets to read, and how it is refused another's statement."""
    books, token, period = stack.books, stack.books.tenant_token(own), stack.books.periods()[-1]
    url = books.target.url
    mine = urllib.parse.quote(own.tenant_path, safe="")
    listing = [
        f"/api/v1/statements/{period}?tenant={mine}",
        f"/api/v1/statements/{period}?tenant={mine}&format=csv",
        f"/api/v1/statements/{period}?tenant={mine}&format=html",
        f"/api/v1/usage?{window}",
        f"/api/v1/costs?period={period}&group_by=tenant",
        f"/api/v1/costs?period={period}&group_by=cluster",
        f"/api/v1/costs?period={period}&group_by=model",
        f"/api/v1/allocations?{window}",
        "/api/v1/tenants",
        "/api/v1/prices",
        "/api/v1/periods",
    ]
    foreign = urllib.parse.quote(other.tenant_path, safe="")
    nobody = urllib.parse.quote("nobody/no-such-tenant", safe="")
    return Isolation(
        own=own.code,
        other=other.code,
        answers={path: ask(url + path, token) for path in listing},
        of_the_other=ask(f"{url}/api/v1/statements/{period}?tenant={foreign}", token),
        of_nobody=ask(f"{url}/api/v1/statements/{period}?tenant={nobody}", token),
        whole_cards=ask(f"{url}/api/v1/capacity?{window}", token),
        without_token=ask(f"{url}/api/v1/tenants"),
    )
