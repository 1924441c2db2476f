"""The scenes: what may happen to a cluster that shares its cards, and what must be said about it.

One node with one or two cards; each team is a namespace and a tenant of that name. Times are in minutes of
the rehearsal's tempo. Expected labels and texts are worked out by hand from the plans and the shipped
thresholds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lab.rehearsal.scene import ACCOUNT, CLUSTER, HOME, NODE, Expected, Scene
from lab.scenarios.plan import (
    DEFAULT_SCHEDULER,
    Allocation,
    Card,
    ClusterPlan,
    GpuWork,
    Kill,
    LockNote,
    PodPlan,
    Replay,
    Scenario,
)

CARD = Card(
    uuid="GPU-5c3e0000-0000-4000-8000-000000000001",
    registered_model="NVIDIA-Tesla T4",
    nvml_model="Tesla T4",
    memory_mib=16_000,
    driver_reserved_mib=256,
    card_hour_price="240.00",
    idle_mw=17_000,
    busy_mw=53_000,
    sample_ms=250,
)
SECOND_CARD = replace(CARD, uuid="GPU-5c3e0000-0000-4000-8000-000000000002", index=1)
CONTEXT_MIB = 100
TEAM, OTHER_TEAM = "vision", "speech"
NEVER_MINUTES = 100_000
HELD_TO_THIRTY = (32, 82, 0, 84, 0, 60, 0, 57, 11, 25, 0, 9)
"""What a slice that its limit holds to 30 % reads, sample by sample; the mean is 30."""


def _cluster(pods: Sequence[PodPlan], cards: Sequence[Card] = (CARD,)) -> ClusterPlan:
    return ClusterPlan(
        code=CLUSTER,
        title="one node, shared cards",
        account=ACCOUNT,
        tenant=TEAM,
        node=NODE,
        namespace=TEAM,
        cards=tuple(cards),
        pods=tuple(pods),
        is_mock=False,
    )


def _scenario(name: str, cluster: ClusterPlan) -> Scenario:
    return Scenario(name, (cluster,), "EUR", "UTC", None)


def _slice(  # noqa: PLR0917 - a table reads better in columns
    name: str,
    at_s: int,
    cores: int,
    sm: Sequence[int] = (),
    memory_mib: int = 4_000,
    data_mib: int = 1_000,
    namespace: str = TEAM,
    card: Card = CARD,
) -> PodPlan:
    """A pod that computes for as long as anybody looks."""
    work = GpuWork(at_s + 3, CONTEXT_MIB, allocations=(Allocation(0, data_mib),), sm_percent=tuple(sm))
    return PodPlan(
        name,
        memory_mib=memory_mib,
        core_percent=cores,
        card=card.uuid,
        created_s=at_s,
        filtered_s=at_s,
        bound_s=at_s + 1,
        started_s=at_s + 2,
        work=work,
        namespace=namespace,
    )


def _two_at_ease() -> tuple[PodPlan, PodPlan]:
    """Two teams on one card, both below what they reserved."""
    return _slice("train", 1, 30, (20,)), _slice("serve", 2, 40, (10,), namespace=OTHER_TEAM)


def _labels(alert: str, severity: str, **labels: str) -> Mapping[str, str]:
    return {"alertname": f"Slicemeter{alert}", "severity": severity, **labels}


def _of_slice(alert: str, severity: str, pod: str, namespace: str = TEAM) -> Mapping[str, str]:
    return _labels(
        alert,
        severity,
        node=NODE,
        device_uuid=CARD.uuid,
        namespace=namespace,
        pod=pod,
        container="main",
        tenant=namespace,
    )


# -- nothing to tell ---------------------------------------------------------------------------------


def _quiet(_minute_s: int) -> Scenario:
    return _scenario("quiet", _cluster(_two_at_ease()))


def _busy(minute_s: int) -> Scenario:
    """A full card on which nobody misses anything: one held to its limit, one at its share, one on the rest.

    Memory is used up to 0.94 of a limit, and a pod has waited for ten minutes at the end.
    """
    waiting = PodPlan(
        "large",
        memory_mib=8_000,
        core_percent=60,
        created_s=55 * minute_s,
        refused_for="CardInsufficientCore",
    )
    pods = (
        _slice("held", 1, 30, HELD_TO_THIRTY, data_mib=3_660),
        _slice("steady", 2, 40, (40,), namespace=OTHER_TEAM),
        _slice("rest", 3, 0, (30,)),
        waiting,
    )
    return _scenario("busy", _cluster(pods))


# -- neighbours --------------------------------------------------------------------------------------


def _noisy(_minute_s: int) -> Scenario:
    """72 % with 30 reserved, beside 28 % with 50 reserved, on a card that is full."""
    pods = (
        _slice("train", 1, 30, (72,)),
        _slice("serve", 2, 50, (28,), namespace=OTHER_TEAM),
    )
    return _scenario("noisy-neighbour", _cluster(pods))


NOISY = Expected(
    _of_slice("NoisyNeighbour", "warning", "train"),
    f"{TEAM}/train (main, of {TEAM}) uses …% of card {CARD.uuid} on {NODE} beyond its entitlement. "
    f"Starved: {OTHER_TEAM}/serve (main) misses …% of its share;",
    f"{TEAM}/train (main) uses …% of its card beyond its entitlement, while another slice starves.",
)


# -- locks -------------------------------------------------------------------------------------------


def _storm(minute_s: int) -> Scenario:
    """A device plugin that never serves `stuck`: three pods wait until its lock expires."""

    def waiting(name: str, created_s: int, bound_s: int) -> PodPlan:
        return PodPlan(
            name,
            memory_mib=2_000,
            core_percent=10,
            card=CARD.uuid,
            created_s=created_s,
            filtered_s=created_s + 1,
            lock_refused_s=created_s + 5,
            bound_s=bound_s,
            started_s=bound_s + 2,
        )

    stuck = PodPlan(
        "stuck",
        memory_mib=2_000,
        core_percent=10,
        card=CARD.uuid,
        created_s=-542,
        filtered_s=-541,
        bound_s=-540,
        keeps_lock=True,
    )
    pods = (stuck, *(waiting(f"next-{n}", -500 + 10 * n, -200 + 30 * n) for n in range(3)))
    replay = Replay(before_s=600, within_s=10 * minute_s)
    return _scenario("node-lock-storm", replace(_cluster(pods), replay=replay))


def _leaked(_minute_s: int) -> Scenario:
    """The lock of a pod that is no more, over five minutes old; nobody wants to bind."""
    note = LockNote(5, held_since_s=-400, pod="gone")
    return _scenario("leaked-lock", replace(_cluster(_two_at_ease()), lock_notes=(note,)))


def _unreadable(_minute_s: int) -> Scenario:
    """Somebody wrote a note to themselves where HAMi keeps its lock."""
    note = LockNote(5, text="do not touch, Monday")
    return _scenario("unreadable-lock", replace(_cluster(_two_at_ease()), lock_notes=(note,)))


STORM = (
    Expected(
        _labels("NodeLockBlocking", "warning", node=NODE),
        f"The lock of node {NODE} has been held for … and pods wait for it: nothing binds there until it is "
        "released or expires.",
    ),
    Expected(
        _labels("NodeLockOwnerStuck", "warning", node=NODE),
        f"The owner of the lock of node {NODE} is bound and has not been running for 30 seconds or more: the "
        "device plugin there does not finish its allocation.",
    ),
    Expected(
        _labels("NodeLockTimeout", "warning", node=NODE),
        f"Locks of node {NODE} expired in the last 30m: pods waited for the whole timeout before the next "
        "could bind.",
    ),
)
LEAKED = Expected(
    _labels("NodeLockLeaked", "info", node=NODE),
    f"The lock of node {NODE} has been held for …. The next pod that binds there takes it over; until then "
    "it does no harm.",
)
UNREADABLE = Expected(
    _labels("NodeLockUnreadable", "warning", node=NODE),
    f"The annotation hami.io/mutex.lock of node {NODE} has a value that HAMi cannot read: no GPU pod binds "
    "there until a person removes it.",
)


# -- pods --------------------------------------------------------------------------------------------


def _webhook_down(_minute_s: int) -> Scenario:
    """HAMi's webhook does not answer and its failure policy is Ignore: pods go to the default scheduler."""
    past = tuple(
        PodPlan(
            f"plain-{number}",
            memory_mib=2_000,
            core_percent=0,
            created_s=4 + number,
            bound_s=5 + number,
            started_s=7 + number,
            scheduler=DEFAULT_SCHEDULER,
        )
        for number in (1, 2)
    )
    return _scenario("webhook-down", _cluster((*_two_at_ease(), *past)))


