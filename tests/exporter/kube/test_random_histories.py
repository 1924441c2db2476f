"""After any sequence of changes and faults the view equals the store, and the changes add up to it."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.kube.client import ApiClient
from exporter.kube.feed import Timing
from exporter.kube.objects import Pod
from exporter.kube.resources import pods
from exporter.kube.view import Change
from exporter.kube.watch import ObjectWatch
from lab.kube.double import ApiDouble
from lab.kube.faults import Answer, CutLine, Drop, EmptyList, ErrorEvent, Garbage, Pieces, Silence
from lab.kube.kinds import BY_NAME, Selection

TIMING = Timing(
    silence_s=0.5,
    watch_min_s=1.0,
    watch_max_s=2.0,
    list_silence_s=0.5,
    first_wait_s=0.001,
    ceiling_s=0.02,
    doubt_s=0.002,
    page_objects=2,
)
NODE = "gpu-1"
FAULTS = st.sampled_from(
    [
        CutLine(),
        Drop(),
        Silence(),
        EmptyList(),
        Garbage(),
        ErrorEvent(410),
        ErrorEvent(500),
        Answer(410),
        Answer(429, retry_after_s=0),
        Answer(504),
        Pieces(size_bytes=11),
    ]
)
POD_NAMES = st.sampled_from(["a", "b", "c", "d", "e"])

Step = tuple[str, object, object]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("apply"), POD_NAMES, st.sampled_from([NODE, "gpu-2", None])),
        st.tuples(st.just("label"), POD_NAMES, st.integers(0, 3)),
        st.tuples(st.just("delete"), POD_NAMES, st.none()),
        st.tuples(st.just("fail"), FAULTS, st.sampled_from(["list", "watch", "event"])),
        st.tuples(st.just("pause"), st.integers(1, 20), st.none()),
        st.tuples(st.sampled_from(["cut", "compact", "outage"]), st.none(), st.none()),
    ),
    min_size=3,
    max_size=30,
)


def take(api: ApiDouble, step: Step, pause: threading.Event) -> None:
    """One step; what makes no sense at the moment (deleting what is not there) does nothing."""
    match step:
        case ("apply", str(name), node):
            spec = {} if node is None else {"nodeName": node}
            api.apply("Pod", {"metadata": {"name": name, "namespace": "n"}, "spec": spec})
        case ("label", str(name), value) if api.store.get("Pod", "n", name):
            api.patch("Pod", "n", name, {"metadata": {"labels": {"value": str(value)}}})
        case ("delete", str(name), _) if api.store.get("Pod", "n", name):
            api.delete("Pod", "n", name)
        case ("fail", fault, verb):
            api.fail_next(fault, verb=verb)  # type: ignore[arg-type]
        case ("pause", int(milliseconds), _):
            pause.wait(milliseconds / 1000)
        case ("cut", _, _):
            api.cut_connections()
        case ("compact", _, _):
            api.compact()
        case ("outage", _, _):
            api.stop()
            api.start()


def stored(api: ApiDouble) -> dict[str, str]:
    selection = Selection(BY_NAME["Pod"], requirements=(("spec.nodeName", NODE, True),))
    _, found = api.store.select(selection)
    return {pod["metadata"]["uid"]: pod["metadata"]["labels"]["value"] for pod in found if has_label(pod)} | {
        pod["metadata"]["uid"]: "" for pod in found if not has_label(pod)
    }


def has_label(pod: dict[str, dict[str, object]]) -> bool:
    return "labels" in pod["metadata"]


def seen(watch: ObjectWatch[Pod]) -> dict[str, str]:
    return {uid: pod.metadata.labels.get("value", "") for uid, pod in watch.view().objects.items()}


def replayed(changes: list[Change[Pod]]) -> dict[str, str]:
    """The changes taken one by one; each must make sense after those before it."""
    known: dict[str, str] = {}
    versions: dict[str, str] = {}
    for change in changes:
        metadata = change.object.metadata
        if change.kind == "added":
            assert metadata.uid not in known
        else:
            assert metadata.uid in known
        if change.kind in {"deleted", "vanished"}:
            del known[metadata.uid]
        else:
            assert versions.get(metadata.uid) != metadata.resource_version
            known[metadata.uid] = metadata.labels.get("value", "")
            versions[metadata.uid] = metadata.resource_version
    return known


def await_equal(condition: Callable[[], bool], pause: threading.Event) -> bool:
    return any(condition() or pause.wait(0.002) for _ in range(10_000)) and condition()


@settings(max_examples=20, deadline=None)
@given(STEPS, st.integers(0, 2**32), st.sampled_from(["status", "event"]))
def test_after_any_changes_and_faults_the_view_equals_the_store(
    steps: list[Step], seed: int, gone_as: str
) -> None:
    pause = threading.Event()
    with (
        tempfile.TemporaryDirectory() as folder,
        ApiDouble(Path(folder), bookmark_interval_s=0.05) as api,
    ):
        api.gone_as = "status" if gone_as == "status" else "event"
        watch = ObjectWatch(ApiClient(api.access), pods(NODE), timing=TIMING, random=Random(seed))
        changes: list[Change[Pod]] = []
        watch.start()
        try:
            for step in steps:
                take(api, step, pause)
                changes += watch.drain()
            api.heal()
            assert await_equal(lambda: watch.view().listed and seen(watch) == stored(api), pause)
        finally:
            watch.stop()
        changes += watch.drain()
        assert replayed(changes) == stored(api)
