"""Pods that wait, never fit or bypass HAMi; memory that nobody can get; quotas that run out."""

from __future__ import annotations

from dashboards import uids
from dashboards.names import ST, once
from dashboards.rules.rule import Alert
from dashboards.thresholds import Thresholds

FLEET_LINK = uids.alert_link(uids.FLEET, "cluster")
TENANT_LINK = uids.alert_link(uids.TENANT, "cluster", "tenant", "namespace")
_WHO = "cluster, namespace, tenant"


def bypass(limits: Thresholds) -> Alert:
    """A pod that asks for a GPU past HAMi, or uses one that it was not granted."""
    asking = f"{once('bypassing_pods', f'{_WHO}, why')} > 0"
    using = f"{once('unallocated_memory_used_bytes', ST)} > {limits.unallocated_memory_bytes}"
    return Alert(
        name="SlicemeterPodBypassesHami",
        expr=f"({asking})\nor\n({using})",
        hold="10m",
        severity="warning",
        summary="Pods use GPUs past HAMi",
        description=(
            "In namespace {{ $labels.namespace }} (tenant {{ $labels.tenant }}) "
            "{{ if $labels.pod }}{{ $labels.pod }} ({{ $labels.container }}) uses "
            "{{ $value | humanize1024 }}B of card {{ $labels.device_uuid }} on {{ $labels.node }} without an "
            "allocation{{ else }}{{ $value }} pod(s) went past HAMi ({{ $labels.why }}){{ end }}: no limit "
            "holds them, and other slices of the card suffer."
        ),
        tenant_text=(
            "In namespace {{ $labels.namespace }} {{ if $labels.pod }}{{ $labels.pod }} uses a GPU that it "
            "was not granted{{ else }}{{ $value }} pod(s) went past HAMi ({{ $labels.why }}){{ end }}."
        ),
        dashboard=TENANT_LINK,
    )


def capacity_alerts(limits: Thresholds) -> tuple[Alert, ...]:
    """Waiting, never fitting, stranded, and nearly used up."""
    registered = once("node_gpu_memory_bytes", "cluster, node", 'state="registered"')
    stranded = once("stranded_memory_bytes", "cluster, node, why")
    used, limit = (once(name, "cluster, namespace, resource") for name in ("quota_used", "quota_limit"))
    return (
        Alert(
            name="SlicemeterPodsPending",
            expr=f"{once('pending_pods', f'{_WHO}, reason')} > 0",
            hold="15m",
            severity="info",
            summary="Pods have been waiting for GPU slices",
            description=(
                "{{ $value }} pod(s) of namespace {{ $labels.namespace }} (tenant {{ $labels.tenant }}) wait "
                "for GPU slices; HAMi's reason: {{ $labels.reason }}."
            ),
            tenant_text=(
                "{{ $value }} pod(s) of namespace {{ $labels.namespace }} wait for GPU slices; HAMi's "
                "reason: {{ $labels.reason }}."
            ),
            dashboard=TENANT_LINK,
        ),
        Alert(
            name="SlicemeterPodNeverFits",
            expr=f"{once('unschedulable_pods', f'{_WHO}, why')} > 0",
            hold="10m",
            severity="warning",
            summary="Pods ask for more than any node can ever give",
            description=(
                "{{ $value }} pod(s) of namespace {{ $labels.namespace }} (tenant {{ $labels.tenant }}) can "
                "never be placed: {{ $labels.why }}. Waiting does not help."
            ),
            tenant_text=(
                "{{ $value }} pod(s) of namespace {{ $labels.namespace }} can never be placed: "
                "{{ $labels.why }}. Waiting does not help; change the request."
            ),
            dashboard=TENANT_LINK,
        ),
        Alert(
            name="SlicemeterStrandedMemory",
            expr=f"{stranded}\n/ on (cluster, node) group_left ()\n{registered}\n> {limits.stranded_ratio}",
            hold="1h",
            severity="info",
            summary="GPU memory is free that no pod can get",
            description=(
                "{{ $value | humanizePercentage }} of the GPU memory of node {{ $labels.node }} is free, but "
                "its cards have no {{ $labels.why }} left."
            ),
            dashboard=FLEET_LINK,
        ),
        Alert(
            name="SlicemeterQuotaNearlyUsed",
            expr=f"{used}\n/ ({limit} > 0)\n> {limits.quota_ratio}",
            hold="15m",
            severity="info",
            summary="A GPU quota is nearly used up",
            description=(
                "Namespace {{ $labels.namespace }} uses {{ $value | humanizePercentage }} of its quota of "
                "{{ $labels.resource }}."
            ),
            dashboard=FLEET_LINK,
        ),
    )
