"""What a scenario is: clusters, cards and pods as data, every time in seconds from the scenario's start.

The player turns a plan into API objects, the simulated cards into readings, the workloads into region
files, and the check table into expected figures; all four read the same plan, so none of them can
tell another story. Invariants: times are whole seconds, as Kubernetes writes them; times of objects
that are replayed lie before 0; a pod's times never go back.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from contract.units import MIB

LOCK_TIMEOUT_S = 300
"""HAMi's node lock is taken over after this long. Source: `reference/hami-kubernetes.md §7.3`."""

HAMI_SCHEDULER = "hami-scheduler"
DEFAULT_SCHEDULER = "default-scheduler"
_UID_NAMESPACE = uuid.UUID("0f2c6f3e-9a55-4d0c-8a43-9c9f1f1f6a10")


def stable_uid(*names: str) -> str:
    """A UID that the same names always give: objects, directories and processes agree on it."""
    return str(uuid.uuid5(_UID_NAMESPACE, "/".join(names)))


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU.

    Attributes:
        registered_model: As the register annotation says it, prefix included.
        nvml_model: As NVML says it.
        driver_reserved_mib: What the driver keeps for itself; NVML shows it apart from used memory.
    """

    uuid: str
    registered_model: str
    nvml_model: str
    memory_mib: int
    index: int = 0
    slots: int = 10
    driver_reserved_mib: int = 0
    card_hour_price: str = "0"
    """Price of a card-hour, as one would type it."""
    idle_mw: int = 0
    busy_mw: int = 0
    """Power beside the idle part when every SM is busy."""
    sample_ms: int = 1_000
    """How often the driver takes a sample; divides a second."""
    xids: tuple[tuple[int, int], ...] = ()
    """XID errors that the driver reports: (second from the start, code)."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """One `cuMemAlloc` of a process: granted, or refused by HAMi-core."""

    after_ms: int
    """From the process's start."""
    mib: int
    refused: bool = False


@dataclass(frozen=True, slots=True)
class GpuWork:
    """What a pod's one GPU process does.

    Attributes:
        begins_s: When the process attaches, seconds from the scenario's start.
        ends_s: When it exits; None: it goes on.
        context_mib: Memory of its CUDA context, held from the first moment.
        allocations: Its further memory, in order.
        sm_percent: SM samples, one each `sample_ms` of the card from `begins_s`, over and over; empty: it
            launches nothing.
    """

    begins_s: int
    context_mib: int
    ends_s: int | None = None
    allocations: tuple[Allocation, ...] = ()
    sm_percent: tuple[int, ...] = ()

    @property
    def peak_bytes(self) -> int:
        """Context and every granted allocation: nothing is freed before the end."""
        granted = sum(step.mib for step in self.allocations if not step.refused)
        return (self.context_mib + granted) * MIB


FilterReason: TypeAlias = Literal[
    "CardInsufficientMemory", "CardInsufficientCore", "CardTimeSlicingExhausted"
]


@dataclass(frozen=True, slots=True)
class PodPlan:
    """One pod with one container that asks for one GPU slice.

    Attributes:
        card: The device HAMi's filter chooses; None when it finds none, or was never asked.
        lock_refused_s: When binding failed because another pod held the node lock.
        refused_for: Why the filter finds no node; such a pod stays Pending.
        bound_s: `PodScheduled`; None: never bound.
        started_s: The container's start.
        ended_s: The container's finish (phase Succeeded); None: it runs on.
        policy: `GPU_CORE_UTILIZATION_POLICY` in the pod's spec.
        namespace: Where it lives; "" = in the cluster's own namespace.
        keeps_lock: The device plugin never serves it, and so never frees the node lock taken for it.
    """

    name: str
    memory_mib: int
    core_percent: int
    created_s: int
    card: str | None = None
    filtered_s: int | None = None
    lock_refused_s: int | None = None
    refused_for: FilterReason | None = None
    bound_s: int | None = None
    started_s: int | None = None
    ended_s: int | None = None
    scheduler: str = HAMI_SCHEDULER
    policy: str | None = None
    work: GpuWork | None = None
    container: str = "main"
    namespace: str = ""
    keeps_lock: bool = False

    @property
    def bypasses_hami(self) -> bool:
        """Whether HAMi's scheduler never saw it."""
        return self.scheduler != HAMI_SCHEDULER

    @property
    def holds_slice(self) -> bool:
        """Whether it is ever bound with devices that HAMi chose."""
        return self.card is not None and self.bound_s is not None


