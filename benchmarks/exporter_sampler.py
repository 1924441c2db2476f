"""What one tick of the node role's sampler costs, on both rungs of the ladder.

Run: python -m benchmarks.exporter_sampler [--slices 10 100 320] [--ticks 60] [--profile]

The whole tick is measured: cache files that were written to since the last one (SM figures and the last
kernel's time in all, memory in a tenth of the slots), a process table (a small copy of `/proc`),
attribution, meter, facts and the state file's transaction; the page is not, since it is made when a
scrape wants it. Ten slices share a card, each with two living processes. Cards are scripted: what the
driver itself takes is not ours to measure. Processor time of the process is counted, the kernel's part
included, and divided by the tick's second. The fastest tick is shown beside the median: it tells more on
a machine that others use too. The result is judged by whoever reads it.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec
from prometheus_client import CollectorRegistry

from benchmarks.exporter_stand import NODE, Cards, FullNode, node_object, processes_of
from contract.ids import ClusterCode, NodeUid, new_epoch
from exporter.delivery.metrics import DeliveryMetrics
from exporter.delivery.state import StateFile
from exporter.delivery.witness import Witness
from exporter.exposition.board import Board
from exporter.hami.annotations.tally import FlawTally
from exporter.hami.resources import ResourceNames
from exporter.hami.tree import SETTLED_NS
from exporter.kube.access import KubeAccess
from exporter.kube.client import ApiClient
from exporter.kube.objects import Meta, Namespace, Node, Pod
from exporter.kube.tenant import DEFAULT_TENANT_FROM, parse_tenant_rules
from exporter.kube.view import Change, View
from exporter.node import heap
from exporter.node.attribution.owners import Attributor
from exporter.node.attribution.residents import Residents
from exporter.node.clock import Instant
from exporter.node.metering.hours import Origin
from exporter.node.metering.meter import Meter
from exporter.node.sampler import Parts, Sampler
from exporter.node.snapshot import CollectorHealth
from exporter.node.sources.caches import CacheReader
from exporter.node.sources.devices import DeviceReader
from exporter.node.sources.liveness import Liveness
from exporter.node.sources.pods import PodBook
from exporter.node.sources.processes import ProcessTable
from exporter.node.tallies import Tallies
from exporter.node.watching import NodeWatches

START_MS = 1_796_000_000_000
AT_MOST_PERCENT = {"nvml": 1.0, "cache": 3.0}
"""Of one core, for each 100 slices at 1 Hz."""


class StillWatches(NodeWatches):
    """The API server's views, which do not change while we measure."""

    def __init__(self, pods: Sequence[Pod], node: Node, flaws: FlawTally) -> None:
        client = ApiClient(KubeAccess("https://127.0.0.1:1"))
        super().__init__(client, NODE, may_all_be_gone=lambda: False, flaws=flaws)
        self._view = View(
            MappingProxyType({pod.metadata.uid: pod for pod in pods}), listed=True, confirmed_at_ms=START_MS
        )
        namespace = Namespace(Meta(name="team", uid="ns", labels={"capsule.clastix.io/tenant": "tenant-a"}))
        self._spaces = View(MappingProxyType({"ns": namespace}), listed=True, confirmed_at_ms=START_MS)
        self._our_node = node

    def drain_pods(self) -> list[Change[Pod]]:
        """Nothing happened."""
        return []

    def pods(self) -> View[Pod]:
        """The node's pods."""
        return self._view

    def namespaces(self) -> View[Namespace]:
        """One namespace."""
        return self._spaces

    def node(self) -> tuple[Node | None, int | None]:
        """Our Node."""
        return self._our_node, START_MS

    def health(self) -> list[CollectorHealth]:
        """All is well."""
        return [CollectorHealth(name, True, None, START_MS) for name in ("pods", "nodes", "namespaces")]


