from __future__ import annotations

import datetime as dt

import pytest

from lab.kube.kinds import BY_NAME, Selection
from lab.kube.store import ExpiredError, Store, StoreError

NOON = dt.datetime(2026, 10, 1, 12, 0, tzinfo=dt.UTC)
POD = {"metadata": {"name": "a", "namespace": "n"}}


@pytest.fixture
def store() -> Store:
    return Store(lambda: NOON)


def test_a_new_object_gets_an_identity_a_time_and_a_version(store: Store) -> None:
    metadata = store.create("Pod", POD)["metadata"]
    assert metadata["creationTimestamp"] == "2026-10-01T12:00:00Z"
    assert len(metadata["uid"]) == 36
    assert int(metadata["resourceVersion"]) == store.version


def test_what_a_scenario_gives_is_kept(store: Store) -> None:
    given = {"uid": "u", "creationTimestamp": "2026-10-01T11:45:00Z", "resourceVersion": "777000"}
    created = store.create("Pod", {"metadata": {"name": "a", "namespace": "n"} | given})
    assert created["metadata"] == {"name": "a", "namespace": "n"} | given
    assert store.version == 777_000


def test_versions_grow_with_each_change_of_any_kind(store: Store) -> None:
    versions = [
        store.create("Pod", POD)["metadata"]["resourceVersion"],
        store.create("Node", {"metadata": {"name": "gpu-1"}})["metadata"]["resourceVersion"],
        store.patch("Pod", "n", "a", {"status": {"phase": "Running"}})["metadata"]["resourceVersion"],
    ]
    store.delete("Pod", "n", "a")
    numbers = [*map(int, versions), store.version]
    assert numbers == sorted(set(numbers))


def test_a_patch_that_changes_nothing_is_no_change(store: Store) -> None:
    store.create("Pod", POD)
    before = store.version
    store.patch("Pod", "n", "a", {"metadata": {"labels": None}})
    assert store.version == before


def test_replacing_an_object_keeps_who_it_is(store: Store) -> None:
    first = store.create("Pod", POD)
    second = store.apply("Pod", POD | {"spec": {"nodeName": "gpu-1"}})
    assert second["metadata"]["uid"] == first["metadata"]["uid"]
    assert second["spec"] == {"nodeName": "gpu-1"}
    assert second["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]


def test_callers_cannot_change_what_is_stored(store: Store) -> None:
    given = {"metadata": {"name": "a", "namespace": "n", "labels": {"k": "v"}}}
    returned = store.create("Pod", given)
    given["metadata"]["labels"] = {}
    returned["metadata"]["labels"]["k"] = "changed"
    found = store.get("Pod", "n", "a")
    assert found is not None
    assert found["metadata"]["labels"] == {"k": "v"}


def test_the_history_after_a_version_holds_each_later_step_once(store: Store) -> None:
    start = store.version
    store.create("Pod", POD)
    store.patch("Pod", "n", "a", {"spec": {"nodeName": "gpu-1"}})
    middle = store.version
    store.delete("Pod", "n", "a")
    steps = store.steps_after(start)
    assert [(step.before is None, step.after is None) for step in steps] == [
        (True, False),
        (False, False),
        (False, True),
    ]
    assert store.steps_after(middle) == steps[2:]
    assert store.steps_after(store.version) == []


def test_a_forgotten_version_is_expired_and_the_present_one_is_not(store: Store) -> None:
    start = store.version
    store.create("Pod", POD)
    store.compact()
    with pytest.raises(ExpiredError):
        store.steps_after(start)
    assert store.steps_after(store.version) == []


def test_objects_are_listed_by_namespace_and_name(store: Store) -> None:
    for namespace, name in [("z", "a"), ("a", "z"), ("a", "b")]:
        store.create("Pod", {"metadata": {"name": name, "namespace": namespace}})
    _, found = store.select(Selection(BY_NAME["Pod"]))
    assert [pod["metadata"]["name"] for pod in found] == ["b", "z", "a"]


@pytest.mark.parametrize(
    ("kind", "metadata"),
    [
        ("Secret", {"name": "a", "namespace": "n"}),
        ("Pod", {"namespace": "n"}),
        ("Pod", {"name": "a"}),
        ("Node", {"name": "a", "namespace": "n"}),
    ],
)
def test_an_object_that_no_api_server_takes_is_refused(
    store: Store, kind: str, metadata: dict[str, str]
) -> None:
    with pytest.raises(StoreError):
        store.create(kind, {"metadata": metadata})


def test_creating_twice_and_changing_what_is_not_there_are_errors(store: Store) -> None:
    store.create("Pod", POD)
    with pytest.raises(StoreError, match="exists"):
        store.create("Pod", POD)
    with pytest.raises(StoreError, match="there is no Pod n/b"):
        store.patch("Pod", "n", "b", {})
    with pytest.raises(StoreError, match="there is no Pod n/b"):
        store.delete("Pod", "n", "b")


def test_the_history_is_bounded_and_says_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.kube.store.LONGEST_HISTORY", 4)
    start = store.version
    for number in range(5):
        store.create("Node", {"metadata": {"name": f"gpu-{number}"}})
    with pytest.raises(ExpiredError):
        store.steps_after(start)
    assert len(store.steps_after(start + 2)) == 3


def test_a_patch_of_the_status_alone_does_not_renumber_what_watchers_have_yet_to_read() -> None:
    store = Store(lambda: NOON)
    store.create("Pod", {"metadata": {"name": "a", "namespace": "ns"}, "status": {"phase": "Pending"}})
    seen = store.version
    for phase in ("Running", "Succeeded"):
        store.patch("Pod", "ns", "a", {"status": {"phase": phase}})
    shown = [step.after for step in store.steps_after(seen)]
    versions = [each["metadata"]["resourceVersion"] for each in shown if each is not None]
    assert versions == [str(seen + 1), str(seen + 2)]
