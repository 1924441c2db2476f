"""The cluster role's public entry: watch, tick until told to stop, end cleanly.

A tick follows each change and comes at least every second, since waiting and judging go on by themselves.
Invariant: a tick's counters are in the state file before its page is published, so that none on a page
ever goes back.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

from prometheus_client import Histogram

from contract.catalogue import BY_NAME
from contract.facts import Fact
from exporter.cluster.core import ClusterCore, Options, Outcome
from exporter.cluster.page import make_page
from exporter.cluster.snapshot import Snapshot
from exporter.cluster.state import ClusterState, Keeper, decode_state, encode_state
from exporter.cluster.watching import ClusterWatches
from exporter.delivery.metrics import DeliveryMetrics
from exporter.delivery.push import Pusher, Sender
from exporter.delivery.state import StateFile, read_boot_id
from exporter.errors import ExporterError
from exporter.exposition.board import Board
from exporter.exposition.collector import Exposition
from exporter.exposition.document import as_json
from exporter.exposition.door import Door
from exporter.exposition.encoder import PageEncoder
from exporter.exposition.pages import Extras
from exporter.exposition.server import MetricsServer
from exporter.kube.client import ApiClient
from exporter.kube.watch import wall_clock_ms
from exporter.settings import ClusterSettings

TICK_EVERY_S: Final = 1.0
TICK_APART_S: Final = 0.2
TICK_SHARE: Final = 4
"""A pause is at least so many times as long as its tick, so that a huge cluster costs a fifth of a core."""

FIRST_LISTS_WAIT_S: Final = 30.0
GRANT_BUCKETS_S: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400)

_log = logging.getLogger(__name__)


def run(settings: ClusterSettings, *, stop: threading.Event) -> int:
    """Run the cluster role until `stop` is set.

    Args:
        settings: What to watch and serve.
        stop: Set from a signal handler.

    Returns:
        The exit code: 0 after a clean stop (with `once`: after a full page), 1 when something was not
        listed or the role broke, 2 when it could not start.
    """
    try:
        role = _Role(settings, stop)
    except (ExporterError, OSError) as error:
        print(f"slicemeter exporter cluster: {error}", file=sys.stderr)
        return 2
    return role.print_once() if settings.once else role.serve()


class _Role:
    """The parts of one run, and their order of start and end."""

    def __init__(self, settings: ClusterSettings, stop: threading.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._wake = threading.Event()
        self._has_findings = False
        self._latest: Snapshot | None = None
        # Before anything is opened: whatever is wrong with these files ends the start.
        door = Door(settings.web_config_file, settings.metrics_token_file)
        self._board = Board()
        self._exposition = Exposition(self._board, "cluster")
        metrics = DeliveryMetrics(self._exposition.registry)
        grants = BY_NAME["grant_seconds"]
        self._grants = Histogram(
            grants.full_name, grants.help, registry=self._exposition.registry, buckets=GRANT_BUCKETS_S
        )
        self._watches = ClusterWatches(ApiClient(settings.kube), self._wake.set, settings.resources)
        # One page for a person must not fight for the file of the exporter that runs.
        self._store = None if settings.once else _open_store(settings, metrics)
        self._core = ClusterCore(_options(settings), self._restored())
        self._keeper = Keeper()
        self._server: MetricsServer | None = None
        self._pusher: Pusher | None = None
        if self._store is None:
            return
        try:
            self._server = MetricsServer(
                self._exposition,
                self.readiness,
                host=settings.listen_host,
                port=settings.listen_port,
                door=door,
                extras=Extras(snapshot=self._snapshot_json),
            )
        except OSError:
            self._store.close()
            raise
        if settings.accounting is not None:
            self._pusher = Pusher(
                self._store, settings.accounting, metrics, sender=self._sender, wall_ms=wall_clock_ms
            )

    def serve(self) -> int:
        """Serve until stopped."""
        assert self._server is not None
        self._watches.start()
        self._server.start()
        _log.info("serving http://%s:%d/metrics", self._settings.listen_host, self._server.port)
        if self._pusher is not None:
            self._pusher.start()
        try:
            while not self._stop.is_set():
                self._wait(self._tick())
            if self._store is not None and self._has_findings:
                # The next run knows up to now what was there.
                self._store.commit(encode_state(self._core.dump()), ())
        except Exception:  # noqa: BLE001 - whatever it was, the process ends and says so
            _log.exception("the cluster role broke")
            return 1
        finally:
            self._end()
        return 0

    def print_once(self) -> int:
        """Take one look, print the page, end."""
        self._watches.start()
        self._watches.wait_listed(FIRST_LISTS_WAIT_S)
        self._tick()
        self._watches.stop()
        page = self._board.latest()
        assert page is not None
        sys.stdout.write(PageEncoder().render(page, openmetrics=False).decode())
        missing = self._watches.missing()
        for reason in missing:
            print(f"slicemeter exporter cluster: {reason}", file=sys.stderr)
        return 1 if missing else 0

    def readiness(self) -> tuple[bool, Sequence[str]]:
        """Whether the figures are complete, and why not."""
        reasons = self._watches.missing()
        if not reasons and not self._has_findings:
            reasons.append("no snapshot was taken yet")
        return not reasons, reasons

    def _snapshot_json(self) -> bytes | None:
        return None if self._latest is None else as_json(self._latest)

    def _wait(self, tick_s: float) -> None:
        """Until the next change, at most a second; never so soon that ticks take the machine."""
        self._stop.wait(max(TICK_APART_S, TICK_SHARE * tick_s))
        self._wake.wait(TICK_EVERY_S - TICK_APART_S)
        self._wake.clear()

    def _tick(self) -> float:
        """Look, store, publish; returns how long it took."""
        began_s = time.monotonic()
        now_ms = wall_clock_ms()
        seen = self._watches.seen()
        outcome = None if seen is None else self._core.tick(seen, now_ms)
        duration_s = time.monotonic() - began_s
        if outcome is not None:
            self._keep(outcome, now_ms)
        self._latest = snapshot = self._snapshot(outcome, now_ms, duration_s)
        self._board.publish(make_page(snapshot, self._settings.series_budget))
        self._has_findings = outcome is not None
        return time.monotonic() - began_s

    def _keep(self, outcome: Outcome, now_ms: int) -> None:
        facts: tuple[Fact, ...] = outcome.facts if self._settings.accounting is not None else ()
        if self._store is not None:
            state = self._core.dump()
            is_due = self._keeper.is_due(state, now_ms, is_said=bool(facts))
            if is_due:
                # What a full disk refused is offered again at the next tick.
                is_stored = self._store.commit(encode_state(state), facts)
                self._keeper.kept(state, now_ms, is_stored=is_stored)
        for seconds in outcome.granted_s:
            self._grants.observe(seconds)

    def _snapshot(self, outcome: Outcome | None, now_ms: int, duration_s: float) -> Snapshot:
        waiting = None if self._store is None else self._store.pending()
        return Snapshot(
            at_ms=now_ms,
            view_ms=self._watches.view_ms(),
            duration_ms=duration_s * 1_000,
            collectors=self._watches.health(),
            findings=None if outcome is None else outcome.findings,
            annotation_errors=self._core.flaws.counts(),
            since_ms=self._core.since_ms,
            outbox_facts=None if waiting is None else waiting.count,
            outbox_oldest_ms=None if waiting is None else waiting.oldest_ms,
        )

    def _end(self) -> None:
        self._watches.stop()
        if self._pusher is not None:
            self._pusher.stop()
        if self._server is not None:
            self._server.stop()
        if self._store is not None:
            self._store.close()

    def _sender(self) -> Sender | None:
        uid = self._watches.cluster_uid()
        if uid is None or self._store is None:
            return None
        return Sender("cluster", self._store.epoch, uid)

    def _restored(self) -> ClusterState | None:
        return None if self._store is None else self._store.resumed(decode_state)


def _open_store(settings: ClusterSettings, metrics: DeliveryMetrics) -> StateFile:
    return StateFile.open(settings.state_file, read_boot_id(), metrics)


def _options(settings: ClusterSettings) -> Options:
    accounting = settings.accounting
    return Options(
        cluster=settings.cluster,
        names=settings.resources,
        tenant_rules=settings.tenant_from,
        scheduler_names=settings.scheduler_names,
        lock_timeout_ms=round(settings.lock_timeout_seconds * 1_000),
        push_interval_ms=round((accounting.push_interval_seconds if accounting else 300.0) * 1_000),
    )
