"""The scenario's deeds: order, exact texts and times, as a real cluster with HAMi would show them."""

from __future__ import annotations

from fractions import Fraction

from lab.scenarios.demo import demo
from lab.scenarios.manifests import Writer
from lab.scenarios.plan import LOCK_TIMEOUT_S, Replay
from lab.scenarios.timeline import Deed, timeline

START_S = 1_790_000_000  # 2026-09-21T14:13:20Z


def deeds(code: str) -> tuple[Deed, ...]:
    return timeline(demo(ends=True).cluster(code), START_S)


def locks(code: str) -> list[str | None]:
    values = [d.manifest["metadata"]["annotations"] for d in deeds(code) if d.kind == "Node"]
    return [value["hami.io/mutex.lock"] for value in values]


def test_fifteen_minutes_are_replayed_in_twenty_four_seconds_and_what_comes_later_is_not_moved() -> None:
    replay = Replay(before_s=900, within_s=24)

    assert [replay.real_s(own_s) for own_s in (-900, -450, 0, 40)] == [0, 12, 24, 40]


def test_deeds_are_in_the_order_in_which_they_are_done_and_each_pod_is_created_first() -> None:
    for code in ("lab-a", "lab-b", "lab-c"):
        done = deeds(code)
        assert [d.at_s for d in done] == sorted(d.at_s for d in done)
        known: set[str] = set()
        for deed in done:
            if deed.kind == "Pod" and deed.name is None:
                known.add(deed.manifest["metadata"]["name"])
            elif deed.kind == "Pod":
                assert deed.name in known


def test_the_lock_of_cluster_a_is_taken_three_times_and_once_removed_while_younger_than_the_timeout() -> None:
    assert locks("lab-a") == [
        "2026-09-21T13:58:22Z,team,share-a",
        "2026-09-21T14:03:30Z,team,share-b",
        "2026-09-21T14:10:00Z,team,share-c",
        None,
    ]
    bound = [pod.bound_s for pod in demo(ends=True).cluster("lab-a").pods if pod.holds_slice]
    assert bound == [-898, -590, -200]
    # Ages at the end: 308 and 390 s when taken over, 240 s when removed at second 40.
    ages = [-590 - -898, -200 - -590, 40 - -200]
    assert [age > LOCK_TIMEOUT_S for age in ages] == [True, True, False]


def test_hamis_own_device_plugin_frees_every_lock_before_the_next_pod_is_bound() -> None:
    values = locks("lab-c")

    assert len(values) == 22
    assert all(value is not None for value in values[::2])
    assert values[1::2] == [None] * 11


def test_event_texts_are_hamis() -> None:
    texts = [d.manifest["message"] for d in deeds("lab-a") if d.kind == "Event"]

    assert "1 nodes CardInsufficientMemory(gpu-node)" in texts
    assert "1 nodes CardInsufficientCore(gpu-node)" in texts
    assert "no available node, 1 nodes do not meet" in texts
    assert "node gpu-node has been locked within 5m0s" in texts
    assert "Successfully binding node [gpu-node] to team/share-a" in texts
    assert "find fit node(gpu-node), 0 nodes not fit, 1 nodes fit(gpu-node:10.00)" in texts


def test_a_pod_on_a_mock_node_runs_while_still_allocating() -> None:
    patches = [d.manifest for d in deeds("lab-a") if d.name == "share-a"]
    phases = [patch["status"]["phase"] for patch in patches if "phase" in patch.get("status", {})]
    bind = [
        patch["metadata"]["annotations"]["hami.io/bind-phase"]
        for patch in patches
        if "hami.io/bind-phase" in patch.get("metadata", {}).get("annotations", {})
    ]

    assert phases == ["Running", "Succeeded"]
    assert bind == ["allocating"]


def test_the_bypassing_pod_asks_for_a_gpu_and_carries_nothing_of_hami() -> None:
    cluster = demo(ends=True).cluster("lab-a")
    manifest = Writer(cluster, START_S).pod(cluster.pod("bypass"))

    assert manifest["spec"]["schedulerName"] == "default-scheduler"
    assert manifest["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert not any("hami.io" in str(d.manifest) for d in deeds("lab-a") if d.name == "bypass")


def test_register_annotations_take_both_forms() -> None:
    scenario = demo(ends=True)
    string = Writer(scenario.cluster("lab-b"), START_S).register()
    by_hand = Writer(scenario.cluster("lab-a"), START_S).register()

    assert string == (
        "GPU-0a100000-0000-4000-8000-000000000001,10,24576,100,NVIDIA L4,0,true,0,hami-core:"
        "GPU-00140000-0000-4000-8000-000000000002,10,24576,100,NVIDIA L4,0,true,1,hami-core:"
    )
    assert by_hand.startswith("[\n")
    assert by_hand.endswith("\n")


def test_names_of_cluster_a_and_b_are_equal_and_only_the_namespace_label_tells_the_tenants_apart() -> None:
    a, b = (demo(ends=True).cluster(code) for code in ("lab-a", "lab-b"))

    assert (a.node, a.namespace) == (b.node, b.namespace)
    assert {pod.name for pod in b.pods} <= {pod.name for pod in a.pods}
    assert a.cards[0].uuid == b.cards[0].uuid
    assert dict(a.namespace_labels) == {"capsule.clastix.io/tenant": "tenant-a"}
    assert dict(b.namespace_labels) == {"capsule.clastix.io/tenant": "tenant-b"}


def test_a_slice_blocks_the_larger_of_its_memory_and_its_cores() -> None:
    scenario = demo(ends=True)
    a, b, c = (scenario.cluster(code) for code in ("lab-a", "lab-b", "lab-c"))

    assert a.share(a.pod("share-a")) == Fraction(30, 100)  # 20,000 of 81,920 MiB is 0.244
    assert b.share(b.pod("share-a")) == Fraction(50, 100)  # 8,000 of 24,576 MiB is 0.326
    assert c.share(c.pod("idle-1")) == Fraction(4_000, 15_360)
    assert a.share(a.pod("bypass")) == 0


def test_the_ten_slots_of_the_t4_are_taken_and_its_memory_suffices() -> None:
    cluster = demo(ends=True).cluster("lab-c")
    at_the_end = [pod for pod in cluster.pods if pod.holds_slice and pod.name != "refused"]

    assert len(at_the_end) == cluster.cards[0].slots
    assert sum(pod.memory_mib for pod in at_the_end) <= 15_360
    assert sum(pod.memory_mib for pod in at_the_end) + cluster.pod("eleventh").memory_mib <= 15_360


def test_without_an_end_the_pods_go_on_and_with_one_every_running_pod_completes() -> None:
    going_on, ending = demo(ends=False), demo(ends=True)

    assert going_on.cluster("lab-c").pod("held").ended_s is None
    running = [pod for cluster in ending.clusters for pod in cluster.pods if pod.started_s is not None]
    assert all(pod.ended_s is not None for pod in running)
    assert ending.cluster("lab-c").pod("refused").ended_s == 16
