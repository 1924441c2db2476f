"""Facts of a small world, so that keys, revisions and times meet often: `st.from_type` draws from it."""

from __future__ import annotations

from hypothesis import strategies as st

from contract.facts import (
    AllocationFact,
    DeviceUsageFact,
    EndKind,
    NodeStateFact,
    PresenceFact,
    SliceUsageFact,
    UnallocatedUseFact,
)
from contract.ids import ClusterCode, DeviceUuid, EpochId, NodeUid, PodUid, TenantKey

HOUR_MS = 1_790_805_600_000

_cluster = st.just(ClusterCode("a"))
_node = st.just(NodeUid("uid-1"))
_device = st.just(DeviceUuid("GPU-1"))
_pod = st.sampled_from([PodUid("pod-1"), PodUid("pod-2")])
_ms = st.integers(0, 9).map(lambda step: HOUR_MS + step * 1_000)
_END_KINDS: list[EndKind | None] = [None, "observed", "inferred"]
_few = st.integers(0, 2)


@st.composite
def _allocation(draw: st.DrawFn) -> AllocationFact:
    confirmed = sorted([draw(_ms), draw(_ms)])
    kind = draw(st.sampled_from(_END_KINDS))
    return AllocationFact(
        cluster=draw(_cluster),
        pod_uid=draw(_pod),
        container="main",
        device_uuid=draw(_device),
        witness=draw(st.sampled_from(["node", "cluster"])),
        node_uid=draw(_node),
        node=draw(st.sampled_from(["node-1", "node-one"])),
        namespace="team",
        pod="train",
        vendor="NVIDIA",
        model=draw(st.sampled_from(["", "NVIDIA L4"])),
        mem_mib=draw(_few),
        core_percent=draw(_few),
        container_kind="app",
        tenant_key=draw(st.sampled_from([TenantKey("tenant-a"), TenantKey("tenant-b")])),
        bound_at_ms=HOUR_MS,
        started_at_ms=draw(st.none() | _ms),
        first_confirmed_at_ms=confirmed[0],
        confirmed_at_ms=confirmed[1],
        ended_at_ms=None if kind is None else draw(_ms),
        end_reason=None if kind is None else draw(st.none() | st.sampled_from(["", "Failed", "DELETED"])),
        end_kind=kind,
        mig=draw(st.none() | st.just("1g.10gb")),
        labels=draw(st.sampled_from([{}, {"app": "a", "team": "b"}])),
    )


@st.composite
def _presence(draw: st.DrawFn) -> PresenceFact:
    begins, ends = sorted([draw(_ms), draw(_ms)])
    return PresenceFact(
        cluster=draw(_cluster),
        node_uid=draw(_node),
        node="node-1",
        device_uuid=draw(_device),
        witness=draw(st.sampled_from(["node", "cluster"])),
        from_ms=begins,
        to_ms=ends,
        state=draw(st.sampled_from(["healthy", "down"])),
        reason=draw(st.none() | st.just("xid")),
        model="NVIDIA L4",
        vendor="NVIDIA",
        registered_mib=draw(_few),
        slots=10,
    )


@st.composite
def _node_state(draw: st.DrawFn) -> NodeStateFact:
    begins, ends = sorted([draw(_ms), draw(_ms)])
    return NodeStateFact(
        cluster=draw(_cluster),
        node_uid=draw(_node),
        node=draw(st.sampled_from(["node-1", "node-one"])),
        from_ms=begins,
        to_ms=ends,
        ready=draw(st.booleans()),
        heartbeat_at_ms=draw(_ms),
    )


@st.composite
def _slice_usage(draw: st.DrawFn) -> SliceUsageFact:
    covered_ms = draw(_few)
    return SliceUsageFact(
        cluster=draw(_cluster),
        pod_uid=draw(_pod),
        container="main",
        device_uuid=draw(_device),
        node_uid=draw(_node),
        hour_ms=HOUR_MS,
        epoch=draw(st.sampled_from([EpochId("e1"), EpochId("e2")])),
        revision=draw(_few),
        from_ms=HOUR_MS,
        to_ms=HOUR_MS + 10,
        covered_ms=covered_ms,
        unknown_ms=draw(_few),
        sm_ppm_ms=draw(st.integers(0, covered_ms)),
        sm_down_ppm_ms=0,
        mem_used_mib_ms=draw(_few),
        mem_peak_mib=draw(_few),
        energy_active_mj=0,
        blocked_ms=0,
        over_limit_ms=0,
        source=draw(st.sampled_from(["nvml", "cache"])),
    )


@st.composite
def _unallocated_use(draw: st.DrawFn) -> UnallocatedUseFact:
    use = draw(_slice_usage())
    fields = {name: getattr(use, name) for name in SliceUsageFact.__struct_fields__}
    return UnallocatedUseFact(**fields, namespace="team", pod="bypass", tenant_key=TenantKey("tenant-a"))


@st.composite
def _device_usage(draw: st.DrawFn) -> DeviceUsageFact:
    energy_mj = draw(_few)
    return DeviceUsageFact(
        cluster=draw(_cluster),
        device_uuid=draw(_device),
        node_uid=draw(_node),
        hour_ms=HOUR_MS,
        epoch=EpochId("e1"),
        revision=draw(_few),
        from_ms=HOUR_MS,
        to_ms=HOUR_MS + 10,
        covered_ms=draw(_few),
        busy_ppm_ms=0,
        energy_mj=energy_mj,
        energy_idle_mj=draw(st.integers(0, energy_mj)),
        energy_unattributed_mj=0,
        sm_unattributed_ppm_ms=0,
    )


st.register_type_strategy(AllocationFact, _allocation())
st.register_type_strategy(PresenceFact, _presence())
st.register_type_strategy(NodeStateFact, _node_state())
st.register_type_strategy(SliceUsageFact, _slice_usage())
st.register_type_strategy(UnallocatedUseFact, _unallocated_use())
st.register_type_strategy(DeviceUsageFact, _device_usage())
