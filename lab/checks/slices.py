"""The cases that metric pages decide: allocation, refusals, locks, limits and duty cycles.

Expected figures are plain arithmetic on the scenario's data; each case is named as in HAMi's labs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction

from contract.units import MIB
from lab.checks.check import FLOAT_NOISE, Case, Check
from lab.checks.evidence import Evidence
from lab.pages import Page
from lab.scenarios.plan import LOCK_TIMEOUT_S, ClusterPlan, PodPlan

MEAN_WITHIN = 0.01
"""How far the mean from the counter may be from the true one."""

SETTLED_AFTER_S = 0.15
"""A page younger than this may have been read before the second's sample was there."""


def card_is_shared(evidence: Evidence, case: Case, code: str) -> Iterator[Check]:
    """Memory, cores and slots allocated on a cluster's first card, and what a mock node may not claim."""
    cluster = evidence.scenario.cluster(code)
    card, target = cluster.cards[0], f"node {code}"
    ends_s = evidence.scenario.ends_s
    pods = [
        pod
        for pod in cluster.pods
        if pod.holds_slice and pod.card == card.uuid and pod.ended_s in {None, ends_s}
    ]

    def measured(name: str) -> float | None:
        return evidence.steady_value(target, name, device_uuid=card.uuid)

    memory = sum(pod.memory_mib for pod in pods) * MIB
    cores = Fraction(sum(pod.core_percent for pod in pods), 100)
    name = card.nvml_model
    yield case.equal(f"{name}: memory allocated", memory, measured("device_memory_allocated_bytes"), "bytes")
    yield case.near(f"{name}: cores allocated", cores, measured("device_core_allocated_ratio"), FLOAT_NOISE)
    yield case.equal(
        f"{name}: slots",
        f"{len(pods)} of {card.slots}",
        _slots(measured("device_slots_allocated"), measured("device_slots")),
    )
    yield from (
        case.equal(f"{other.nvml_model} {other.index}: memory allocated", 0, evidence.steady_value(
            target, "device_memory_allocated_bytes", device_uuid=other.uuid), "bytes")
        for other in cluster.cards[1:]
    )  # fmt: skip
    if cluster.is_mock:
        yield from _mock_node(evidence, case, target)


def _mock_node(evidence: Evidence, case: Case, target: str) -> Iterator[Check]:
    """Without NVML and caches: ready, no `used` series, nothing unreadable."""
    page = evidence.steady[target]
    used = [name for name in page.series if "_used_" in name]
    yield case.equal("used series on a mock node", "none", ", ".join(used) or "none")
    yield case.equal("mock node is ready", "yes", "yes" if evidence.ready.get(target) else "no")
    errors = sum(evidence.steady[of].total("annotation_errors_total") for of in _both(target))
    yield case.equal("annotations that could not be read", 0, errors)


def _both(target: str) -> tuple[str, str]:
    code = target.partition(" ")[2]
    return f"node {code}", f"cluster {code}"


def _slots(allocated: float | None, registered: float | None) -> str | None:
    if allocated is None or registered is None:
        return None
    return f"{allocated:g} of {registered:g}"


def pod_is_refused(evidence: Evidence, case: Case, code: str, pod_name: str) -> Iterator[Check]:
    """A pod that HAMi's filter refuses: pending, by its reason."""
    cluster = evidence.scenario.cluster(code)
    pod = cluster.pod(pod_name)
    labels = {"namespace": cluster.namespace, "tenant": cluster.tenant, "reason": str(pod.refused_for)}
    target = f"cluster {code}"
    alike = [other for other in cluster.pods if other.refused_for == pod.refused_for]
    yield case.equal(
        f"pods pending for {pod.refused_for}",
        len(alike),
        evidence.steady_value(target, "pending_pods", **labels),
    )
    memory = sum(other.memory_mib for other in alike) * MIB
    yield case.equal(
        "memory they ask for",
        memory,
        evidence.steady_value(target, "pending_memory_bytes", **labels),
        "bytes",
    )


