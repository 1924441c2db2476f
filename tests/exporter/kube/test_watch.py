"""The watch against the double: what a node's exporter lives through in a healthy cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pytest

from exporter.kube.cluster_uid import cluster_uid
from exporter.kube.feed import Timing
from exporter.kube.resources import Resource, events, namespaces, nodes, pods
from exporter.kube.watch import ObjectWatch
from lab.kube.double import ApiDouble

Eventually = Callable[[Callable[[], object]], None]


class Watching(Protocol):
    def __call__(self, resource: Resource[Any], **options: Any) -> ObjectWatch[Any]: ...


def pod(name: str, node: str | None = None, **metadata: Any) -> dict[str, Any]:
    spec = {} if node is None else {"nodeName": node}
    return {"metadata": {"name": name, "namespace": "n"} | metadata, "spec": spec}


def names(objects: Mapping[str, Any]) -> set[str]:
    return {found.metadata.name for found in objects.values()}


def test_before_the_first_list_a_view_says_nothing(api: ApiDouble, watching: Watching) -> None:
    api.stop()
    view = watching(pods()).view()
    assert (view.listed, view.confirmed_at_ms, dict(view.objects)) == (False, None, {})


def test_a_view_holds_objects_by_uid_with_the_fields_we_read(api: ApiDouble, watching: Watching) -> None:
    api.create("Pod", pod("a", "gpu-1", uid="u-1", annotations={"hami.io/vgpu-node": "gpu-1"}))
    watch = watching(pods())
    assert watch.wait_listed(20)
    found = watch.view().objects["u-1"]
    assert found.spec.node_name == "gpu-1"
    assert found.metadata.annotations == {"hami.io/vgpu-node": "gpu-1"}


def test_changes_come_once_and_in_order(api: ApiDouble, watching: Watching, eventually: Eventually) -> None:
    api.create("Pod", pod("a"))
    watch = watching(pods())
    watch.wait_listed(20)
    api.patch("Pod", "n", "a", {"metadata": {"annotations": {"k": "1"}}})
    api.create("Pod", pod("b"))
    api.delete("Pod", "n", "a")
    eventually(lambda: names(watch.view().objects) == {"b"})
    changes = watch.drain()
    assert [(change.kind, change.object.metadata.name) for change in changes] == [
        ("added", "a"),
        ("modified", "a"),
        ("added", "b"),
        ("deleted", "a"),
    ]
    assert changes[1].object.metadata.annotations == {"k": "1"}
    assert changes[3].object.metadata.annotations == {"k": "1"}
    assert watch.drain() == []


def test_a_view_never_changes_after_it_was_handed_out(
    api: ApiDouble, watching: Watching, eventually: Eventually
) -> None:
    api.create("Pod", pod("a"))
    watch = watching(pods())
    watch.wait_listed(20)
    before = watch.view()
    api.create("Pod", pod("b"))
    eventually(lambda: names(watch.view().objects) == {"a", "b"})
    assert names(before.objects) == {"a"}


def test_a_node_sees_only_pods_that_are_bound_to_it(
    api: ApiDouble, watching: Watching, eventually: Eventually
) -> None:
    api.create("Pod", pod("elsewhere", "gpu-2"))
    api.create("Pod", pod("reserved"))
    watch = watching(pods("gpu-1"))
    watch.wait_listed(20)
    assert names(watch.view().objects) == set()
    api.patch("Pod", "n", "reserved", {"spec": {"nodeName": "gpu-1"}})
    eventually(lambda: names(watch.view().objects) == {"reserved"})
    assert [entry.query["fieldSelector"] for entry in api.request_log.entries("list")] == [
        "spec.nodeName=gpu-1"
    ]


def test_a_node_watches_itself_by_name(api: ApiDouble, watching: Watching) -> None:
    for name in ("gpu-1", "gpu-2"):
        api.create("Node", {"metadata": {"name": name}, "status": {"capacity": {"nvidia.com/gpu": "10"}}})
    watch = watching(nodes("gpu-1"))
    watch.wait_listed(20)
    (node,) = watch.view().objects.values()
    assert (node.metadata.name, node.status.capacity) == ("gpu-1", {"nvidia.com/gpu": "10"})


def test_of_namespaces_only_metadata_travels(
    api: ApiDouble, watching: Watching, eventually: Eventually
) -> None:
    namespace = {"metadata": {"name": "kube-system", "uid": "cluster-1"}, "spec": {"finalizers": ["k"]}}
    api.create("Namespace", namespace)
    watch = watching(namespaces())
    assert cluster_uid(watch.view()) is None or watch.view().listed
    watch.wait_listed(20)
    assert cluster_uid(watch.view()) == "cluster-1"
    api.create("Namespace", {"metadata": {"name": "team", "labels": {"capsule.clastix.io/tenant": "t"}}})
    eventually(lambda: len(watch.view().objects) == 2)
    team = next(found for found in watch.view().objects.values() if found.metadata.name == "team")
    assert team.metadata.labels == {"capsule.clastix.io/tenant": "t"}


def test_events_can_be_selected_by_what_they_speak_of(api: ApiDouble, watching: Watching) -> None:
    for kind in ("Pod", "Node"):
        metadata = {"name": f"about-{kind.lower()}", "namespace": "n"}
        involved = {"kind": kind, "name": "x", "uid": f"uid-{kind}"}
        event = {"metadata": metadata, "involvedObject": involved, "reason": "FilteringFailed"}
        api.create("Event", event)
    watch = watching(events("involvedObject.kind=Pod"))
    watch.wait_listed(20)
    (event,) = watch.view().objects.values()
    assert (event.reason, event.involved_object.uid) == ("FilteringFailed", "uid-Pod")


def test_a_long_list_comes_in_pages_of_one_version(api: ApiDouble, watching: Watching) -> None:
    for number in range(7):
        api.create("Pod", pod(f"p{number}"))
    # A list from the server's cache has no pages; the second one asks for the newest state.
    api.compact()
    watch = watching(pods(), timing=Timing(page_objects=3, first_wait_s=0.001, ceiling_s=0.01))
    watch.wait_listed(20)
    assert len(watch.view().objects) == 7


def test_bookmarks_confirm_a_quiet_view_and_keep_its_version_young(
    api: ApiDouble, watching: Watching, eventually: Eventually
) -> None:
    api.create("Pod", pod("a"))
    ticks = iter(range(1_000_000))
    watch = watching(pods(), clock_ms=lambda: next(ticks))
    watch.wait_listed(20)
    first = watch.view()
    # The version moves on by objects that this watch does not see, and the history is forgotten.
    api.create("Node", {"metadata": {"name": "gpu-1"}})
    eventually(lambda: (watch.view().confirmed_at_ms or 0) > (first.confirmed_at_ms or 0) + 2)
    api.compact()
    api.cut_connections()
    eventually(lambda: api.request_log.count("watch", "pods") >= 2)
    api.create("Pod", pod("b"))
    eventually(lambda: names(watch.view().objects) == {"a", "b"})
    assert api.request_log.count("list", "pods") == 1


def test_while_nothing_changed_views_share_their_objects(
    api: ApiDouble, watching: Watching, eventually: Eventually
) -> None:
    api.create("Pod", pod("a"))
    ticks = iter(range(1_000_000))
    watch = watching(pods(), clock_ms=lambda: next(ticks))
    watch.wait_listed(20)
    first = watch.view()
    eventually(lambda: watch.view().confirmed_at_ms != first.confirmed_at_ms)
    assert watch.view().objects is first.objects


def test_a_watch_that_the_server_ends_is_resumed_without_a_list(
    api: ApiDouble, watching: Watching, eventually: Eventually
) -> None:
    timing = Timing(watch_min_s=0.0, watch_max_s=0.0, first_wait_s=0.001, ceiling_s=0.01)
    watch = watching(pods(), timing=timing)
    watch.wait_listed(20)
    eventually(lambda: api.request_log.count("watch") >= 3)
    api.create("Pod", pod("a"))
    eventually(lambda: names(watch.view().objects) == {"a"})
    assert api.request_log.count("list") == 1
    assert watch.failure is None


def test_whoever_waits_is_woken_by_a_change(api: ApiDouble, watching: Watching) -> None:
    woken = threading.Event()
    watch = watching(pods(), on_change=woken.set)
    assert woken.wait(20)
    watch.wait_listed(20)
    woken.clear()
    api.create("Pod", pod("a"))
    assert woken.wait(20)
    assert [change.kind for change in watch.drain()] == ["added"]


@pytest.mark.parametrize("is_quiet", [True, False])
def test_stopping_does_not_wait_for_the_server(api: ApiDouble, watching: Watching, is_quiet: bool) -> None:
    if is_quiet:
        api.bookmark_interval_s = 600.0
    watch = watching(pods(), timing=Timing(silence_s=600.0))
    watch.wait_listed(20)
    watch.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "watch-pods"]


def test_reading_a_view_asks_the_api_nothing(api: ApiDouble, watching: Watching) -> None:
    watch = watching(pods())
    watch.wait_listed(20)
    api.stop()
    before = api.request_log.count()
    for _ in range(100):
        watch.view()
        watch.drain()
    assert api.request_log.count() == before
