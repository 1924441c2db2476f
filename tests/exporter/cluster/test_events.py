"""What events say of a pod: every text of `reference/hami-kubernetes.md §8`."""

from __future__ import annotations

import itertools
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.cluster.events import FILTER_REASONS, EventBook, Verdict, filter_reason, locked_node, read_event
from exporter.kube.objects import Event
from tests.exporter.cluster.handmade import EIGHT_MS, event


def said(reason: str, message: str, at_s: float = 0) -> Event:
    return msgspec.convert(event("p", reason, message, at_s), Event)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("1 nodes CardInsufficientMemory(hami-lab-rtx6000)", "CardInsufficientMemory"),
        ("3 nodes CardTimeSlicingExhausted(n1,n2,n3)", "CardTimeSlicingExhausted"),
        ("2 nodes CardMigTopologyInfeasible(n1,n2)", "CardMigTopologyInfeasible"),
        ("no available node, 1 nodes do not meet", "NoNodeFits"),
        ("no available node, all node scores do not meet", "NoNodeFits"),
        ("calcScore failed node a err for pod p", "CalcScoreFailed"),
        ("NodeInsufficientDevice", "NodeInsufficientDevice"),
        ("does not request any resource", None),
        ("1 nodes SomethingNew(n1)", "Other"),
        ("1 nodes <script>(n1)", "Other"),
        ("", "Other"),
    ],
)
def test_every_text_of_a_failed_filter_has_its_reason(message: str, reason: str | None) -> None:
    assert filter_reason(message) == reason


@pytest.mark.parametrize(
    ("message", "node"),
    [
        ("node node-a has been locked within 5 minutes", "node-a"),
        ("node node-a has been locked within 5m0s", "node-a"),
        ("node node-a has been locked within 5m0s: node lock contention", "node-a"),
        ("node node-a is locked", "node-a"),
        ("failed to set node lock (node=node-a)", "node-a"),
        ("failed to set node lock", ""),
        ("timed out after 28s waiting for node node-a to be unlocked: context deadline exceeded", "node-a"),
        ("failed to get node node-a", None),
        ("Operation cannot be fulfilled on pods", None),
    ],
)
def test_a_refusal_by_the_lock_names_the_node(message: str, node: str | None) -> None:
    assert locked_node(message) == node


@pytest.mark.parametrize(
    ("reason", "message", "verdict"),
    [
        (
            "FilteringSucceed",
            "find fit node(gpu-node), 0 nodes not fit, 1 nodes fit(gpu-node:10.00)",
            Verdict("filtered", EIGHT_MS),
        ),
        (
            "FilteringSucceed",
            "Successfully filtered to following nodes: [gpu-node] for team/p ",
            Verdict("filtered", EIGHT_MS),
        ),
        ("BindingSucceed", "Successfully binding node [gpu-node] to team/p", Verdict("bound", EIGHT_MS)),
        ("BindingFailed", "node n is locked", Verdict("lock_refused", EIGHT_MS, node="n")),
        ("BindingFailed", "etcd is away", Verdict("binding_failed", EIGHT_MS)),
        ("FailedScheduling", "0/1 nodes are available", Verdict("not_scheduled", EIGHT_MS)),
        ("FilteringFailed", "does not request any resource", None),
        ("Scheduled", "Successfully assigned team/p to gpu-node", None),
        ("AsymmetricGPUP2PLink", "whatever", None),
    ],
)
def test_events_are_words_of_the_scheduler_by_their_reason(
    reason: str, message: str, verdict: Verdict | None
) -> None:
    assert read_event(said(reason, message)) == verdict


def test_a_merged_event_counts_at_its_last_time() -> None:
    raw = event("p", "FilteringFailed", "no available node, 1 nodes do not meet", 0)
    raw |= {"eventTime": "2026-10-01T08:00:00.000000Z", "series": {"count": 9}}
    raw["series"]["lastObservedTime"] = "2026-10-01T08:05:00.000000Z"
    verdict = read_event(msgspec.convert(raw, Event))
    assert verdict is not None
    assert verdict.at_ms == EIGHT_MS + 300_000


def newest_of(*events: Event) -> Verdict | None:
    book = EventBook()
    book.read(events)
    return book.of("uid-team-p")


def test_of_one_attempt_the_reason_nearest_to_a_fit_holds() -> None:
    attempt = (
        said("FilteringFailed", "9 nodes CardTypeMismatch(a,b)", 10),
        said("FilteringFailed", "1 nodes CardInsufficientCore(c)", 10),
        said("FilteringFailed", "no available node, 10 nodes do not meet", 11),
        said("FailedScheduling", "0/10 nodes are available", 11),
    )
    for order in itertools.permutations(attempt):
        found = newest_of(*order)
        assert found is not None
        assert found.reason == "CardInsufficientCore"


def test_a_later_attempt_takes_the_place_of_an_earlier_one() -> None:
    found = newest_of(
        said("FilteringFailed", "1 nodes CardInsufficientCore(c)", 0),
        said("FilteringFailed", "1 nodes CardTypeMismatch(c)", 60),
    )
    assert found == Verdict("filter_failed", EIGHT_MS + 60_000, "CardTypeMismatch")


def test_of_two_words_in_one_second_the_later_step_holds() -> None:
    found = newest_of(
        said("BindingFailed", "node n is locked", 5), said("FilteringSucceed", "find fit node(n)", 5)
    )
    assert found is not None
    assert found.kind == "lock_refused"


def test_what_was_said_outlives_its_event_but_not_its_pod() -> None:
    book = EventBook()
    book.read([said("FilteringFailed", "1 nodes CardInsufficientCore(c)", 0)])
    book.forget({"uid-team-p"}, EIGHT_MS + 7_200_000)
    assert book.of("uid-team-p") is not None
    book.forget(set(), EIGHT_MS + 30_000)
    assert book.of("uid-team-p") is not None, "the pod's own update may still be on its way"
    book.forget(set(), EIGHT_MS + 61_000)
    assert book.of("uid-team-p") is None


def test_what_was_said_survives_a_restart() -> None:
    book = EventBook()
    book.read([said("BindingFailed", "node n is locked", 5), said("FilteringSucceed", "", 2)])
    again = EventBook(book.dump())
    assert again.of("uid-team-p") == book.of("uid-team-p")
    assert again.binding_failed_ms("uid-team-p") == EIGHT_MS + 5_000


words = st.tuples(
    st.sampled_from(
        ["FilteringFailed", "FilteringSucceed", "BindingFailed", "BindingSucceed", "FailedScheduling"]
    ),
    st.sampled_from(
        ["1 nodes CardInsufficientMemory(n)", "node n is locked", "no available node, 1 nodes do not meet"]
    ),
    st.integers(0, 8),
)


@given(st.lists(words, max_size=6), st.randoms(use_true_random=False))
def test_order_and_repetition_of_events_change_nothing(
    words: list[tuple[str, str, int]], random: Random
) -> None:
    events = [said(*word) for word in words]
    shuffled = events + events[:2]
    random.shuffle(shuffled)
    assert newest_of(*shuffled) == newest_of(*events)


@given(st.text(), st.text())
def test_any_event_gives_a_closed_reason_or_none(reason: str, message: str) -> None:
    verdict = read_event(said(reason, message))
    assert verdict is None or verdict.reason in {"", *FILTER_REASONS}
    assert filter_reason(message) in {None, *FILTER_REASONS}