@dataclass(frozen=True, slots=True)
class Replay:
    """Objects whose own times lie before the start, played faster than they happened."""

    before_s: int = 0
    within_s: int = 0

    def real_s(self, own_s: float) -> float:
        """When something with this own time is played, in seconds from the start."""
        if own_s > 0 or not self.before_s:
            return own_s
        return (own_s + self.before_s) * self.within_s / self.before_s


@dataclass(frozen=True, slots=True)
class LockNote:
    """The node lock as something writes it that is no bind of the plan.

    Attributes:
        at_s: When, from the scenario's start.
        text: The annotation's value as it stands; "" = one that names `pod`, taken at `held_since_s`.
        held_since_s: The lock's own time, from the start.
        pod: Its owner in the cluster's namespace, which need not exist.
    """

    at_s: int
    text: str = ""
    held_since_s: int = 0
    pod: str = ""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """One cluster with one GPU node.

    Attributes:
        code: The cluster's code in accounting.
        account: The billing account of tenants seen there for the first time.
        tenant: Who pays for its pods: the exporters' tenant key.
        namespace_labels: How the exporters learn the tenant; without any it is the namespace's name.
        is_mock: No NVML, no caches, and a device plugin that never frees the node lock.
        lock_removed_s: When a person removes the node lock by hand.
        lock_notes: What else is written as the node lock.
        api_gone_s: When the API server goes away, for good.
    """

    code: str
    title: str
    account: str
    tenant: str
    node: str
    namespace: str
    cards: tuple[Card, ...]
    pods: tuple[PodPlan, ...]
    is_mock: bool
    namespace_labels: tuple[tuple[str, str], ...] = ()
    replay: Replay = Replay()
    register_form: Literal["json", "string"] = "json"
    lock_removed_s: int | None = None
    lock_notes: tuple[LockNote, ...] = ()
    api_gone_s: int | None = None

    def namespace_of(self, pod: PodPlan) -> str:
        """Where a pod lives."""
        return pod.namespace or self.namespace

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The cluster's own namespace and those that pods name."""
        return tuple(dict.fromkeys((self.namespace, *(self.namespace_of(pod) for pod in self.pods))))

    def pod_uid(self, pod: PodPlan) -> str:
        """UID of a pod's object and of its cache directory."""
        return stable_uid(self.code, self.namespace_of(pod), pod.name)

    def container_id(self, pod: PodPlan) -> str:
        """The runtime's id: 64 hexadecimal digits."""
        return hashlib.sha256(self.pod_uid(pod).encode()).hexdigest()

    @property
    def tenant_path(self) -> str:
        """The tenant in accounting's tree: no rule, so the leaf named by the key, below the account."""
        return f"{self.account}/{self.tenant}"

    @property
    def node_uid(self) -> str:
        """UID of the one node."""
        return stable_uid(self.code, "node", self.node)

    @property
    def kube_system_uid(self) -> str:
        """UID of kube-system, which accounting binds the cluster's code to."""
        return stable_uid(self.code, "kube-system")

    def card(self, device_uuid: str) -> Card:
        """The card with this UUID."""
        return next(card for card in self.cards if card.uuid == device_uuid)

    def pod(self, name: str) -> PodPlan:
        """The pod with this name."""
        return next(pod for pod in self.pods if pod.name == name)

    def share(self, pod: PodPlan) -> Fraction:
        """The part of the card that the pod's slice blocks: the larger of memory and cores.

        Plain arithmetic, on purpose not the ledger's: the check table compares the two.
        """
        if pod.card is None:
            return Fraction(0)
        memory = Fraction(pod.memory_mib, self.card(pod.card).memory_mib)
        return max(memory, Fraction(pod.core_percent, 100))


@dataclass(frozen=True, slots=True)
class Kill:
    """A `kill -9` and, after a while, a new start."""

    target: str
    """`accounting`, or `node CODE`, or `cluster CODE`."""
    at_s: int
    back_s: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that will happen.

    Attributes:
        currency: Of every account.
        time_zone: IANA name; cuts every account's days and months.
        ends_s: When every pod has ended; None: it goes on until someone stops it.
        kills: What the disturbed run kills.
        budgets: (tenant's path, amount) that the books know from the start.
    """

    name: str
    clusters: tuple[ClusterPlan, ...]
    currency: str
    time_zone: str
    ends_s: int | None
    kills: tuple[Kill, ...] = ()
    budgets: tuple[tuple[str, str], ...] = ()

    def cluster(self, code: str) -> ClusterPlan:
        """The cluster with this code."""
        return next(cluster for cluster in self.clusters if cluster.code == code)
