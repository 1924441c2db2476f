"""The demo's scenario: two tenants without a GPU, and one T4 shared by ten slices.

Clusters A and B are mock nodes (annotations only), whose objects began 15 minutes before the start
and are replayed in 24 seconds; cluster C has NVML and region files and lives on the real clock. The
figures are those of HAMi's own laboratories; what they must come to is computed in
`lab/checks`, from this data alone.

Prices are 600 times those of a card in a data centre (2.40, 0.80 and 0.40 EUR an hour): six seconds of
the demo cost what an hour costs there, so that a slice of a minute is more than a cent.

Two processes here hold nothing but a CUDA context, 100 MiB each, as `nvidia-smi` would show for a
program that only initialised the card.
"""

from __future__ import annotations

from dataclasses import replace

from lab.scenarios.plan import (
    DEFAULT_SCHEDULER,
    Allocation,
    Card,
    ClusterPlan,
    GpuWork,
    Kill,
    PodPlan,
    Replay,
    Scenario,
)

REPLAY = Replay(before_s=900, within_s=24)
CONTEXT_MIB = 100
HELD_SM_PERCENT = (32, 82, 0, 84, 0, 60, 0, 57, 11, 25, 0, 9)
"""What a slice held to 30 % under policy `force` reads, one sample a second; the mean is 30."""

HELD_CYCLES = 4
HELD_BEGINS_S = 20
HELD_ENDS_S = HELD_BEGINS_S + HELD_CYCLES * len(HELD_SM_PERCENT)
ENDS_S = HELD_ENDS_S + 4

A100 = Card(
    # The mock node of cluster B carries the same invented UUID: a UUID alone is no key.
    uuid="GPU-0a100000-0000-4000-8000-000000000001",
    registered_model="NVIDIA A100-SXM4-80GB",
    nvml_model="NVIDIA A100-SXM4-80GB",
    memory_mib=81_920,
    card_hour_price="1440.00",
)
L4_SHARED = Card(
    uuid=A100.uuid,
    registered_model="NVIDIA L4",
    nvml_model="NVIDIA L4",
    memory_mib=24_576,
    index=0,
    card_hour_price="480.00",
)
L4_FREE = replace(L4_SHARED, uuid="GPU-00140000-0000-4000-8000-000000000002", index=1)
T4 = Card(
    uuid="GPU-859b872c-0ba2-97b0-10b4-8b7185c55039",
    registered_model="NVIDIA-Tesla T4",
    nvml_model="Tesla T4",
    memory_mib=15_360,
    driver_reserved_mib=256,
    card_hour_price="240.00",
    idle_mw=17_000,
    busy_mw=53_000,
)


def _three_pods_on_one_card() -> ClusterPlan:
    """Cluster A: the lock that nobody frees makes the second and third pod wait for its expiry."""

    def sharing(name: str, created_s: int, bound_s: int, lock_refused_s: int | None = None) -> PodPlan:
        return PodPlan(
            name,
            memory_mib=20_000,
            core_percent=30,
            card=A100.uuid,
            created_s=created_s,
            filtered_s=created_s + 1,
            lock_refused_s=lock_refused_s,
            bound_s=bound_s,
            started_s=bound_s + 2,
        )

    return ClusterPlan(
        code="lab-a",
        title="one A100 80GB, mock device plugin",
        account="acme",
        tenant="tenant-a",
        node="gpu-node",
        namespace="team",
        namespace_labels=(("capsule.clastix.io/tenant", "tenant-a"),),
        cards=(A100,),
        is_mock=True,
        replay=REPLAY,
        lock_removed_s=40,
        pods=(
            sharing("share-a", created_s=-900, bound_s=-898),
            sharing("share-b", created_s=-880, lock_refused_s=-877, bound_s=-590),
            sharing("share-c", created_s=-560, lock_refused_s=-557, bound_s=-200),
            PodPlan(
                "over-memory",
                memory_mib=90_000,
                core_percent=0,
                created_s=-840,
                refused_for="CardInsufficientMemory",
            ),
            PodPlan(
                "over-cores",
                memory_mib=20_000,
                core_percent=30,
                created_s=-180,
                refused_for="CardInsufficientCore",
            ),
            PodPlan(
                "bypass",
                memory_mib=10_000,
                core_percent=0,
                created_s=-120,
                bound_s=-119,
                started_s=-117,
                scheduler=DEFAULT_SCHEDULER,
            ),
        ),
    )


