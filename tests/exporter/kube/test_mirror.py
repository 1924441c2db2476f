from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.kube import mirror as mirror_module
from exporter.kube.errors import KubeError
from exporter.kube.feed import Confirmed, Connected, Happened, Listed, Message, Trouble
from exporter.kube.mirror import Mirror
from exporter.kube.objects import Meta, Namespace
from exporter.kube.resources import Unreadable
from exporter.kube.view import View


def named(uid: str, version: str = "1") -> Namespace:
    return Namespace(Meta(name=f"name-{uid}", uid=uid, resource_version=version))


def listed(*objects: Namespace, unreadable: tuple[Unreadable, ...] = ()) -> Listed[Namespace]:
    return Listed(objects, unreadable, "1")


def test_only_answers_move_the_confirmation() -> None:
    mirror: Mirror[Namespace] = Mirror()
    messages: list[Message[Namespace]] = [
        Trouble(KubeError("unreachable", "away")),
        listed(named("a")),
        Connected(),
        Happened("modified", named("a", "2"), "2"),
        Trouble(KubeError("cut", "broke off")),
        Confirmed("3"),
        Connected(),
    ]
    confirmed = []
    for now_ms, message in enumerate(messages, start=101):
        mirror.fold(message, now_ms)
        confirmed.append(mirror.view().confirmed_at_ms)
    assert confirmed == [None, 102, 102, 104, 104, 106, 106]


def test_a_failure_stands_until_the_server_answers() -> None:
    mirror: Mirror[Namespace] = Mirror()
    mirror.fold(Trouble(KubeError("unreachable", "away")), 1)
    assert mirror.failure is not None
    mirror.fold(Connected(), 2)
    assert mirror.failure is None


def test_an_event_with_a_known_version_is_no_change() -> None:
    mirror: Mirror[Namespace] = Mirror()
    assert mirror.fold(listed(named("a", "7")), 1)
    assert not mirror.fold(Happened("added", named("a", "7"), "7"), 2)
    assert not mirror.fold(Happened("deleted", named("never-seen"), "8"), 3)
    assert [change.kind for change in mirror.drain()] == ["added"]


def test_an_object_that_cannot_even_be_named_ends_no_other() -> None:
    mirror: Mirror[Namespace] = Mirror()
    mirror.fold(listed(named("a"), named("b")), 1)
    mirror.fold(listed(named("a"), unreadable=(Unreadable("", "no uid"),)), 2)
    assert set(mirror.view().objects) == {"a", "b"}
    mirror.fold(listed(named("a"), unreadable=(Unreadable("c", "no labels"),)), 3)
    assert set(mirror.view().objects) == {"a"}


def test_whoever_judges_an_empty_list_may_look_at_the_view() -> None:
    looked: list[View[Namespace]] = []

    def may_all_be_gone() -> bool:
        looked.append(mirror.view())
        return True

    mirror: Mirror[Namespace] = Mirror(may_all_be_gone)
    mirror.fold(listed(named("a")), 1)
    mirror.fold(listed(), 2)
    assert set(looked[-1].objects) == {"a"}


def test_an_empty_list_of_nothing_known_is_believed_at_once() -> None:
    mirror: Mirror[Namespace] = Mirror()
    assert mirror.fold(listed(), 5)
    assert mirror.view() == View(objects={}, listed=True, confirmed_at_ms=5, is_suspect=False)


def test_the_third_empty_list_ends_all_as_of_the_first() -> None:
    mirror: Mirror[Namespace] = Mirror()
    mirror.fold(listed(named("a")), 10)
    suspicions = []
    for now_ms in (20, 30, 40):
        mirror.fold(listed(), now_ms)
        view = mirror.view()
        suspicions.append((view.is_suspect, len(view.objects), view.confirmed_at_ms))
    assert suspicions == [(True, 1, 10), (True, 1, 10), (False, 0, 40)]
    assert [(change.kind, change.seen_at_ms) for change in mirror.drain()] == [
        ("added", 10),
        ("vanished", 20),
    ]


def test_changes_that_nobody_takes_are_bounded_and_the_view_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = 50
    monkeypatch.setattr(mirror_module, "MOST_CHANGES_KEPT", kept)
    mirror: Mirror[Namespace] = Mirror()
    mirror.fold(listed(*(named(str(number)) for number in range(kept + 5))), 1)
    changes = mirror.drain()
    assert len(changes) == kept
    assert changes[0].object.metadata.uid == "5"
    assert len(mirror.view().objects) == kept + 5
    assert mirror.fold(Happened("added", named("new"), "2"), 2)


UIDS = st.sampled_from("abcd")
OBJECTS = st.builds(named, UIDS, st.sampled_from("123"))
LISTS = st.lists(OBJECTS, min_size=1, unique_by=lambda found: found.metadata.uid)


@given(st.lists(LISTS, min_size=1))
def test_after_a_list_the_view_is_that_list(lists: list[list[Namespace]]) -> None:
    mirror: Mirror[Namespace] = Mirror()
    for now_ms, objects in enumerate(lists):
        before = dict(mirror.view().objects)
        mirror.fold(listed(*objects), now_ms)
        after = dict(mirror.view().objects)
        assert after == {found.metadata.uid: found for found in objects}
        changed = {change.object.metadata.uid: change.kind for change in mirror.drain()}
        assert changed == {
            uid: "vanished" if uid not in after else "added" if uid not in before else "modified"
            for uid in before.keys() | after.keys()
            if before.get(uid) != after.get(uid)
        }
