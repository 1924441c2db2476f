"""Devices that hold slices although no witness ever reported them: their size is unknown.

Reports of slices are many for each device, so PostgreSQL goes through the index from one device to the
next instead of through all of them. Invariant: both databases give the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import exists, select, text
from sqlalchemy.orm import Session

from accounting.store.models import AllocationReport, PresenceReport
from contract.ids import ClusterCode, DeviceKey, DeviceUuid, NodeUid

_FROM_DEVICE_TO_DEVICE = text(
    """
    WITH RECURSIVE device AS (
        (
            SELECT cluster, node_uid, device_uuid FROM allocation_report
            WHERE cluster = :cluster ORDER BY cluster, node_uid, device_uuid LIMIT 1
        )
        UNION ALL
        SELECT further.cluster, further.node_uid, further.device_uuid
        FROM device CROSS JOIN LATERAL (
            SELECT report.cluster, report.node_uid, report.device_uuid FROM allocation_report AS report
            WHERE report.cluster = device.cluster
                AND (report.node_uid, report.device_uuid) > (device.node_uid, device.device_uuid)
            ORDER BY report.cluster, report.node_uid, report.device_uuid LIMIT 1
        ) AS further
    )
    SELECT node_uid, device_uuid FROM device
    WHERE NOT EXISTS (
        SELECT 1 FROM presence_report AS seen
        WHERE seen.cluster = device.cluster
            AND seen.node_uid = device.node_uid
            AND seen.device_uuid = device.device_uuid
    )
    """
)


def unreported_devices(session: Session, cluster: str) -> Iterator[DeviceKey]:
    """The devices of a cluster that some slice was ever held on and nobody ever reported."""
    if session.get_bind().dialect.name == "postgresql":
        rows = session.execute(_FROM_DEVICE_TO_DEVICE, {"cluster": cluster})
    else:
        held, seen = AllocationReport, PresenceReport
        is_reported = exists().where(
            seen.cluster == held.cluster,
            seen.node_uid == held.node_uid,
            seen.device_uuid == held.device_uuid,
        )
        rows = session.execute(
            select(held.node_uid, held.device_uuid).where(held.cluster == cluster, ~is_reported).distinct()
        )
    for node_uid, device_uuid in rows:
        yield DeviceKey(ClusterCode(cluster), NodeUid(node_uid), DeviceUuid(device_uuid))
