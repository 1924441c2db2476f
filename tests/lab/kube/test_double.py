"""The double by a plain HTTP client: what it says on the wire, held against Kubernetes' API documents."""

from __future__ import annotations

import http.client
import itertools
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import pytest

from lab.kube.double import ApiDouble
from lab.kube.faults import Answer, CutLine, EmptyList, ErrorEvent

METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiDouble]:
    with ApiDouble(tmp_path, bookmark_interval_s=600.0) as double:
        yield double


def pod(name: str, namespace: str = "n", **spec: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


class Caller:
    """One connection with the double's token, or another one."""

    def __init__(self, api: ApiDouble, token: str | None = None) -> None:
        context = ssl.create_default_context(cafile=str(api.ca_file))
        port = int(api.url.rpartition(":")[2])
        self.connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)
        self.token = api.token_file.read_text().strip() if token is None else token

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def open(self, path: str, accept: str = "application/json", **query: object) -> http.client.HTTPResponse:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": accept}
        target = f"{path}?{urlencode(query)}" if query else path
        self.connection.request("GET", target, headers=headers)
        return self.connection.getresponse()

    def get(self, path: str, accept: str = "application/json", **query: object) -> tuple[int, dict[str, Any]]:
        response = self.open(path, accept, **query)
        return response.status, json.loads(response.read())

    def lines(self, path: str, accept: str = "application/json", **query: object) -> Iterator[dict[str, Any]]:
        response = self.open(path, accept, watch="true", **query)
        assert response.status == 200
        assert response.getheader("Transfer-Encoding") == "chunked"
        while line := response.readline():
            yield json.loads(line)


@pytest.fixture
def caller(api: ApiDouble) -> Iterator[Caller]:
    with Caller(api) as connection:
        yield connection


def item_names(body: dict[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in body["items"]]


def test_a_list_names_its_kind_and_version_and_its_items_do_not(api: ApiDouble, caller: Caller) -> None:
    api.create("Pod", pod("a"))
    status, body = caller.get("/api/v1/pods")
    assert (status, body["kind"], body["apiVersion"]) == (200, "PodList", "v1")
    assert body["metadata"] == {"resourceVersion": str(api.store.version)}
    assert [set(item) for item in body["items"]] == [{"metadata", "spec"}]


def test_a_namespaced_path_lists_its_namespace(api: ApiDouble, caller: Caller) -> None:
    api.create("Pod", pod("a", "n"))
    api.create("Pod", pod("b", "other"))
    assert item_names(caller.get("/api/v1/pods")[1]) == ["a", "b"]
    assert item_names(caller.get("/api/v1/namespaces/other/pods")[1]) == ["b"]


def test_single_objects_are_found_by_name(api: ApiDouble, caller: Caller) -> None:
    api.create("Pod", pod("a"))
    api.create("Node", {"metadata": {"name": "gpu-1"}})
    api.create("Namespace", {"metadata": {"name": "kube-system", "uid": "c"}})
    assert caller.get("/api/v1/namespaces/n/pods/a")[1]["kind"] == "Pod"
    assert caller.get("/api/v1/nodes/gpu-1")[1]["metadata"]["name"] == "gpu-1"
    assert caller.get("/api/v1/namespaces/kube-system")[1]["metadata"]["uid"] == "c"
    assert caller.get("/api/v1/nodes/gpu-1", METADATA)[1]["kind"] == "PartialObjectMetadata"


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/nodes/none",
        "/api/v1/secrets",
        "/apis/apps/v1/deployments",
        "/api/v1/namespaces/n/nodes",
        "/api/v1/namespaces/n/pods/a/log",
    ],
)
def test_what_is_not_there_is_a_404_status(caller: Caller, path: str) -> None:
    code, body = caller.get(path)
    assert (code, body["kind"], body["status"], body["code"], body["reason"]) == (
        404,
        "Status",
        "Failure",
        404,
        "NotFound",
    )


@pytest.mark.parametrize("token", ["", "wrong"])
def test_without_the_right_token_nothing_is_told(api: ApiDouble, token: str) -> None:
    api.create("Pod", pod("secret-name"))
    with Caller(api, token) as stranger:
        code, body = stranger.get("/api/v1/pods")
    assert (code, body["kind"], body["reason"]) == (401, "Status", "Unauthorized")
    assert "secret-name" not in json.dumps(body)


def test_a_replaced_token_is_in_the_file_and_the_old_one_is_refused(api: ApiDouble, caller: Caller) -> None:
    assert caller.get("/api/v1/pods")[0] == 200
    api.replace_token()
    assert caller.get("/api/v1/pods")[0] == 401
    with Caller(api) as fresh:
        assert fresh.get("/api/v1/pods")[0] == 200


