"""`slicemeter demo`: brings the stack up, shows it, and with `--once` judges every figure.

Invariant: whatever happens, programs are ended and the folder is removed; only after a failure the logs
stay, and their path is printed.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console

from lab.bookkeeping import Command
from lab.checks.evidence import Evidence
from lab.checks.gathering import gather
from lab.checks.table import UNITS_LINE, check_table
from lab.checks.verdict import judge
from lab.footprint import Footprint, FootprintMeter
from lab.live.costs import CostWatcher
from lab.live.watch import Watch, picture
from lab.pages import Album
from lab.processes import LabError
from lab.scenarios.demo import demo
from lab.stack import Stack

REFRESH_S = 0.5
COSTS_EVERY_S = 2.0
LIVE_PAGES = 150
"""Pages kept of a target in the live demo: more than the mean's window."""

CHECK_TAKES_S = 20
"""About: the exporters send the rest, accounting rates it, and is asked everything."""

PICTURE_BEFORE_END_S = 6
FILE_WIDTH = 140


@dataclass(frozen=True, slots=True)
class Options:
    """How the demo is run; see `slicemeter demo --help`."""

    once: bool = False
    disturb: bool = False
    picture: Path | None = None


def run(options: Options, command: Command) -> int:
    """Run the demo; returns its exit code."""
    console = Console()
    if not console.is_terminal:
        # Nobody's window limits a file: tables keep their words whole.
        console = Console(width=FILE_WIDTH)
    folder = Path(tempfile.mkdtemp(prefix="slicemeter-demo-"))
    album = Album(keep=None if options.once else LIVE_PAGES)
    stack = Stack(demo(ends=options.once), folder, command, disturb=options.disturb, album=album)
    has_failed = True
    try:
        with interrupted_by(signal.SIGTERM, signal.SIGHUP):
            code = _Demo(options, stack, folder, console).play()
            has_failed = code != 0
    except KeyboardInterrupt:
        console.print("stopped")
        code, has_failed = 130 if options.once else 0, False
    except LabError as error:
        console.print(f"slicemeter demo: {error}", markup=False, highlight=False, style="red")
        code = 1
    finally:
        _clean_up(stack, folder, console, keep_logs=has_failed)
    return code


def _clean_up(stack: Stack, folder: Path, console: Console, *, keep_logs: bool) -> None:
    """End every program and remove the folder; a second Ctrl-C must not leave anything behind."""
    impatient = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in impatient}
    try:
        stack.stop()
        if keep_logs:
            _keep_only(folder, stack.logs)
            console.print(f"logs: {stack.logs}", markup=False, highlight=False, soft_wrap=True)
        else:
            shutil.rmtree(folder)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Demo:
    """One run between start and end."""

    def __init__(self, options: Options, stack: Stack, folder: Path, console: Console) -> None:
        self._folder = folder
        self._options = options
        self._stack = stack
        self._console = console
        self._meter = FootprintMeter()
        self._pause = threading.Event()

    def play(self) -> int:
        stack, console = self._stack, self._console
        ends_s = stack.scenario.ends_s
        console.print("starting three API servers, accounting and six exporters …", highlight=False)
        if ends_s is not None:
            console.print(
                f"from then on the scenario takes {ends_s} s and the check some {CHECK_TAKES_S} s more",
                highlight=False,
            )
        stack.start()
        costs = CostWatcher(
            stack.books, stack.scenario, self._folder / "statements", stack.addresses, COSTS_EVERY_S
        )
        costs.start()
        hint = "Ctrl-C stops everything"
        if ends_s is not None:
            hint += f"; ends at {ends_s // 60:02}:{ends_s % 60:02}, then checks"
        codes = [cluster.code for cluster in stack.scenario.clusters]
        try:
            addresses = [costs.address, *stack.addresses]
            with Watch(
                console, codes, stack.album, addresses=addresses, questions=costs.questions, hint=hint
            ) as watch:
                evidence = self._watch(watch, costs)
        finally:
            costs.stop()
        return 0 if evidence is None else self._judge(evidence)

    def _watch(self, watch: Watch, costs: CostWatcher) -> Evidence | None:
        """Show the run until it is over, then gather what accounting says."""
        stack = self._stack
        ends_s = stack.scenario.ends_s
        ready: dict[str, bool] | None = None
        while not stack.is_over:
            stack.check()
            peak = self._look()
            watch.show(stack.elapsed_s, stack.step, costs.costs, peak)
            if ends_s is not None and ready is None and stack.elapsed_s >= ends_s - PICTURE_BEFORE_END_S:
                ready = {target.name: stack.is_ready(target) for target in stack.exporter_targets}
                self._draw(watch)
            self._pause.wait(REFRESH_S)
        stack.check()
        if ready is None:
            return None
        watch.show(stack.elapsed_s, "accounting takes in the last facts", costs.costs, self._look())
        return gather(stack, ready, self._pause)

    def _look(self) -> Footprint:
        self._meter.read([os.getpid(), *self._stack.household.pids()], time.monotonic())
        return self._meter.peak

    def _draw(self, watch: Watch) -> None:
        if self._options.picture is not None and watch.screen is not None:
            self._options.picture.write_text(picture(watch.screen), "utf-8")

    def _judge(self, evidence: Evidence) -> int:
        checks = list(judge(evidence))
        self._console.print(check_table(checks))
        self._console.print(UNITS_LINE, style="dim", highlight=False)
        off = [check for check in checks if not check.is_right]
        peak = self._meter.peak
        self._console.print(
            f"{len(checks) - len(off)} of {len(checks)} figures are right; "
            f"peak {peak.memory_bytes / 1e9:.2f} GB of memory, {peak.cores:.1f} cores",
            highlight=False,
        )
        return 1 if off else 0


@contextmanager
def interrupted_by(*numbers: signal.Signals) -> Iterator[None]:
    """These signals end what is inside as Ctrl-C does: SIGTERM, and the terminal's being closed."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _keep_only(folder: Path, logs: Path) -> None:
    """Remove everything of a run but its logs: books, tokens and keys have no use afterwards."""
    for path in folder.iterdir():
        if path == logs:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
