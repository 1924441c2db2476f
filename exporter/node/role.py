"""The node role's public entry: put the parts together, tick until told to stop, end cleanly.

The command passes NVML as the device source, the laboratory its simulated cards; nothing else differs.
Invariant: a source that hangs costs fresh figures and nothing more: the page goes on answering, says how
old it is, and beyond the stated age shows no figures.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from contract.facts import Fact
from contract.ids import NodeUid, new_epoch
from contract.units import MS_PER_SECOND
from exporter.delivery.metrics import DeliveryMetrics
from exporter.delivery.push import Pusher, Sender
from exporter.delivery.state import BOOT_ID_FILE, StateFile, read_boot_id
from exporter.delivery.witness import Witness
from exporter.errors import ExporterError
from exporter.exposition.board import Board
from exporter.exposition.collector import Exposition
from exporter.exposition.document import as_json
from exporter.exposition.door import Door
from exporter.exposition.encoder import PageEncoder
from exporter.exposition.page import Page
from exporter.exposition.pages import Extras
from exporter.exposition.server import MetricsServer
from exporter.hami.annotations.tally import FlawTally
from exporter.kube.client import ApiClient
from exporter.node import heap
from exporter.node.attribution.owners import Attributor
from exporter.node.attribution.residents import Residents
from exporter.node.clock import system_clock
from exporter.node.metering.hours import Origin
from exporter.node.metering.meter import Meter
from exporter.node.metering.packing import NodeState, resume, unpack
from exporter.node.sampler import Parts, Sampler
from exporter.node.showing.page import make_stale_page
from exporter.node.sources.caches import CacheReader
from exporter.node.sources.devices import DeviceReader
from exporter.node.sources.liveness import Liveness
from exporter.node.sources.pods import PodBook
from exporter.node.sources.processes import ProcessTable
from exporter.node.tallies import Tallies
from exporter.node.watching import NodeWatches
from exporter.nvidia.source import DeviceSource
from exporter.settings import NodeSettings

STALE_AFTER_S = 10.0
"""The stated age: an older snapshot shows no figures (five sampling periods, if that is more)."""

FIRST_LISTS_WAIT_S = 10.0
LISTS_LOOK_S = 0.05
STOP_WAIT_S = 5.0

_log = logging.getLogger(__name__)


def run(settings: NodeSettings, source: DeviceSource | None, *, stop: threading.Event) -> int:
    """Run the node role until `stop` is set.

    Args:
        settings: What to watch, read and serve.
        source: The node's cards; None = there is no NVML.
        stop: Set from a signal handler.

    Returns:
        The exit code: 0 after a clean stop, 1 when the sampler broke, 2 when it could not start.
    """
    heap.begin()
    try:
        role = _Role(settings, source, stop)
    except (ExporterError, OSError) as error:
        print(f"slicemeter exporter node: {error}", file=sys.stderr)
        return 2
    return role.print_once() if settings.once else role.serve()


class _Role:
    """The parts of one run, and their order of start and end."""

    def __init__(self, settings: NodeSettings, source: DeviceSource | None, stop: threading.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._stale_after_s = max(STALE_AFTER_S, 5 * settings.sample_interval_seconds)
        self._broke = False
        self._ticked_at_s: float | None = None
        # Before anything is opened: whatever is wrong with these files ends the start.
        door = Door(settings.web_config_file, settings.metrics_token_file)
        self._board = Board()
        self._hami_board = Board() if settings.compat == "hami" else None
        self._exposition = Exposition(self._board, "node")
        metrics = DeliveryMetrics(self._exposition.registry)
        # One page for a person must not fight for the file of the exporter that runs.
        self._store = None if settings.once else _open_store(settings, metrics)
        self._parts = self._make_parts(source)
        self._sampler = Sampler(self._parts)
        self._server: MetricsServer | None = None
        self._pusher: Pusher | None = None
        try:
            if not settings.once:
                self._server = MetricsServer(
                    self._exposition,
                    self.readiness,
                    host=settings.listen_host,
                    port=settings.listen_port,
                    door=door,
                    extras=Extras(self._hami_board, self._snapshot_json),
                )
        except OSError:
            assert self._store is not None
            self._store.close()
            raise
        if self._store is not None and settings.accounting is not None:
            self._pusher = Pusher(
                self._store, settings.accounting, metrics, sender=self._sender, wall_ms=_wall_ms
            )

    def serve(self) -> int:
        """Serve until stopped."""
        assert self._server is not None
        self._parts.watches.start()
        self._server.start()
        if self._pusher is not None:
            self._pusher.start()
        # The sampler has a thread of its own: a call that hangs in a driver must not keep us from ending.
        sampler = threading.Thread(target=self._sample, name="sampler", daemon=True)
        sampler.start()
        while not self._stop.wait(1.0):
            self._mark_stale()
        sampler.join(STOP_WAIT_S)
        if sampler.is_alive():
            _log.warning("a source hangs; ending without it")
        self._parts.watches.stop()
        if self._pusher is not None:
            self._pusher.stop()
        self._server.stop()
        if self._store is not None:
            self._store.close()
        heap.end()
        return 1 if self._broke else 0

    def print_once(self) -> int:
        """Take one look, print the page, end."""
        self._parts.watches.start()
        self._await_lists()
        self._sampler.tick(self._stop.wait)
        self._sampler.close()
        self._parts.watches.stop()
        page = self._board.latest()
        assert page is not None
        sys.stdout.write(PageEncoder().render(page, openmetrics=False).decode())
        for reason in self._parts.watches.missing():
            print(f"slicemeter exporter node: {reason}", file=sys.stderr)
        return 1 if self._parts.watches.missing() else 0

    def readiness(self) -> tuple[bool, Sequence[str]]:
        """Whether the figures are complete, and why not."""
        reasons = self._parts.watches.missing()
        node, _ = self._parts.watches.node()
        if not reasons and node is None:
            reasons.append(f'there is no Node "{self._settings.node_name}"')
        ticked_at_s = self._ticked_at_s
        if ticked_at_s is None:
            reasons.append("no snapshot was taken yet")
        elif time.monotonic() - ticked_at_s > self._stale_after_s:
            reasons.append(f"the snapshot is older than {self._stale_after_s:g} s: a source hangs")
        return not reasons, reasons

    def _sample(self) -> None:
        interval_s = self._settings.sample_interval_seconds
        try:
            self._await_lists()
            due_s = time.monotonic()
            while not self._stop.is_set():
                self._sampler.tick(self._stop.wait)
                if self._ticked_at_s is None:
                    heap.settle()
                self._ticked_at_s = time.monotonic()
                # A tick that took too long is not made up for: the meter knows how long it was.
                due_s = max(due_s + interval_s, self._ticked_at_s)
                if self._server is not None:
                    self._server.pages.make_ahead(self._ticked_at_s, due_s)
                self._stop.wait(due_s - time.monotonic())
            self._sampler.finish()
        except Exception:  # noqa: BLE001 - whatever it was, the process ends and says so
            _log.exception("the sampler broke")
            self._broke = True
            self._stop.set()

    def _await_lists(self) -> None:
        """Give the API server a moment, so that the first page is whole."""
        deadline_s = time.monotonic() + FIRST_LISTS_WAIT_S
        while self._parts.watches.missing() and time.monotonic() < deadline_s:
            if self._stop.wait(LISTS_LOOK_S):
                return

    def _mark_stale(self) -> None:
        ticked_at_s, snapshot = self._ticked_at_s, self._sampler.snapshot
        if ticked_at_s is None or snapshot is None:
            return
        if time.monotonic() - ticked_at_s > self._stale_after_s:
            self._board.publish(make_stale_page(snapshot))
            if self._hami_board is not None:
                self._hami_board.publish(Page(snapshot.at_ms / MS_PER_SECOND, ()))

    def _snapshot_json(self) -> bytes | None:
        snapshot = self._sampler.snapshot
        return None if snapshot is None else as_json(snapshot)

    def _sender(self) -> Sender | None:
        uid = self._parts.watches.cluster_uid()
        node, _ = self._parts.watches.node()
        if uid is None or node is None or self._store is None:
            return None
        return Sender("node", self._store.epoch, uid, node.metadata.name, node.metadata.uid)

    def _make_parts(self, source: DeviceSource | None) -> Parts:
        settings = self._settings
        state = self._restored()
        tallies = Tallies(
            state.tallies if state is not None else None,
            since_ms=state.since_ms if state is not None else _wall_ms(),
        )
        flaws = FlawTally(state.annotation_errors if state is not None else None, is_silent=state is not None)
        epoch = self._store.epoch if self._store is not None else new_epoch()
        meter = Meter(
            Origin(settings.cluster, NodeUid(""), epoch),
            period_ms=round(settings.sample_interval_seconds * 1_000),
            ended_keep_ms=round(settings.ended_keep_seconds * 1_000),
            tallies=tallies,
        )
        closing: list[Fact] = []
        if state is not None:
            closing += resume(meter, state, epoch)
        push_interval_s = settings.accounting.push_interval_seconds if settings.accounting else 300.0
        push_interval_ms = round(push_interval_s * 1_000)
        return Parts(
            node_name=settings.node_name,
            clock=system_clock,
            watches=NodeWatches(
                ApiClient(settings.kube),
                settings.node_name,
                may_all_be_gone=lambda: not self._sampler.has_living,
                flaws=flaws,
                clock=system_clock,
            ),
            flaws=flaws,
            book=PodBook(settings.resources, settings.tenant_from, flaws),
            caches=CacheReader(settings.container_roots, tallies),
            devices=DeviceReader(
                source,
                settings.mig_lock_file,
                tallies,
                had_readings=state.had_readings if state is not None else False,
                histories=state.histories if state is not None else (),
            ),
            attributor=Attributor(Residents(ProcessTable(settings.proc_root), Liveness()), tallies),
            meter=meter,
            witness=Witness(
                settings.cluster, "node", push_interval_ms, state.witness if state is not None else None
            ),
            board=self._board,
            store=self._store,
            sends_facts=settings.accounting is not None,
            push_interval_ms=push_interval_ms,
            series_budget=settings.series_budget,
            hami_board=self._hami_board,
            closing=closing,
        )

    def _restored(self) -> NodeState | None:
        return None if self._store is None else self._store.resumed(unpack)


def _open_store(settings: NodeSettings, metrics: DeliveryMetrics) -> StateFile:
    return StateFile.open(settings.state_file, read_boot_id(_boot_id_file(settings.proc_root)), metrics)


def _boot_id_file(proc_root: Path | None) -> Path:
    """The host's boot id, where its `/proc` is mounted."""
    if proc_root is not None:
        found = proc_root / "sys/kernel/random/boot_id"
        if found.exists():
            return found
    return BOOT_ID_FILE


def _wall_ms() -> int:
    return system_clock().wall_ms