def test_a_parameter_that_the_double_does_not_know_is_refused(caller: Caller) -> None:
    assert caller.get("/api/v1/pods", labelSelector="a=b")[0] == 400
    assert caller.get("/api/v1/pods", fieldSelector="spec.x=b")[0] == 400
    assert caller.get("/api/v1/pods", limit="many")[0] == 400
    assert caller.get("/api/v1/pods", resourceVersion="1", resourceVersionMatch="Exact")[0] == 400


def test_pages_show_one_version_whatever_happens_in_between(api: ApiDouble, caller: Caller) -> None:
    for name in "abc":
        api.create("Pod", pod(name))
    version = str(api.store.version)
    first = caller.get("/api/v1/pods", limit=2)[1]
    api.delete("Pod", "n", "c")
    second = caller.get("/api/v1/pods", limit=2, **{"continue": first["metadata"]["continue"]})[1]
    assert (item_names(first), item_names(second)) == (["a", "b"], ["c"])
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"] == version
    assert "continue" not in second["metadata"]


def test_a_page_after_a_compaction_is_gone(api: ApiDouble, caller: Caller) -> None:
    for name in "abc":
        api.create("Pod", pod(name))
    token = caller.get("/api/v1/pods", limit=2)[1]["metadata"]["continue"]
    api.compact()
    code, body = caller.get("/api/v1/pods", limit=2, **{"continue": token})
    assert (code, body["reason"]) == (410, "Expired")