def _memory_loop(minute_s: int) -> Scenario:
    """A program at 1,950 of 2,000 MiB that asks for 256 more again and again, and is refused."""
    refused = tuple(Allocation(n * minute_s * 1_000, 256, refused=True) for n in range(1, 25))
    loop = _slice("loop", 1, 30, (20,), memory_mib=2_000)
    assert loop.work is not None
    work = replace(loop.work, allocations=(Allocation(0, 1_850), *refused))
    other = _slice("serve", 2, 40, (10,), namespace=OTHER_TEAM)
    return _scenario("memory-limit-loop", _cluster((replace(loop, work=work), other)))


WEBHOOK = Expected(
    _labels("PodBypassesHami", "warning", namespace=TEAM, tenant=TEAM, why="scheduler"),
    f"In namespace {TEAM} (tenant {TEAM}) 2 pod(s) went past HAMi (scheduler): no limit holds them, and "
    "other slices of the card suffer.",
    f"In namespace {TEAM} 2 pod(s) went past HAMi (scheduler).",
)
MEMORY_LOOP = Expected(
    _of_slice("SliceNearLimit", "info", "loop"),
    f"{TEAM}/loop (main) uses 97.5% of its GPU memory limit on {NODE}: the next allocation is likely "
    "refused.",
    f"{TEAM}/loop (main) uses 97.5% of its GPU memory limit: the next allocation is likely refused.",
)


