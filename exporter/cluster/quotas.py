"""GPU quotas: what a namespace may hold, and what it holds of that.

HAMi counts `limits.` of its own resources by itself, promises of its filter included, and so do we;
`requests.` are Kubernetes' own, and its count is taken. Figures are in the resource's own unit: GPUs, MiB
(before HAMi's memory factor), percent of a card. Invariant: of several quotas of one namespace and
resource the tightest is shown, since it is the one that refuses.

Source: `reference/hami-kubernetes.md §8, §9.3`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from exporter.cluster.pods import PodRecord
from exporter.hami.holding import Grant
from exporter.hami.resources import ResourceNames, whole_quantity
from exporter.kube.objects import ResourceQuota

_LIMITS, _REQUESTS = "limits.", "requests."

Where = tuple[str, str]
"""Namespace and resource."""


@dataclass(frozen=True, slots=True)
class QuotaSight:
    """One namespace's quota of one resource; `used` None: nobody has counted it."""

    used: int | None
    limit: int


def quota_sights(
    quotas: Iterable[ResourceQuota], records: Iterable[PodRecord], names: ResourceNames
) -> dict[Where, QuotaSight]:
    """The quotas of GPU resources by namespace and resource."""
    held = _held(records, names)
    found: dict[Where, QuotaSight] = {}
    for quota in quotas:
        for key, hard in quota.spec.hard.items():
            limit = whole_quantity(hard)
            resource = key.removeprefix(_LIMITS).removeprefix(_REQUESTS)
            if limit is None or resource not in _countable(names):
                continue
            where = (quota.metadata.namespace, resource)
            if key.startswith(_REQUESTS):
                used = whole_quantity(quota.status.used.get(key))
            else:
                used = held.get(where, 0)
            known = found.get(where)
            if known is None or limit < known.limit:
                found[where] = QuotaSight(used, limit)
    return found


def _countable(names: ResourceNames) -> tuple[str, ...]:
    return names.count, names.memory_mib, names.core_percent


def _held(records: Iterable[PodRecord], names: ResourceNames) -> Mapping[Where, int]:
    sums: dict[Where, int] = defaultdict(int)
    for record in records:
        namespace = record.pod.metadata.namespace
        for grant in _grants(record):
            sums[namespace, names.count] += grant.slots
            sums[namespace, names.memory_mib] += grant.memory_mib // names.memory_factor
            sums[namespace, names.core_percent] += grant.core_percent
    return sums


def _grants(record: PodRecord) -> Iterable[Grant]:
    """What a pod holds and what the filter promised it; HAMi counts both."""
    holding = record.holding
    grants = (*(held.grant for held in holding.current), *holding.reserved)
    return (grant for grant in grants if grant.is_nvidia)
