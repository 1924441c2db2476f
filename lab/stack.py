"""The whole stack on one computer: API servers, books, exporters, and the player that moves it all.

Invariant: what `start` began, `stop` ends, in whatever state it was; nothing outlives the run but a
log folder after a failure.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from lab.bookkeeping import Bookkeeping, Command
from lab.devices.proc_tree import ProcTree
from lab.devices.processes import processes_of
from lab.devices.simulated import StartFile
from lab.exporters import SAMPLE_INTERVAL_S, Billing, Exporter, Host, Simulation, Target, exporters_of
from lab.live.view import Address
from lab.pages import Album, fetch
from lab.processes import Household, LabError
from lab.scenarios.plan import Scenario
from lab.scenarios.player import Cue, Player
from lab.scenarios.stage import Stage
from lab.scraping import Scraper
from lab.workloads.gpu_workload import Containers

READY_WITHIN_S = 90.0
SCRAPE_INTERVAL_S = 0.5
TOLD_S = 45
"""The live scenario's last event lies before; it goes on until somebody stops it."""

LEAD_S = 2
"""From the moment everything is ready to second 0."""


class Stack:
    """One run of a scenario.

    Args:
        scenario: What will happen.
        folder: For state, caches, sockets and logs; the caller removes it.
        command: How `slicemeter accounting` commands are run.
        disturb: Do the scenario's kills.
        album: Where scraped pages go.
        sample_interval_s: Of the node exporters.
    """

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        command: Command,
        *,
        disturb: bool,
        album: Album,
        sample_interval_s: float = SAMPLE_INTERVAL_S,
    ) -> None:
        self.scenario = scenario
        self.album = album
        self.logs = folder / "logs"
        self.household = Household()
        self.start_s: int | None = None
        self._folder = folder
        self._disturb = disturb
        self._sample_interval_s = sample_interval_s
        self._stopping = threading.Event()
        self._stages = [Stage(cluster, folder / cluster.code / "api") for cluster in scenario.clusters]
        self.books = Bookkeeping(scenario, folder / "books", self.logs, self.household, command)
        self._exporters: list[Exporter] = []
        self._containers: list[Containers] = []
        self._scraper: Scraper | None = None
        self._player: Player | None = None

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Bring everything up, and begin the scenario when all of it is ready.

        Raises:
            LabError: A part died or was not ready in time.
        """
        self.logs.mkdir(parents=True)
        now_s = int(time.time())
        start_file = StartFile(self._folder / "start.json")
        for stage in self._stages:
            stage.open(now_s)
        self.books.open()
        simulation = Simulation(start_file.path, now_s)
        for stage in self._stages:
            self._start_exporters(stage, simulation)
        self._wait_until_ready()
        self._scraper = Scraper(self.exporter_targets, self.album, SCRAPE_INTERVAL_S)
        self._scraper.start()
        self.start_s = int(time.time()) + LEAD_S
        self.books.start_s = self.start_s
        start_file.write(self.start_s)
        self._player = Player(self._streams(self.start_s), self.start_s)
        self._player.start()

    def stop(self) -> None:
        """End everything."""
        self._stopping.set()
        if self._player is not None:
            self._player.stop()
        if self._scraper is not None:
            self._scraper.stop()
        self.household.stop()
        for containers in self._containers:
            containers.close()
        for stage in self._stages:
            stage.close()

    def stop_exporters(self) -> None:
        """End the exporters alone; accounting goes on."""
        if self._scraper is not None:
            self._scraper.stop()
        for exporter in self._exporters:
            exporter.program.ask_to_stop()
        for exporter in self._exporters:
            exporter.program.stop()

    def check(self) -> None:
        """Raise `LabError` if a part has failed."""
        self.household.check()
        if self._player is not None and self._player.error is not None:
            raise LabError(f"the scenario cannot go on: {self._player.error!r}")

    # -- what is seen from outside ---------------------------------------------------------------

    @property
    def exporter_targets(self) -> list[Target]:
        """The exporters' pages."""
        return [exporter.target for exporter in self._exporters]

    @property
    def addresses(self) -> list[Address]:
        """What a person may open without a token."""
        pages = [Address(target.name, target.metrics_url) for target in self.exporter_targets]
        return [
            *pages,
            Address("accounting", self.books.target.metrics_url),
            Address("its API", f"{self.books.target.url}/api/v1/openapi.json"),
        ]

    @property
    def is_disturbed(self) -> bool:
        """Whether the scenario's kills are done."""
        return self._disturb

    @property
    def step(self) -> str:
        """What happened last."""
        return "" if self._player is None else self._player.step

    @property
    def elapsed_s(self) -> float:
        """Seconds since the scenario's start, below 0 before it."""
        return 0.0 if self.start_s is None else time.time() - self.start_s

    @property
    def is_over(self) -> bool:
        """Whether the scenario has come to its end."""
        return self._player is not None and self._player.is_over

    def is_ready(self, target: Target) -> bool:
        """What its `/readyz` says."""
        return fetch(f"{target.url}/readyz") is not None

    # -- parts -----------------------------------------------------------------------------------

    def _start_exporters(self, stage: Stage, simulation: Simulation) -> None:
        cluster = stage.cluster
        root = self._folder / cluster.code
        host = Host(root / "containers", root / "proc", root / "state")
        host.state_root.mkdir(parents=True)
        containers = Containers(cluster, processes_of(cluster), host.container_root, ProcTree(host.proc_root))
        self._containers.append(containers)
        billing = Billing(
            self.books.target.url,
            self.books.reporter_token_file(cluster, "node"),
            self.books.reporter_token_file(cluster, "cluster"),
        )
        for exporter in exporters_of(
            stage, host, billing, simulation, self.logs, sample_interval_s=self._sample_interval_s
        ):
            self._exporters.append(exporter)
            self.household.add(exporter.program)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        waiting = self.exporter_targets
        while waiting:
            self.check()
            waiting = [target for target in waiting if not self.is_ready(target)]
            if waiting and time.monotonic() > deadline:
                name = waiting[0].name
                tail = self.household[name].tail()
                raise LabError(f"{name} was not ready within {READY_WITHIN_S:g} s; its log ends:\n{tail}")
            self._stopping.wait(0.1)

    def _streams(self, start_s: int) -> Iterator[Iterator[Cue]]:
        for stage, containers in zip(self._stages, self._containers, strict=True):
            yield stage.cues(start_s)
            yield stage.heartbeats(start_s, self.scenario.ends_s)
            yield stage.outage()
            yield from containers.streams()
        if self.scenario.ends_s is None:
            yield iter([Cue(TOLD_S, lambda: None, "all is told; the held slice goes on cycling")])
        if self._disturb:
            yield iter(sorted(self._kill_cues(), key=lambda cue: cue.at_s))

    def _kill_cues(self) -> Iterator[Cue]:
        for kill in self.scenario.kills:
            program = self.household[kill.target]
            yield Cue(kill.at_s, program.kill, f"kill -9 {kill.target}")
            yield Cue(kill.back_s, program.start, f"{kill.target} is started again")
