"""The GPU processes of a plan, and what each holds and does at a given moment.

Pure functions of (plan, milliseconds since the start): an exporter killed and started again sees the
same truth, and so does whoever writes the region. Invariant: a process's memory only grows, and its
SM samples end at whole sample times after its attach.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from contract.units import MIB
from lab.scenarios.plan import Allocation, ClusterPlan, GpuWork, PodPlan

FIRST_HOST_PID = 41_000
CONTAINER_PID = 7
"""The pid inside the container: a small one, as after an entry point's shell."""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """One process on one card."""

    pod: PodPlan
    pod_uid: str
    container_id: str
    device_uuid: str
    host_pid: int
    work: GpuWork
    sample_ms: int = 1_000

    @property
    def begins_ms(self) -> int:
        """When it attaches, milliseconds from the scenario's start."""
        return self.work.begins_s * 1_000

    @property
    def ends_ms(self) -> int | None:
        """When it exits."""
        return None if self.work.ends_s is None else self.work.ends_s * 1_000

    def lives_at(self, at_ms: int) -> bool:
        """Whether it is there, half-open."""
        return self.begins_ms <= at_ms and (self.ends_ms is None or at_ms < self.ends_ms)

    def granted_by(self, at_ms: int) -> tuple[Allocation, ...]:
        """The allocations it was granted up to a moment."""
        age_ms = at_ms - self.begins_ms
        return tuple(step for step in self.work.allocations if step.after_ms <= age_ms and not step.refused)

    def memory_bytes(self, at_ms: int) -> int:
        """Context and granted allocations; 0 while it does not live."""
        if not self.lives_at(at_ms):
            return 0
        return (self.work.context_mib + sum(step.mib for step in self.granted_by(at_ms))) * MIB

    def samples(self, after_ms: int, up_to_ms: int) -> Iterator[tuple[int, int]]:
        """(end, SM percent) of the samples that end in (after, up to], zero ones included."""
        cycle = self.work.sm_percent
        if not cycle:
            return
        last_ms = up_to_ms if self.ends_ms is None else min(up_to_ms, self.ends_ms)
        first = max((after_ms - self.begins_ms) // self.sample_ms + 1, 1)
        for number in range(first, (last_ms - self.begins_ms) // self.sample_ms + 1):
            yield self.begins_ms + number * self.sample_ms, cycle[(number - 1) % len(cycle)]

    def busy_percent_ms(self, at_ms: int) -> int:
        """SM percent times milliseconds from the attach until a moment, the running sample in part."""
        cycle = self.work.sm_percent
        last_ms = at_ms if self.ends_ms is None else min(at_ms, self.ends_ms)
        if not cycle or last_ms <= self.begins_ms:
            return 0
        samples, rest_ms = divmod(last_ms - self.begins_ms, self.sample_ms)
        cycles, part = divmod(samples, len(cycle))
        whole = cycles * sum(cycle) + sum(cycle[:part])
        return whole * self.sample_ms + cycle[part] * rest_ms


def processes_of(cluster: ClusterPlan) -> tuple[GpuProcess, ...]:
    """Every GPU process of a cluster, with pids that the plan's order fixes."""
    return tuple(
        GpuProcess(
            pod=pod,
            pod_uid=cluster.pod_uid(pod),
            container_id=cluster.container_id(pod),
            device_uuid=pod.card,
            host_pid=FIRST_HOST_PID + number,
            work=pod.work,
            sample_ms=cluster.card(pod.card).sample_ms,
        )
        for number, pod in enumerate(cluster.pods)
        if pod.card is not None and pod.work is not None
    )
