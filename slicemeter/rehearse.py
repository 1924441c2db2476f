"""`slicemeter rules rehearse`: which alerts arrive when something happens, tried with the real programs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from rich.console import Console

from lab.demo import interrupted_by
from lab.processes import LabError
from lab.rehearsal.monitoring import program
from lab.rehearsal.rehearsal import Outcome, rehearse
from lab.rehearsal.scene import Scene
from lab.rehearsal.scenes import SCENES
from lab.rehearsal.table import outcome_table
from lab.rehearsal.tempo import Tempo
from slicemeter.demo import accounting_command

FILE_WIDTH = 160


def main(names: Sequence[str], minute_s: int, *, is_list: bool) -> int:
    """Play scenes; 0 when exactly what must arrive did, 1 when not, 2 when one cannot be played.

    Args:
        names: Scenes; all when empty.
        minute_s: Seconds that a minute takes.
        is_list: Print what scenes there are instead.
    """
    console = Console()
    if not console.is_terminal:
        console = Console(width=FILE_WIDTH)
    if is_list:
        for scene in SCENES:
            console.print(f"{scene.name:<20} {scene.about}", highlight=False)
        return 0
    known = {scene.name: scene for scene in SCENES}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f'slicemeter rules: no scene "{unknown[0]}"; they are: {", ".join(known)}', file=sys.stderr)
        return 2
    return _play([known[name] for name in names or known], Tempo(minute_s), console)


def _play(scenes: Sequence[Scene], tempo: Tempo, console: Console) -> int:
    outcomes: list[Outcome] = []

    def told(text: str) -> None:
        console.print(text, highlight=False)

    try:
        for name in ("prometheus", "prometheus-alertmanager"):
            program(name)
        with interrupted_by(signal.SIGTERM, signal.SIGHUP):
            outcomes.extend(rehearse(scene, tempo, accounting_command, told) for scene in scenes)
    except LabError as error:
        print(f"slicemeter rules: {error}", file=sys.stderr)
        return 2
    finally:
        if outcomes:
            console.print(outcome_table(outcomes))
    return 0 if all(outcome.is_right for outcome in outcomes) else 1
