"""The four generators one by one, where a whole watch would hide them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from exporter.kube.cancellation import Cancellation
from exporter.kube.client import ApiClient
from exporter.kube.errors import KubeError
from exporter.kube.feed import Confirmed, Connected, Feed, Happened, Listed, Timing, Trouble
from exporter.kube.objects import Meta, Pod
from exporter.kube.resources import pods
from lab.kube.double import ApiDouble
from lab.kube.faults import Answer, ErrorEvent

TIMING = Timing(first_wait_s=0.001, ceiling_s=0.004, page_objects=2)


def feed_of(client: ApiClient, clock: Iterator[float] | None = None) -> Feed[Pod]:
    ticks = clock or iter([0.0] * 1000)
    return Feed(
        client, pods(), Cancellation(), timing=TIMING, random=Random(1), monotonic=lambda: next(ticks)
    )


def create(api: ApiDouble, *names: str) -> None:
    for name in names:
        api.create("Pod", {"metadata": {"name": name, "namespace": "n"}})


def test_a_list_is_read_page_by_page_at_one_version(api: ApiDouble, client: ApiClient) -> None:
    create(api, "a", "b", "c", "d", "e")
    listed = feed_of(client).list_objects("")
    assert [pod.metadata.name for pod in listed.objects] == ["a", "b", "c", "d", "e"]
    assert listed.version == str(api.store.version)
    assert api.request_log.count("list") == 3


def test_half_a_list_is_no_list(api: ApiDouble, client: ApiClient) -> None:
    create(api, "a", "b", "c")
    api.fail_next(Answer(500), after=1)
    with pytest.raises(KubeError, match="500"):
        feed_of(client).list_objects("")


def test_a_connection_says_first_that_it_stands_then_what_happens(api: ApiDouble, client: ApiClient) -> None:
    version = str(api.store.version)
    create(api, "a")
    messages = feed_of(client).connection(version)
    assert next(messages) == Connected()
    happened = next(messages)
    assert isinstance(happened, Happened)
    assert (happened.kind, happened.version) == ("added", str(api.store.version))
    assert next(messages) == Confirmed(str(api.store.version))


def test_a_life_ends_when_its_version_is_gone(api: ApiDouble, client: ApiClient) -> None:
    version = str(api.store.version)
    create(api, "a")
    api.compact()
    assert list(feed_of(client).life(version)) == [Connected()]


def test_messages_begin_with_a_cheap_list_and_go_on_past_every_cache(
    api: ApiDouble, client: ApiClient
) -> None:
    create(api, "a")
    messages = feed_of(client).messages()
    assert isinstance(next(messages), Listed)
    api.fail_next(Answer(410), verb="watch")
    assert isinstance(next(messages), Listed)
    first, second = api.request_log.entries("list")
    assert first.query["resourceVersion"] == "0"
    assert "resourceVersion" not in second.query


def test_a_large_resource_is_listed_in_pages_from_the_first_time_on_and_slimmed(
    api: ApiDouble, client: ApiClient
) -> None:
    create(api, "a", "b", "c")
    large = replace(pods(), is_paged=True, slim=lambda pod: Pod(Meta(name=pod.metadata.name, uid="slim")))
    feed = Feed(client, large, Cancellation(), timing=TIMING, random=Random(1), monotonic=lambda: 0.0)
    messages = feed.messages()
    first = next(messages)
    assert isinstance(first, Listed)
    assert [(pod.metadata.name, pod.metadata.uid) for pod in first.objects] == [
        ("a", "slim"),
        ("b", "slim"),
        ("c", "slim"),
    ]
    api.fail_next(Answer(410), verb="watch")
    assert isinstance(next(messages), Listed)
    queries = [logged.query for logged in api.request_log.entries("list")]
    assert [(query["limit"], "continue" in query) for query in queries] == [("2", False), ("2", True)] * 2
    assert not any("resourceVersion" in query for query in queries)


def test_a_server_that_refuses_every_list_is_asked_ever_more_rarely(
    api: ApiDouble, client: ApiClient
) -> None:
    api.fail_next(Answer(503), times=None)
    feed = feed_of(client)
    messages = feed.messages()
    for _ in range(4):
        message = next(messages)
        assert isinstance(message, Trouble)
        assert message.error.reason == "server_error"
    # First wait 1 ms, doubled after each of the three waits that ended, but never above the ceiling.
    assert feed._backoff._next_s == 0.004


def test_a_connection_that_held_long_is_no_reason_to_wait_long(api: ApiDouble, client: ApiClient) -> None:
    create(api, "a")
    for held_s, next_wait_s in ((0.0, 0.004), (60.0, 0.002)):
        # Two looks before the connection, one at its first word, one at its end.
        feed = feed_of(client, iter([0.0, 0.0, 0.0, held_s]))
        feed._backoff.next_s()
        feed._backoff.next_s()
        api.fail_next(ErrorEvent(404), verb="event")
        messages = list(feed.life(str(api.store.version - 1)))
        assert [type(message) for message in messages] == [Connected, Trouble]
        assert feed._backoff._next_s == next_wait_s


def test_an_event_of_a_kind_we_do_not_know_leads_to_a_new_list(client: ApiClient) -> None:
    with pytest.raises(KubeError, match='"RENAMED" is unknown') as caught:
        feed_of(client)._read_line(b'{"type":"RENAMED","object":{"metadata":{"name":"a"}}}')
    assert caught.value.needs_list


def test_a_cancelled_feed_says_nothing(client: ApiClient) -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    assert list(Feed(client, pods(), cancellation).messages()) == []


def test_after_a_long_silence_a_life_ends_and_the_list_after_it_may_be_of_a_version_that_is_known(
    api: ApiDouble, client: ApiClient
) -> None:
    create(api, "a", "b", "c")
    version = str(api.store.version)
    now = [0.0]
    feed = Feed(client, pods(), Cancellation(), timing=TIMING, random=Random(1), monotonic=lambda: now[0])
    messages = feed.messages()
    assert isinstance(next(messages), Listed)
    api.fail_next(Answer(503), verb="watch", times=None)
    assert isinstance(next(messages), Trouble)
    now[0] += 119.0
    assert isinstance(next(messages), Trouble)
    now[0] += 2.0
    listed = next(messages)
    assert isinstance(listed, Listed)
    assert [pod.metadata.name for pod in listed.objects] == ["a", "b", "c"]
    last = api.request_log.entries("list")[-1]
    # An API server answers this out of its memory, where a list in pages goes to its database.
    assert (last.query["resourceVersion"], "limit" in last.query) == (version, False)
