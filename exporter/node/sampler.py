"""The sampler: one tick reads every source, attributes, integrates, stores, and publishes a page.

Invariants: only this thread touches a source; what a page shows was stored before it was published, so
a `kill -9` at any instant makes no counter go back; a source that fails leaves absence and a health
series, never a 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from contract.facts import Fact
from contract.ids import NodeUid, new_epoch
from exporter.delivery.state import StateFile
from exporter.delivery.witness import Witness
from exporter.exposition.board import Board, Draft
from exporter.exposition.page import DEFAULT_SERIES_BUDGET
from exporter.hami.annotations.node_register import NodeRegister, RegisteredDevice
from exporter.hami.annotations.tally import FlawTally
from exporter.kube.objects import Node, Pod
from exporter.kube.view import Change
from exporter.node.attribution.joining import Sources
from exporter.node.attribution.owners import Attribution, Attributor
from exporter.node.attribution.reporting import Reporter
from exporter.node.clock import Clock, Instant
from exporter.node.metering.hours import Origin
from exporter.node.metering.meter import Meter
from exporter.node.metering.packing import pack
from exporter.node.showing.composing import device_views, slice_views, tenant_views, unallocated_views
from exporter.node.showing.hami_page import make_hami_page
from exporter.node.showing.page import make_page
from exporter.node.snapshot import CollectorHealth, Snapshot
from exporter.node.sources.caches import LOOKS, CacheReader, CacheSurvey, Wait
from exporter.node.sources.devices import SAMPLES_LOST, DeviceLook, DeviceReader
from exporter.node.sources.pods import PodBook
from exporter.node.watching import NodeWatches


@dataclass(slots=True)
class Parts:
    """What a sampler works with, one of each.

    Attributes:
        flaws: Where unreadable annotations are counted.
        store: Where counters and facts go; None = nowhere (`--once`).
        sends_facts: Whether somebody takes the facts.
        push_interval_ms: How often growing usage is said.
        series_budget: How many series a page may have.
        hami_board: Where the page under HAMi's names is pinned; None = there is none.
        closing: Facts of the run before, to be stored with the first tick.
    """

    node_name: str
    clock: Clock
    watches: NodeWatches
    flaws: FlawTally
    book: PodBook
    caches: CacheReader
    devices: DeviceReader
    attributor: Attributor
    meter: Meter
    witness: Witness
    board: Board
    store: StateFile | None = None
    sends_facts: bool = False
    push_interval_ms: int = 300_000
    series_budget: int = DEFAULT_SERIES_BUDGET
    hami_board: Board | None = None
    closing: Sequence[Fact] = ()
    stopwatch: Callable[[], float] = time.perf_counter


@dataclass(slots=True)
class _Timing:
    """How long each source took at this tick, and when it last answered."""

    seconds: dict[str, float] = field(default_factory=dict)
    success_ms: dict[str, int] = field(default_factory=dict)


class Sampler:
    """Ticks; each tick ends in a published page."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._timing = _Timing()
        self._reporter = Reporter()
        self._wants_looks = False
        self._changes: list[Change[Pod]] = []
        self._closing: list[Fact] = list(parts.closing)
        self._push_at_ms = 0
        self._snapshot: Snapshot | None = None
        self._has_living = False
        self._register: NodeRegister | None = None
        self._registered: dict[str, RegisteredDevice] = {}

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest; None before the first tick."""
        return self._snapshot

    @property
    def has_living(self) -> bool:
        """Whether GPU processes of known containers were alive at the last tick."""
        return self._has_living

    def tick(self, wait: Wait) -> Snapshot:
        """Read everything once and publish.

        Args:
            wait: Waits the given seconds, between two looks at the caches.
        """
        parts = self._parts
        with self._timed("cache"):
            survey = parts.caches.survey(looks=LOOKS if self._wants_looks else 0, wait=wait)
        now = parts.clock()
        with self._timed(parts.devices.name):
            look = parts.devices.look(now, self._owned())
        node, node_confirmed_ms = parts.watches.node()
        sources = self._sources(survey, look, node, now)
        attribution = parts.attributor.attribute(sources)
        self._wants_looks = attribution.wants_looks
        self._has_living = bool(attribution.alive)
        facts: list[Fact] = []
        if node is not None and sources.sight.is_listed:
            facts += self._integrate(attribution, NodeUid(node.metadata.uid), now)
        if node is not None:
            facts += parts.witness.tick(
                self._reporter.sight_of(sources, attribution, node, node_confirmed_ms)
            )
        self._store(facts)
        self._snapshot = snapshot = self._compose(sources, attribution, look, now)
        parts.board.publish(Draft(lambda: make_page(snapshot, parts.series_budget)))
        if parts.hami_board is not None:
            parts.hami_board.publish(Draft(lambda: make_hami_page(snapshot, parts.series_budget)))
        return snapshot

    def finish(self) -> None:
        """Store what was measured since the last push, so that nothing waits for the next start."""
        if self._parts.meter.last is not None:
            self._store(self._parts.meter.take_facts(everything=True))
        self.close()

    def close(self) -> None:
        """Let go of every source."""
        self._parts.devices.close()
        self._parts.caches.close()

    def _owned(self) -> dict[str, frozenset[int]]:
        meter = self._parts.meter
        return {uuid: meter.known_pids(uuid) for uuid in meter.devices}

    def _sources(self, survey: CacheSurvey, look: DeviceLook, node: Node | None, now: Instant) -> Sources:
        parts = self._parts
        if survey.failure is None:
            self._timing.success_ms["cache"] = now.wall_ms
        else:
            parts.meter.tallies.count(SAMPLES_LOST, "cache")
        if look.failure is None:
            self._timing.success_ms[parts.devices.name] = now.wall_ms
        # Drained before the view is taken: no change is newer than the view.
        self._changes += parts.watches.drain_pods()
        sight = parts.book.look(parts.watches.pods(), self._changes, parts.watches.namespaces(), now.wall_ms)
        if sight.is_listed:
            self._changes = []
        register = parts.watches.register(node)
        if register is not self._register:
            self._register = register
            self._registered = {device.uuid: device for device in register.devices}
        if sight.is_listed and node is not None:
            parts.flaws.speak()
        return Sources(
            at_ms=now.wall_ms,
            sight=sight,
            registered=self._registered,
            readings=look.readings,
            hardware=look.hardware,
            survey=survey,
            had_readings=parts.devices.had_readings,
            device_failure=look.failure,
        )

    def _integrate(self, attribution: Attribution, node_uid: NodeUid, now: Instant) -> list[Fact]:
        """Meter the tick; the usage facts that are due."""
        meter = self._parts.meter
        facts: list[Fact] = []
        origin = meter.origin
        if origin.node_uid != node_uid:
            # A node that was made again under its name is another node; a first look has no facts yet.
            epoch = new_epoch() if origin.node_uid else origin.epoch
            facts += meter.begin_epoch(Origin(origin.cluster, node_uid, epoch))
        interval = meter.tick(now, attribution.devices)
        if interval is not None and interval.stepped_back:
            facts += meter.begin_epoch(Origin(origin.cluster, node_uid, new_epoch()))
        is_due = now.boot_ms >= self._push_at_ms
        if is_due:
            self._push_at_ms = now.boot_ms + self._parts.push_interval_ms
        return facts + list(meter.take_facts(everything=is_due))

    def _store(self, facts: Sequence[Fact]) -> None:
        parts = self._parts
        if parts.store is None:
            return
        row = pack(
            parts.meter,
            parts.witness,
            had_readings=parts.devices.had_readings,
            histories=parts.devices.histories(),
            annotation_errors=parts.flaws.dump(),
        )
        parts.store.commit(row, [*self._closing, *facts] if parts.sends_facts else [])
        self._closing = []

    def _compose(
        self, sources: Sources, attribution: Attribution, look: DeviceLook, now: Instant
    ) -> Snapshot:
        parts = self._parts
        slices = slice_views(attribution, parts.meter)
        devices = device_views(attribution, sources, parts.meter, parts.meter.tallies)
        pending = None if parts.store is None else parts.store.pending()
        return Snapshot(
            at_ms=now.wall_ms,
            node=parts.node_name,
            devices=devices,
            slices=slices,
            unallocated=unallocated_views(attribution, parts.meter),
            tenants=tenant_views(slices, parts.meter),
            collectors=tuple(self._health(sources, look)),
            tallies=parts.meter.tallies.by_family(),
            annotation_errors=parts.flaws.counts(),
            cache_files=sources.survey.files,
            cache_directories_ignored=sources.survey.ignored if sources.survey.has_tree else None,
            unattributed_processes=(
                None if attribution.unattributed is None else len(attribution.unattributed)
            ),
            kube_view_ms=parts.watches.pods().confirmed_at_ms,
            outbox_facts=None if pending is None else pending.count,
            outbox_oldest_ms=None if pending is None else pending.oldest_ms,
            since_ms=parts.meter.tallies.since_ms or None,
        )

    def _health(self, sources: Sources, look: DeviceLook) -> Iterator[CollectorHealth]:
        name = self._parts.devices.name
        for collector, is_ok in (("cache", sources.survey.failure is None), (name, look.is_whole)):
            yield CollectorHealth(
                collector,
                is_ok,
                self._timing.seconds.get(collector),
                self._timing.success_ms.get(collector),
            )
        yield from self._parts.watches.health()

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        begun = self._parts.stopwatch()
        yield
        self._timing.seconds[name] = self._parts.stopwatch() - begun