def never_fits(evidence: Evidence, case: Case, code: str) -> Iterator[Check]:
    """Pods larger than any card of the cluster."""
    cluster = evidence.scenario.cluster(code)
    largest = max(card.memory_mib for card in cluster.cards)
    never = [pod for pod in cluster.pods if pod.memory_mib > largest]
    found = evidence.steady[f"cluster {code}"].total("unschedulable_pods", tenant=cluster.tenant)
    yield case.equal("pods that can never fit", len(never), found)


def locks(evidence: Evidence, case: Case, code: str) -> Iterator[Check]:
    """What became of each lock, who waited, and whether one is left."""
    cluster = evidence.scenario.cluster(code)
    target = f"cluster {code}"
    for outcome, expected in expected_outcomes(cluster).items():
        measured = evidence.steady_value(
            target, "node_lock_transitions_total", node=cluster.node, outcome=outcome
        )
        yield case.equal(f"{code}: locks {outcome}", expected, measured)
    waiters = 1 if any(pod.lock_refused_s is not None for pod in cluster.pods) else 0
    most = evidence.extreme(max, target, "node_lock_waiting_pods", node=cluster.node)
    yield case.equal(f"{code}: most pods waiting for the lock", waiters, most)
    is_held = cluster.is_mock and cluster.lock_removed_s is None
    yield case.equal(
        f"{code}: lock held at the end",
        int(is_held),
        evidence.steady_value(target, "node_lock_held", node=cluster.node),
    )


def expected_outcomes(cluster: ClusterPlan) -> dict[str, int]:
    """How often each outcome must be counted, from the plan's own times."""
    taken_s = sorted(pod.bound_s for pod in cluster.pods if pod.holds_slice and pod.bound_s is not None)
    if not cluster.is_mock:
        return {"acquired": len(taken_s), "released": len(taken_s), "expired": 0, "dangling": 0, "manual": 0}
    expired = sum(later - earlier > LOCK_TIMEOUT_S for earlier, later in itertools.pairwise(taken_s))
    removed_s = cluster.lock_removed_s
    is_manual = removed_s is not None and removed_s - taken_s[-1] < LOCK_TIMEOUT_S
    return {
        "acquired": len(taken_s),
        "released": 0,
        "expired": expired,
        "dangling": 0,
        "manual": int(is_manual),
    }


def limit_is_seen(evidence: Evidence, case: Case, code: str, pod_name: str) -> Iterator[Check]:
    """The limit that HAMi-core enforces, read from the region."""
    pod = evidence.scenario.cluster(code).pod(pod_name)
    limit = evidence.steady_value(f"node {code}", "slice_memory_limit_bytes", pod=pod.name)
    yield case.equal(f"{pod.name}: enforced limit", pod.memory_mib * MIB, limit, "bytes")


def refusal_is_contained(evidence: Evidence, case: Case, code: str, pod_name: str) -> Iterator[Check]:
    """The refused pod's peak, and neighbours whose memory never moved while it lived."""
    cluster = evidence.scenario.cluster(code)
    pod, target = cluster.pod(pod_name), f"node {code}"
    assert pod.work is not None
    peak = evidence.extreme(max, target, "slice_memory_peak_bytes", pod=pod.name)
    yield case.equal(f"{pod.name}: peak", pod.work.peak_bytes, peak, "bytes")
    limit_mib, chunk_mib = pod.memory_mib, pod.work.allocations[-1].mib
    yield case.equal(
        f"{pod.name}: one more chunk would pass the limit",
        "yes",
        "yes" if peak is not None and peak + chunk_mib * MIB > limit_mib * MIB else "no",
    )
    over = evidence.extreme(max, target, "slice_over_memory_limit_seconds_total", pod=pod.name)
    yield case.equal(f"{pod.name}: seconds above its limit", 0, over, "s")
    for neighbour in _neighbours(cluster, pod):
        assert neighbour.work is not None
        own = neighbour.work.peak_bytes
        for word, pick in (("least", min), ("most", max)):
            used = _during(evidence, pick, target, pod, neighbour)
            yield case.equal(f"{neighbour.name}: {word} memory meanwhile", own, used, "bytes")


def _neighbours(cluster: ClusterPlan, pod: PodPlan) -> list[PodPlan]:
    """Pods whose process was there before the pod's and outlived it."""
    assert pod.work is not None
    begins_s = pod.work.begins_s
    return [
        other
        for other in cluster.pods
        if other is not pod and other.work is not None and other.work.begins_s < begins_s
    ]


