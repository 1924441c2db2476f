"""The watch against the double: everything an API server and what lies before it may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, Protocol

import pytest

from exporter.kube.feed import Timing
from exporter.kube.resources import Resource, namespaces, pods
from exporter.kube.watch import ObjectWatch
from lab.kube.double import ApiDouble
from lab.kube.faults import (
    Answer,
    CutLine,
    Drop,
    EmptyList,
    ErrorEvent,
    Fault,
    Garbage,
    Pieces,
    Silence,
)

Eventually = Callable[[Callable[[], object]], None]
IMPATIENT = Timing(
    silence_s=0.3, list_silence_s=0.3, first_wait_s=0.005, ceiling_s=0.05, doubt_s=0.005, page_objects=2
)


class Watching(Protocol):
    def __call__(self, resource: Resource[Any], **options: Any) -> ObjectWatch[Any]: ...


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "uid": f"uid-{name}"} | metadata}


def names(objects: Mapping[str, Any]) -> set[str]:
    return {found.metadata.name for found in objects.values()}


def kinds(watch: ObjectWatch[Any]) -> list[tuple[str, str]]:
    return [(change.kind, change.object.metadata.name) for change in watch.drain()]


@pytest.mark.parametrize(
    "fault",
    [
        CutLine(),
        Drop(),
        Silence(),
        ErrorEvent(500),
        ErrorEvent(429, retry_after_s=0),
        ErrorEvent(410),
        Garbage(),
    ],
    ids=lambda fault: type(fault).__name__ + str(getattr(fault, "code", "")),
)
def test_a_fault_in_the_middle_of_a_watch_loses_and_doubles_nothing(
    api: ApiDouble, watching: Watching, eventually: Eventually, fault: Fault
) -> None:
    api.create("Pod", pod("a"))
    api.bookmark_interval_s = 600.0
    watch = watching(pods(), timing=IMPATIENT)
    watch.wait_listed(20)
    eventually(lambda: api.request_log.count("watch") >= 1)
    api.fail_next(fault, verb="event")
    api.create("Pod", pod("b"))
    api.create("Pod", pod("c"))
    eventually(lambda: names(watch.view().objects) == {"a", "b", "c"})
    assert kinds(watch) == [("added", "a"), ("added", "b"), ("added", "c")]


@pytest.mark.parametrize("verb", ["list", "watch"])
@pytest.mark.parametrize(
    "fault",
    [
        Answer(401),
        Answer(403),
        Answer(404),
        Answer(410),
        Answer(429, retry_after_s=0),
        Answer(500),
        Answer(503),
        Answer(504),
        Drop(),
        Silence(),
        Pieces(size_bytes=7),
    ],
    ids=lambda fault: type(fault).__name__ + str(getattr(fault, "status", "")),
)
def test_a_request_that_fails_twice_is_made_again(
    api: ApiDouble,
    watching: Watching,
    eventually: Eventually,
    fault: Fault,
    verb: Literal["list", "watch"],
) -> None:
    api.create("Pod", pod("a"))
    api.fail_next(fault, times=2, verb=verb)
    watch = watching(pods(), timing=IMPATIENT)
    assert watch.wait_listed(20)
    api.create("Pod", pod("b"))
    eventually(lambda: names(watch.view().objects) == {"a", "b"})
    eventually(lambda: watch.failure is None)
    assert sorted(kinds(watch)) == [("added", "a"), ("added", "b")]


def test_a_proxys_page_in_place_of_a_list_changes_nothing(
    api: ApiDouble, watching: Watching, eventually: Eventually
) -> None:
    api.create("Pod", pod("a"))
    api.fail_next(Garbage(), times=2, verb="list")
    watch = watching(pods())
    assert watch.wait_listed(20)
    assert kinds(watch) == [("added", "a")]


@pytest.mark.parametrize("gone_as", ["status", "event"])
def test_what_happened_beyond_the_history_is_found_by_comparing(
    api: ApiDouble, watching: Watching, eventually: Eventually, gone_as: Literal["status", "event"]
) -> None:
    for name in ("stays", "goes", "changes"):
        api.create("Pod", pod(name))
    watch = watching(pods())
    watch.wait_listed(20)
    watch.drain()
    api.stop()
    api.gone_as = gone_as
    api.delete("Pod", "n", "goes")
    api.patch("Pod", "n", "changes", {"metadata": {"labels": {"k": "v"}}})
    api.create("Pod", pod("comes"))
    api.compact()
    api.start()
    eventually(lambda: names(watch.view().objects) == {"stays", "changes", "comes"})
    assert sorted(kinds(watch)) == [("added", "comes"), ("modified", "changes"), ("vanished", "goes")]


def test_a_pod_recreated_under_its_name_while_we_were_away_is_another_pod(
    api: ApiDouble, watching: Watching, eventually: Eventually
) -> None:
    api.create("Pod", pod("a"))
    watch = watching(pods())
    watch.wait_listed(20)
    watch.drain()
    api.stop()
    api.delete("Pod", "n", "a")
    api.create("Pod", pod("a", uid="uid-second"))
    api.compact()
    api.start()
    eventually(lambda: set(watch.view().objects) == {"uid-second"})
    changes = [(change.kind, change.object.metadata.uid) for change in watch.drain()]
    assert changes == [("vanished", "uid-a"), ("added", "uid-second")]


def test_an_outage_within_the_history_is_made_good_without_a_list(
    api: ApiDouble, watching: Watching, eventually: Eventually
) -> None:
    api.create("Pod", pod("a"))
    watch = watching(pods())
    watch.wait_listed(20)
    watch.drain()
    api.stop()
    api.create("Pod", pod("b"))
    api.delete("Pod", "n", "a")
    api.start()
    eventually(lambda: names(watch.view().objects) == {"b"})
    assert kinds(watch) == [("added", "b"), ("deleted", "a")]
    assert api.request_log.count("list") == 1


def test_a_pod_deleted_in_a_long_outage_vanished_and_was_not_seen_to_be_deleted(
    api: ApiDouble, watching: Watching, eventually: Eventually
) -> None:
    api.create("Pod", pod("a"))
    api.create("Pod", pod("b"))
    now = [0.0]
    watch = watching(pods(), monotonic=lambda: now[0])
    watch.wait_listed(20)
    watch.drain()
    api.stop()
    eventually(lambda: watch.failure is not None)
    now[0] += 3_600
    # The attempt under way may have begun before the hour passed; the one after it has not.
    for _ in range(2):
        failure = watch.failure
        eventually(lambda: watch.failure is not failure)  # noqa: B023 - waited for at once
    api.delete("Pod", "n", "a")
    api.start()
    eventually(lambda: names(watch.view().objects) == {"b"})
    assert kinds(watch) == [("vanished", "a")]


def test_while_the_server_is_away_the_view_stays_and_its_confirmation_stands_still(
    api: ApiDouble, watching: Watching, eventually: Eventually
) -> None:
    api.create("Pod", pod("a"))
    ticks = iter(range(1_000_000))
    watch = watching(pods(), clock_ms=lambda: next(ticks))
    watch.wait_listed(20)
    api.stop()
    eventually(lambda: watch.failure is not None and watch.failure.reason == "unreachable")
    view = watch.view()
    assert watch.failure is not None
    assert watch.failure.__traceback__ is None  # its frames would hold sockets and answers
    begun = next(ticks)
    eventually(lambda: next(ticks) > begun + 3)
    assert watch.view() == view
    assert names(view.objects) == {"a"}
    api.start()
    eventually(lambda: (watch.view().confirmed_at_ms or 0) > begun)
    assert watch.failure is None
    assert kinds(watch) == [("added", "a")]


def test_a_replaced_token_is_picked_up_at_the_next_connection(
    api: ApiDouble, watching: Watching, eventually: Eventually
) -> None:
    watch = watching(pods())
    watch.wait_listed(20)
    stale = api.token_file.read_text()
    fresh = api.replace_token()
    api.token_file.write_text(stale)
    api.cut_connections()
    eventually(lambda: watch.failure is not None and watch.failure.reason == "unauthorized")
    api.token_file.write_text(fresh)
    api.create("Pod", pod("a"))
    eventually(lambda: names(watch.view().objects) == {"a"})


def test_pages_that_expire_while_they_are_read_give_way_to_a_list_in_one_piece(
    api: ApiDouble, watching: Watching, eventually: Eventually
) -> None:
    for number in range(5):
        api.create("Pod", pod(f"p{number}"))
    watch = watching(pods(), timing=IMPATIENT)
    watch.wait_listed(20)
    watch.drain()
    # First page served, second one expired; what changed meanwhile must not be lost.
    api.stop()
    api.delete("Pod", "n", "p0")
    api.compact()
    api.request_log.clear()
    api.fail_next(Answer(410), verb="list", after=1)
    api.start()
    eventually(lambda: len(watch.view().objects) == 4)
    assert kinds(watch) == [("vanished", "p0")]
    lists = api.request_log.entries("list")
    assert [("continue" in entry.query, "limit" in entry.query) for entry in lists] == [
        (False, True),
        (True, True),
        (False, False),
    ]


def test_an_empty_list_is_a_suspect_view_that_ends_nothing(
    api: ApiDouble, watching: Watching, eventually: Eventually
) -> None:
    api.create("Pod", pod("a"))
    ticks = iter(range(1_000_000))
    watch = watching(pods(), timing=replace(IMPATIENT, doubt_s=600.0), clock_ms=lambda: next(ticks))
    watch.wait_listed(20)
    watch.drain()
    api.fail_next(EmptyList(), times=None)
    api.stop()
    before = watch.view()
    api.create("Node", {"metadata": {"name": "moves-the-version"}})
    api.compact()
    api.start()
    eventually(lambda: watch.view().is_suspect)
    view = watch.view()
    assert names(view.objects) == {"a"}
    assert view.confirmed_at_ms == before.confirmed_at_ms
    assert watch.drain() == []


def outage_that_empties_lists(api: ApiDouble, times: int | None) -> None:
    api.stop()
    api.fail_next(EmptyList(), times=times, verb="list")
    api.create("Node", {"metadata": {"name": "moves-the-version"}})
    api.compact()
    api.start()


def test_a_list_that_holds_something_again_lifts_the_suspicion(
    api: ApiDouble, watching: Watching, eventually: Eventually
) -> None:
    api.create("Pod", pod("a"))
    watch = watching(pods())
    watch.wait_listed(20)
    api.request_log.clear()
    outage_that_empties_lists(api, times=2)
    eventually(lambda: api.request_log.count("watch") >= 2)
    assert not watch.view().is_suspect
    assert kinds(watch) == [("added", "a")]


def test_the_third_empty_list_in_a_row_is_believed_as_of_the_first(
    api: ApiDouble, watching: Watching, eventually: Eventually
) -> None:
    api.create("Pod", pod("a"))
    now = [1_000]

    def clock_ms() -> int:
        now[0] += 1 if api.request_log.count("list") < 2 else 1_000_000
        return now[0]

    watch = watching(pods(), clock_ms=clock_ms)
    watch.wait_listed(20)
    watch.drain()
    outage_that_empties_lists(api, times=None)
    eventually(lambda: not watch.view().objects)
    assert not watch.view().is_suspect
    (change,) = watch.drain()
    assert change.kind == "vanished"
    lists = api.request_log.entries("list")
    assert len(lists) == 4
    assert all("resourceVersion" not in entry.query for entry in lists[1:])


def test_no_empty_list_is_believed_while_processes_live(
    api: ApiDouble, watching: Watching, eventually: Eventually
) -> None:
    may_be_gone = [False]
    watch = watching(pods(), may_all_be_gone=lambda: may_be_gone[0])
    eventually(lambda: api.request_log.count("list") >= 6)
    view = watch.view()
    assert (view.listed, view.is_suspect) == (False, True)
    may_be_gone[0] = True
    assert watch.wait_listed(20)
    assert not watch.view().is_suspect


def test_a_list_without_any_namespace_is_never_believed(
    api: ApiDouble, watching: Watching, eventually: Eventually
) -> None:
    watch = watching(namespaces())
    eventually(lambda: api.request_log.count("list") >= 5)
    assert not watch.view().listed
    api.create("Namespace", {"metadata": {"name": "kube-system"}})
    assert watch.wait_listed(20)


def unreadable_told(caplog: pytest.LogCaptureFixture, uid: str) -> int:
    return sum(f"object {uid} cannot be read" in record.message for record in caplog.records)


def test_one_object_that_cannot_be_read_costs_that_object_alone_and_is_named_in_the_log(
    api: ApiDouble, watching: Watching, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    api.create("Pod", pod("a"))
    api.create("Pod", pod("odd", labels=5))
    watch = watching(pods())
    watch.wait_listed(20)
    assert names(watch.view().objects) == {"a"}
    assert unreadable_told(caplog, "uid-odd") == 1
    api.patch("Pod", "n", "odd", {"metadata": {"labels": {"k": "v"}}})
    eventually(lambda: names(watch.view().objects) == {"a", "odd"})


def test_an_object_that_becomes_unreadable_keeps_its_last_state_until_it_is_deleted(
    api: ApiDouble, watching: Watching, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    api.create("Pod", pod("a", labels={"k": "v"}))
    watch = watching(pods())
    watch.wait_listed(20)
    watch.drain()
    api.patch("Pod", "n", "a", {"metadata": {"labels": 5}})
    eventually(lambda: unreadable_told(caplog, "uid-a") == 1)
    # A list does not take it for gone either.
    api.stop()
    api.create("Node", {"metadata": {"name": "moves-the-version"}})
    api.compact()
    api.start()
    eventually(lambda: unreadable_told(caplog, "uid-a") == 2)
    assert watch.view().objects["uid-a"].metadata.labels == {"k": "v"}
    api.delete("Pod", "n", "a")
    eventually(lambda: not watch.view().objects)
    assert kinds(watch) == [("deleted", "a")]


def test_retry_after_is_waited_for(api: ApiDouble, watching: Watching, eventually: Eventually) -> None:
    api.fail_next(Answer(429, retry_after_s=300), verb="list")
    watch = watching(pods())
    eventually(lambda: watch.failure is not None and watch.failure.reason == "throttled")
    assert not watch.wait_listed(0.2)
    assert api.request_log.count("list") == 1
