"""Devices that hold slices and that no witness reported, found on both databases."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, insert

from accounting.facts.kinds import ALLOCATION, PRESENCE
from accounting.periods.unreported import unreported_devices
from accounting.store.database import Database
from accounting.store.models import AllocationReport, PresenceReport
from contract.facts import AllocationFact, PresenceFact
from contract.ids import ClusterCode, DeviceKey, DeviceUuid, NodeUid, PodUid, TenantKey

_names = st.sampled_from(["a", "b", "B", "ä", "a-1", "a_1", "z"])
_devices = st.sets(st.tuples(st.sampled_from(["c", "d"]), _names, _names), max_size=12)


def slice_on(device: tuple[str, str, str], pod: str) -> AllocationFact:
    cluster, node, uuid = device
    return AllocationFact(
        cluster=ClusterCode(cluster), pod_uid=PodUid(pod), container="main", device_uuid=DeviceUuid(uuid),
        witness="node", node_uid=NodeUid(node), node=node, namespace="n", pod=pod, vendor="NVIDIA",
        model="A", mem_mib=1, core_percent=0, container_kind="app", tenant_key=TenantKey("t"),
        bound_at_ms=1, first_confirmed_at_ms=1, confirmed_at_ms=2,
    )  # fmt: skip


def report_of(device: tuple[str, str, str]) -> PresenceFact:
    cluster, node, uuid = device
    return PresenceFact(
        cluster=ClusterCode(cluster), node_uid=NodeUid(node), node=node, device_uuid=DeviceUuid(uuid),
        witness="node", from_ms=1, to_ms=2, state="healthy", model="A", vendor="NVIDIA",
        registered_mib=1, slots=1,
    )  # fmt: skip


@given(held=_devices, seen=_devices)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_held_and_was_never_seen_is_named_whatever_the_order_of_names(
    database: Database, held: set[tuple[str, str, str]], seen: set[tuple[str, str, str]]
) -> None:
    with database.writing() as session:
        for table in (AllocationReport, PresenceReport):
            session.execute(delete(table))
        rows = [ALLOCATION.row_of(slice_on(one, one[1] + pod)) for one in held for pod in ("p", "q")]
        reports = [PRESENCE.row_of(report_of(one)) for one in seen]
        for model, new in ((AllocationReport, rows), (PresenceReport, reports)):
            if new:
                session.execute(insert(model), [row | {"ingest_seq": 1} for row in new])
        found = sorted(unreported_devices(session, "c"))
    wanted = sorted(DeviceKey(*one) for one in held - seen if one[0] == "c")  # type: ignore[arg-type]
    assert found == wanted