def _during(
    evidence: Evidence,
    pick: Callable[[list[float]], float],
    target: str,
    pod: PodPlan,
    neighbour: PodPlan,
) -> float | None:
    """A neighbour's memory over the pages of the time in which the pod's process lived."""
    work = pod.work
    assert work is not None
    assert work.ends_s is not None
    from_s, to_s = evidence.start_s + work.begins_s + 1, evidence.start_s + work.ends_s
    values = [
        value
        for page, value in evidence.history(target, "slice_memory_used_bytes", pod=neighbour.name)
        if from_s <= _taken_s(page) < to_s
    ]
    return pick(values) if values else None


def _taken_s(page: Page) -> float:
    return page.value("snapshot_timestamp_seconds") or page.at_s


def share_is_held(evidence: Evidence, case: Case, code: str, pod_name: str) -> Iterator[Check]:
    """The mean from the counter, while the gauge swings between the extremes of the duty cycle."""
    pod, target = evidence.scenario.cluster(code).pod(pod_name), f"node {code}"
    assert pod.work is not None
    samples = pod.work.sm_percent
    mean = Fraction(sum(samples), 100 * len(samples))
    measured = mean_of_whole_cycles(evidence, target, pod)
    yield case.near(f"{pod.name}: mean SM by its counter", mean, measured, MEAN_WITHIN)
    for word, pick in (("lowest", min), ("highest", max)):
        gauge = evidence.extreme(pick, target, "slice_sm_utilization_ratio", pod=pod.name, source="nvml")
        yield case.near(f"{pod.name}: {word} SM by its gauge", pick(samples) / 100, gauge, FLOAT_NOISE)
    limit = evidence.steady_value(target, "slice_core_limit_ratio", pod=pod.name)
    yield case.near(f"{pod.name}: core limit", pod.core_percent / 100, limit, FLOAT_NOISE)
    policies = [labels["policy"] for labels, _ in evidence.steady[target].find("slice_info", pod=pod.name)]
    yield case.equal(f"{pod.name}: policy", pod.policy, ", ".join(policies) or None)


def mean_of_whole_cycles(evidence: Evidence, target: str, pod: PodPlan) -> float | None:
    """SM seconds over as many whole cycles as the pages hold in one piece; None without one cycle.

    A page taken between two whole seconds holds the samples of every second that is over, so two pages
    that are whole cycles apart differ by exactly those cycles. A stretch ends where the exporter itself
    says that time could not be measured (it was killed, say).
    """
    assert pod.work is not None
    cycle_s = len(pod.work.sm_percent)
    begins_s = evidence.start_s + pod.work.begins_s
    ends_s = None if pod.work.ends_s is None else evidence.start_s + pod.work.ends_s
    known: dict[int, tuple[float, float]] = {}
    for page, value in evidence.history(target, "slice_sm_seconds_total", pod=pod.name):
        second, fraction = divmod(_taken_s(page) - begins_s, 1)
        is_within = second >= 0 and (ends_s is None or begins_s + second <= ends_s)
        if is_within and fraction >= SETTLED_AFTER_S:
            known[int(second)] = value, page.total("slice_unknown_seconds_total", pod=pod.name)
    best_cycles, mean = 0, None
    for (first, (sm_begin, unknown_begin)), (last, (sm_end, unknown_end)) in itertools.combinations(
        sorted(known.items()), 2
    ):
        cycles, rest = divmod(last - first, cycle_s)
        if rest == 0 and unknown_begin == unknown_end and cycles > best_cycles:
            best_cycles, mean = cycles, (sm_end - sm_begin) / (last - first)
    return mean


def bypass_is_seen(evidence: Evidence, case: Case, code: str) -> Iterator[Check]:
    """Pods that asked for a GPU and never met HAMi's scheduler."""
    cluster = evidence.scenario.cluster(code)
    past = [pod for pod in cluster.pods if pod.bypasses_hami]
    labels = {"namespace": cluster.namespace, "tenant": cluster.tenant, "why": "scheduler"}
    yield case.equal(
        "pods past HAMi's scheduler",
        len(past),
        evidence.steady_value(f"cluster {code}", "bypassing_pods", **labels),
    )