# -- cards and programs ------------------------------------------------------------------------------


def _first_xid(minute_s: int) -> Scenario:
    """The first errors of two cards: one that takes it out of service, one of a program's own making."""
    at_s = 5 * minute_s + 3
    cards = (replace(CARD, xids=((at_s, 79),)), replace(SECOND_CARD, xids=((at_s, 31),)))
    return _scenario("first-xid", _cluster(_two_at_ease(), cards))


def _exporter_dead(minute_s: int) -> Scenario:
    kill = Kill(f"node {CLUSTER}", 5 * minute_s + 3, NEVER_MINUTES * minute_s)
    return replace(_quiet(minute_s), name="exporter-dead", kills=(kill,))


def _cluster_role_dead(minute_s: int) -> Scenario:
    kill = Kill(f"cluster {CLUSTER}", 5 * minute_s + 3, NEVER_MINUTES * minute_s)
    return replace(_quiet(minute_s), name="cluster-role-dead", kills=(kill,))


def _api_gone(minute_s: int) -> Scenario:
    cluster = replace(_cluster(_two_at_ease()), api_gone_s=5 * minute_s + 3)
    return _scenario("api-gone", cluster)


def _over_budget(_minute_s: int) -> Scenario:
    """A card-hour costs 240: the team's part of the card, 0.30, is worth a cent in half a second."""
    return replace(_quiet(0), name="over-budget", budgets=((f"{ACCOUNT}/{TEAM}", "0.01"),))