class Bench:
    """A node with so many slices, and its sampler."""

    def __init__(self, folder: Path, slices: int, rung: str) -> None:
        self._disk = FullNode(folder, slices)
        self._ticks = 0
        tallies, flaws = Tallies(), FlawTally()
        pods = [msgspec.convert(pod, Pod) for pod in self._disk.pods()]
        node = msgspec.convert(node_object(slices), Node)
        cards = Cards(processes_of(slices), lambda: self._now().wall_ms, has_samples=rung == "nvml")
        self.sampler = Sampler(
            Parts(
                node_name=NODE,
                clock=self._now,
                watches=StillWatches(pods, node, flaws),
                flaws=flaws,
                book=PodBook(ResourceNames(), parse_tenant_rules(DEFAULT_TENANT_FROM), flaws),
                caches=CacheReader([self._disk.tree], tallies),
                devices=DeviceReader(cards, folder / "no.lock", tallies),
                attributor=Attributor(Residents(ProcessTable(self._disk.proc), Liveness()), tallies),
                meter=Meter(Origin(ClusterCode("c1"), NodeUid(""), new_epoch()), tallies=tallies),
                witness=Witness(ClusterCode("c1"), "node", 300_000),
                board=Board(),
                store=StateFile.open(folder / "state.db", "boot", DeliveryMetrics(CollectorRegistry())),
                sends_facts=True,
            )
        )

    def tick(self) -> float:
        """One second later; the processor time of its tick."""
        self._ticks += 1
        self._disk.work(self._ticks)
        begun = time.process_time()
        self.sampler.tick(lambda _seconds: None)
        return time.process_time() - begun

    def close(self) -> None:
        """Let go of files."""
        self.sampler.close()
        self._disk.close()

    def _now(self) -> Instant:
        passed_ms = self._ticks * 1_000
        return Instant(START_MS + passed_ms, 5_000_000 + passed_ms, 5_000_000 + passed_ms)


def measure(slices: int, rung: str, ticks: int, *, is_profiled: bool) -> dict[str, float | int | str]:
    """Medians over the ticks, the first few left out."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), slices, rung)
        for _ in range(5):
            bench.tick()
        # As the role does, and so long that the directories' listings are kept.
        heap.settle()
        time.sleep(SETTLED_NS / 1e9)
        for _ in range(2):
            bench.tick()
        profile = cProfile.Profile()
        if is_profiled:
            profile.enable()
        took = sorted(bench.tick() for _ in range(ticks))
        profile.disable()
        bench.close()
        if is_profiled:
            pstats.Stats(profile).sort_stats("tottime").print_stats(35)
    tick_ms, least_ms = statistics.median(took) * 1e3, took[0] * 1e3
    return {
        "slices": slices,
        "rung": rung,
        "tick_ms": round(tick_ms, 2),
        "tick_least_ms": round(least_ms, 2),
        "tick_p99_ms": round(took[min(len(took) - 1, len(took) * 99 // 100)] * 1e3, 2),
        "percent_of_core_per_100_slices": round(tick_ms / 10 / slices * 100, 2),
        "least_percent_of_core_per_100_slices": round(least_ms / 10 / slices * 100, 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slices", type=int, nargs="+", default=[10, 100, 320])
    parser.add_argument("--ticks", type=int, default=60)
    parser.add_argument("--rung", choices=["nvml", "cache"], action="append")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    options = parser.parse_args()
    print("processor time of one tick at 1 Hz, two processes a slice")
    heads = ("least ms", "median ms", "p99 ms", "% core/100", "at best", "at most")
    print(f"{'slices':>7} {'rung':<6}" + "".join(f"{head:>11}" for head in heads))
    results = []
    for slices in options.slices:
        for rung in options.rung or ("nvml", "cache"):
            found = measure(slices, rung, options.ticks, is_profiled=options.profile)
            found["at_most_percent"] = AT_MOST_PERCENT[rung]
            results.append(found)
            shown = ("tick_least_ms", "tick_ms", "tick_p99_ms", "percent_of_core_per_100_slices")
            best = found["least_percent_of_core_per_100_slices"]
            values = [*(found[name] for name in shown), best, AT_MOST_PERCENT[rung]]
            print(f"{slices:>7} {rung:<6}" + "".join(f"{value:>11}" for value in values))
    print(json.dumps({"benchmark": "sampler", "results": results}))


if __name__ == "__main__":
    main()