def _two_pods_one_card() -> ClusterPlan:
    """Cluster B: the names of A, another tenant; its last lock stays behind, expired."""

    def sharing(name: str, created_s: int, bound_s: int, lock_refused_s: int | None = None) -> PodPlan:
        return PodPlan(
            name,
            memory_mib=8_000,
            core_percent=50,
            card=L4_SHARED.uuid,
            created_s=created_s,
            filtered_s=created_s + 1,
            lock_refused_s=lock_refused_s,
            bound_s=bound_s,
            started_s=bound_s + 2,
        )

    return ClusterPlan(
        code="lab-b",
        title="two L4, mock device plugin",
        account="globex",
        tenant="tenant-b",
        node="gpu-node",
        namespace="team",
        namespace_labels=(("capsule.clastix.io/tenant", "tenant-b"),),
        cards=(L4_SHARED, L4_FREE),
        is_mock=True,
        replay=REPLAY,
        register_form="string",
        pods=(
            sharing("share-a", created_s=-890, bound_s=-888),
            sharing("share-b", created_s=-870, lock_refused_s=-867, bound_s=-580),
        ),
    )


def _ten_slots() -> ClusterPlan:
    """Cluster C: limits that hold, a duty cycle, and a card whose slots run out."""
    chunks = tuple(Allocation(1_000 + 500 * number, 512, refused=number == 7) for number in range(8))
    context_only = CONTEXT_MIB

    def pod(  # noqa: PLR0917 - a table reads better in columns
        name: str,
        at_s: int,
        memory_mib: int,
        core_percent: int = 0,
        work: GpuWork | None = None,
        ended_s: int | None = None,
        policy: str | None = None,
    ) -> PodPlan:
        return PodPlan(
            name,
            memory_mib=memory_mib,
            core_percent=core_percent,
            card=T4.uuid,
            created_s=at_s,
            filtered_s=at_s,
            bound_s=at_s + 1,
            started_s=at_s + 2,
            ended_s=ended_s,
            policy=policy,
            work=work,
            container="cuda",
        )

    return ClusterPlan(
        code="lab-c",
        title="one T4, ten slots, NVML and HAMi-core",
        account="institute",
        tenant="research",
        node="t4-node",
        namespace="research",
        cards=(T4,),
        is_mock=False,
        pods=(
            pod("idle-1", 1, 4_000, work=GpuWork(4, context_only)),
            pod("idle-2", 3, 4_000, work=GpuWork(6, context_only)),
            pod(
                "refused",
                5,
                4_000,
                # The last granted chunk comes 4 s after the attach and is held for 3 s.
                work=GpuWork(8, CONTEXT_MIB, ends_s=15, allocations=chunks),
                ended_s=16,
            ),
            pod(
                "held",
                17,
                4_000,
                30,
                policy="force",
                work=GpuWork(
                    HELD_BEGINS_S,
                    CONTEXT_MIB,
                    allocations=(Allocation(0, 1_900),),
                    sm_percent=HELD_SM_PERCENT,
                ),
            ),
            *(pod(f"small-{n}", 20 + n, 400, work=GpuWork(23 + n, context_only)) for n in range(1, 7)),
            pod("small-7", 27, 400),  # never calls the GPU: a directory, but no region
            PodPlan(
                "eleventh",
                memory_mib=400,
                core_percent=0,
                created_s=31,
                refused_for="CardTimeSlicingExhausted",
                container="cuda",
            ),
        ),
    )


KILLS = (
    # The middle third without accounting, and every exporter once. The lock of cluster A goes at 40:
    # its cluster exporter must be there to see who took it away.
    Kill("accounting", 24, 48),
    Kill("cluster lab-b", 28, 30),
    Kill("node lab-a", 30, 32),
    Kill("cluster lab-c", 36, 38),
    Kill("node lab-b", 44, 46),
    Kill("cluster lab-a", 50, 52),
    Kill("node lab-c", 58, 60),
)


def _ended(cluster: ClusterPlan, ends_s: int) -> ClusterPlan:
    """The cluster with an end for every pod that runs."""

    def end(pod: PodPlan) -> PodPlan:
        if pod.started_s is None or pod.ended_s is not None:
            return pod
        work = pod.work and replace(pod.work, ends_s=min(ends_s - 1, HELD_ENDS_S))
        return replace(pod, ended_s=ends_s, work=work)

    return replace(cluster, pods=tuple(end(pod) for pod in cluster.pods))


def demo(*, ends: bool) -> Scenario:
    """The scenario; with `ends`, every pod finishes, so that each tenant's time is final."""
    clusters = (_three_pods_on_one_card(), _two_pods_one_card(), _ten_slots())
    going_on = Scenario("demo", clusters, "EUR", "Europe/Berlin", None, KILLS)
    if not ends:
        return going_on
    return replace(going_on, clusters=tuple(_ended(cluster, ENDS_S) for cluster in clusters), ends_s=ENDS_S)