def test_metadata_only_lists_and_watches_carry_nothing_else(api: ApiDouble, caller: Caller) -> None:
    api.create("Namespace", {"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes"]}})
    body = caller.get("/api/v1/namespaces", METADATA_LIST)[1]
    assert (body["kind"], body["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert [set(item) for item in body["items"]] == [{"kind", "apiVersion", "metadata"}]
    event = next(caller.lines("/api/v1/namespaces", METADATA))
    assert event["type"] == "ADDED"
    assert event["object"]["kind"] == "PartialObjectMetadata"
    assert set(event["object"]) == {"kind", "apiVersion", "metadata"}


def test_a_watch_shows_objects_that_begin_and_cease_to_match(api: ApiDouble, caller: Caller) -> None:
    version = api.store.version
    api.create("Pod", pod("a"))
    api.patch("Pod", "n", "a", {"spec": {"nodeName": "gpu-1"}})
    api.patch("Pod", "n", "a", {"status": {"phase": "Running"}})
    api.create("Pod", pod("elsewhere", nodeName="gpu-2"))
    api.patch("Pod", "n", "a", {"spec": {"nodeName": "gpu-2"}})
    watched = caller.lines("/api/v1/pods", fieldSelector="spec.nodeName=gpu-1", resourceVersion=version)
    lines = list(itertools.islice(watched, 3))
    assert [line["type"] for line in lines] == ["ADDED", "MODIFIED", "DELETED"]
    assert [line["object"]["spec"]["nodeName"] for line in lines] == ["gpu-1"] * 3
    assert lines[2]["object"]["metadata"]["resourceVersion"] == str(api.store.version)


def test_a_watch_without_a_version_begins_with_what_is_there(api: ApiDouble, caller: Caller) -> None:
    api.create("Pod", pod("a"))
    line = next(caller.lines("/api/v1/pods"))
    assert (line["type"], line["object"]["metadata"]["name"]) == ("ADDED", "a")


def test_a_deleted_object_is_shown_as_it_last_was_at_the_version_of_its_end(
    api: ApiDouble, caller: Caller
) -> None:
    api.create("Pod", pod("a", nodeName="gpu-1"))
    version = api.store.version
    api.delete("Pod", "n", "a")
    line = next(caller.lines("/api/v1/pods", resourceVersion=version))
    assert (line["type"], line["object"]["spec"]) == ("DELETED", {"nodeName": "gpu-1"})
    assert line["object"]["metadata"]["resourceVersion"] == str(api.store.version)


@pytest.mark.parametrize(("allowed", "types"), [("true", {"BOOKMARK"}), ("false", set())])
def test_bookmarks_come_only_when_they_are_allowed(
    api: ApiDouble, caller: Caller, allowed: str, types: set[str]
) -> None:
    api.bookmark_interval_s = 0.01
    version = api.store.version
    api.create("Node", {"metadata": {"name": "gpu-1"}})
    lines = list(
        caller.lines("/api/v1/pods", allowWatchBookmarks=allowed, resourceVersion=version, timeoutSeconds=1)
    )
    assert {line["type"] for line in lines} == types
    # A bookmark carries the version of everything seen, other kinds included, and no object.
    for line in lines:
        assert line["object"]["metadata"]["resourceVersion"] == str(api.store.version)
        assert set(line["object"]) == {"kind", "apiVersion", "metadata"}


def test_a_forgotten_version_is_gone_as_a_status_or_as_an_event(api: ApiDouble, caller: Caller) -> None:
    version = api.store.version
    api.create("Pod", pod("a"))
    api.compact()
    (line,) = caller.lines("/api/v1/pods", resourceVersion=version)
    assert (line["type"], line["object"]["code"], line["object"]["reason"]) == ("ERROR", 410, "Expired")
    api.gone_as = "status"
    code, body = caller.get("/api/v1/pods", watch="true", resourceVersion=version)
    assert (code, body["code"]) == (410, 410)


def test_a_watch_that_has_seen_everything_outlives_a_compaction(api: ApiDouble, caller: Caller) -> None:
    lines = caller.lines("/api/v1/pods", timeoutSeconds=20)
    api.create("Pod", pod("a"))
    assert next(lines)["object"]["metadata"]["name"] == "a"
    api.compact()
    api.create("Pod", pod("b"))
    assert next(lines)["object"]["metadata"]["name"] == "b"


def test_a_version_of_the_future_is_refused(api: ApiDouble, caller: Caller) -> None:
    future = api.store.version + 1
    for query in ({"watch": "true"}, {"resourceVersionMatch": "NotOlderThan"}):
        code, body = caller.get("/api/v1/pods", resourceVersion=future, **query)
        assert (code, body["reason"]) == (504, "Timeout")
        assert body["message"].startswith("Too large resource version")


def test_a_planned_refusal_says_when_to_come_back(api: ApiDouble, caller: Caller) -> None:
    api.fail_next(Answer(429, retry_after_s=3), resource="pods")
    assert caller.get("/api/v1/nodes")[0] == 200
    response = caller.open("/api/v1/pods")
    body = json.loads(response.read())
    assert (response.status, response.getheader("Retry-After")) == (429, "3")
    assert body["details"] == {"retryAfterSeconds": 3}
    assert caller.get("/api/v1/pods")[0] == 200


def test_a_fault_strikes_as_often_as_asked_after_those_it_spares(api: ApiDouble, caller: Caller) -> None:
    api.create("Pod", pod("a"))
    api.fail_next(EmptyList(), times=2, after=1)
    assert [len(caller.get("/api/v1/pods")[1]["items"]) for _ in range(4)] == [1, 0, 0, 1]
    api.fail_next(EmptyList(), times=None)
    assert caller.get("/api/v1/pods")[1]["items"] == []
    api.heal()
    assert len(caller.get("/api/v1/pods")[1]["items"]) == 1


def test_an_error_event_ends_a_watch_in_order(api: ApiDouble, caller: Caller) -> None:
    api.create("Pod", pod("a"))
    api.fail_next(ErrorEvent(429, retry_after_s=2))
    (line,) = caller.lines("/api/v1/pods", timeoutSeconds=20)
    assert (line["type"], line["object"]["code"]) == ("ERROR", 429)
    assert line["object"]["details"] == {"retryAfterSeconds": 2}


def test_a_cut_line_is_half_a_line_and_no_more(api: ApiDouble, caller: Caller) -> None:
    api.create("Pod", pod("a"))
    api.fail_next(CutLine())
    response = caller.open("/api/v1/pods", watch="true")
    with pytest.raises(http.client.IncompleteRead) as caught:
        response.read()
    assert caught.value.partial.startswith(b'{"type":"ADDED"')
    assert b"\n" not in caught.value.partial


def test_objects_and_address_outlive_an_outage(api: ApiDouble) -> None:
    api.create("Pod", pod("a"))
    url = api.url
    with Caller(api) as before:
        response = before.open("/api/v1/pods", watch="true")
        response.readline()
        api.stop()
        with pytest.raises((OSError, http.client.IncompleteRead)):
            response.read()
    with Caller(api) as during, pytest.raises(OSError, match="refused"):
        during.get("/api/v1/pods")
    api.start()
    assert api.url == url
    with Caller(api) as after:
        assert item_names(after.get("/api/v1/pods")[1]) == ["a"]


def test_the_log_counts_requests_by_verb_and_resource(api: ApiDouble, caller: Caller) -> None:
    api.create("Node", {"metadata": {"name": "gpu-1"}})
    caller.get("/api/v1/pods", limit=5)
    caller.get("/api/v1/nodes/gpu-1")
    list(caller.lines("/api/v1/pods", timeoutSeconds=1))
    assert [api.request_log.count(verb) for verb in ("list", "get", "watch")] == [1, 1, 1]
    assert api.request_log.count(resource="pods") == 2
    assert api.request_log.entries("list")[0].query == {"limit": "5"}
    api.request_log.clear()
    assert api.request_log.count() == 0