XID = (
    Expected(
        _labels("Xid", "critical", node=NODE, device_uuid=CARD.uuid, code="79"),
        f"Card {CARD.uuid} on {NODE} reported XID 79 … ago. Its time is not charged until it is reset.",
    ),
    Expected(
        _labels("Xid", "info", node=NODE, device_uuid=SECOND_CARD.uuid, code="31"),
        f"Card {SECOND_CARD.uuid} on {NODE} reported XID 31 … ago: mostly a program's own error; the card "
        "goes on.",
    ),
    Expected(
        _labels("DeviceUnhealthy", "critical", node=NODE, device_uuid=CARD.uuid),
        f"Card {CARD.uuid} on {NODE} is down, waits for a reset to remap memory rows, or counted uncorrected "
        "ECC errors in the last hour.",
    ),
)
EXPORTER_DEAD = Expected(
    _labels("ExporterDown", "warning", node=NODE),
    f"Node {NODE} has GPUs registered with HAMi, and no Slicemeter exporter answers there: its slices are "
    "billed from the cluster's view, and their use is unknown.",
)
CLUSTER_ROLE_DEAD = Expected(
    _labels("ClusterRoleAbsent", "warning"),
    f"Cluster {CLUSTER} has node exporters and no cluster exporter: locks, pending pods, bypasses and dead "
    "exporters are not seen there.",
)
OVER_BUDGET = Expected(
    _labels("BudgetNearlyUsed", "warning", cluster=HOME, tenant=f"{ACCOUNT}/{TEAM}"),
    f"Tenant {ACCOUNT}/{TEAM} has spent …% of its budget.",
    "…% of your GPU budget is spent.",
)


def _blind(role: str, collectors: Sequence[str]) -> tuple[Expected, ...]:
    """What is said of an exporter whose API server is gone: once that its view is old, and of each watch."""
    instance = f"{role} {CLUSTER}"
    said = f"Exporter {instance} of cluster {CLUSTER}"
    return (
        Expected(
            _labels("KubeViewStale", "warning", instance=instance),
            f"{said} last saw the Kubernetes API … ago: names and ends are of then.",
        ),
        *(
            Expected(
                _labels("CollectorFailing", "warning", instance=instance, collector=collector),
                f"{said} gets nothing from its source {collector}: what it feeds is absent.",
            )
            for collector in collectors
        ),
    )


SCENES = (
    Scene("quiet", "two teams below what they reserved", _quiet, 65),
    Scene("busy", "a full card on which nobody misses anything", _busy, 65),
    Scene(
        "noisy-neighbour", "one slice takes 0.72 with 0.30 reserved; another starves", _noisy, 32, (NOISY,)
    ),
    Scene("node-lock-storm", "pods wait for a lock that nobody frees, until it expires", _storm, 20, STORM),
    Scene("leaked-lock", "a lock outlived its owner, and nobody waits for it", _leaked, 20, (LEAKED,)),
    Scene("unreadable-lock", "the lock's annotation is no lock", _unreadable, 20, (UNREADABLE,)),
    Scene("webhook-down", "pods are admitted unseen and bound past HAMi", _webhook_down, 25, (WEBHOOK,)),
    Scene(
        "memory-limit-loop", "a program is refused memory again and again", _memory_loop, 25, (MEMORY_LOOP,)
    ),
    Scene("first-xid", "the first XID errors of two cards, one of them fatal", _first_xid, 25, XID),
    Scene("exporter-dead", "kill -9 of the node exporter", _exporter_dead, 25, (EXPORTER_DEAD,)),
    Scene(
        "cluster-role-dead", "kill -9 of the cluster exporter", _cluster_role_dead, 25, (CLUSTER_ROLE_DEAD,)
    ),
    Scene(
        "api-gone",
        "the Kubernetes API server is away for good",
        _api_gone,
        30,
        (
            *_blind("node", ("namespaces", "nodes", "pods")),
            *_blind("cluster", ("events", "namespaces", "nodes", "pods", "resourcequotas")),
        ),
    ),
    Scene("over-budget", "a team has spent more than its month may cost", _over_budget, 25, (OVER_BUDGET,)),
)


def scene(name: str) -> Scene:
    """The scene of that name.

    Raises:
        KeyError: There is none.
    """
    return {each.name: each for each in SCENES}[name]
