"""Plays one scene from its first second to its last and says what arrived and what should have.

Invariant: what is judged came over HTTP from Alertmanager; programs are ended and the folder is removed
whatever happens.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab.bookkeeping import Command
from lab.pages import Album
from lab.rehearsal.monitoring import Monitoring, answers
from lab.rehearsal.receiver import Message, Notice, Receiver
from lab.rehearsal.scene import Expected, Scene, says
from lab.rehearsal.tempo import Tempo
from lab.stack import Stack

LOOK_EVERY_S = 0.2
SAMPLE_INTERVAL_S = 0.25
LATE_BY_MINUTES = 10
"""How much longer than a scene lasts what must arrive is waited for, on a slow machine."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """An expected alert and how it came.

    Attributes:
        after_minutes: From the scene's start, in its own minutes; None: it never came.
        faults: What is wrong with it, in words.
    """

    expected: Expected
    after_minutes: float | None
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a scene went."""

    scene: Scene
    arrivals: tuple[Arrival, ...]
    unexpected: tuple[Notice, ...]
    leaks: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        """Whether exactly what must arrive did, in the right words, and no tenant read of another."""
        faults = any(arrival.faults for arrival in self.arrivals)
        return not faults and not self.unexpected and not self.leaks


def rehearse(scene: Scene, tempo: Tempo, command: Command, told: Callable[[str], None]) -> Outcome:
    """Play a scene.

    Args:
        scene: Which.
        tempo: How fast.
        command: How `slicemeter accounting` commands are run.
        told: What a person may read while it plays.

    Raises:
        LabError: A program is missing, died, or was not ready in time.
    """
    folder = Path(tempfile.mkdtemp(prefix="slicemeter-rehearsal-"))
    scenario = scene.plan(tempo.minute_s)
    receiver = Receiver()
    stack = Stack(
        scenario,
        folder / "stack",
        command,
        disturb=bool(scenario.kills),
        album=Album(keep=1),
        sample_interval_s=SAMPLE_INTERVAL_S,
    )
    [cluster] = scenario.clusters
    try:
        receiver.start()
        stack.start()
        assert stack.start_s is not None
        monitoring = Monitoring(folder / "monitoring", stack.logs, tempo)
        books = (stack.books.target, stack.books.operator_token_file)
        address = monitoring.start(
            stack.household, stack.exporter_targets, books, receiver.url, cluster.namespaces
        )
        _wait(stack, lambda: answers(address), time.time() + 60)
        begun_s = time.time()
        told(f"{scene.name}: {scene.about}; {scene.lasts_minutes} minutes")
        ends_s = begun_s + scene.lasts_minutes * tempo.minute_s
        _wait(stack, lambda: False, ends_s)
        late_s = ends_s + LATE_BY_MINUTES * tempo.minute_s
        _wait(stack, lambda: _has_all(scene, receiver), late_s)
        return _judge(scene, tempo, begun_s, receiver, cluster.namespaces)
    finally:
        stack.stop()
        receiver.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _wait(stack: Stack, is_done: Callable[[], bool], until_s: float) -> None:
    pause = threading.Event()
    while time.time() < until_s and not is_done():
        stack.check()
        pause.wait(LOOK_EVERY_S)


def _has_all(scene: Scene, receiver: Receiver) -> bool:
    arrived = [notice.labels for notice in receiver.notices()]
    told = receiver.messages()
    return all(
        each.all_labels in arrived and (not each.tenant_text or _told(each, told)) for each in scene.expected
    )


def _told(expected: Expected, messages: tuple[Message, ...]) -> bool:
    return any(says(expected.tenant_text, line) for each in messages for line in each.text.splitlines())


def _judge(
    scene: Scene, tempo: Tempo, begun_s: float, receiver: Receiver, tenants: tuple[str, ...]
) -> Outcome:
    notices, messages = receiver.notices(), receiver.messages()
    arrivals = []
    for expected in scene.expected:
        found = next((each for each in notices if each.labels == expected.all_labels), None)
        after = None if found is None else (found.at_s - begun_s) / tempo.minute_s
        arrivals.append(Arrival(expected, after, tuple(_faults(expected, found, messages))))
    wanted = [each.all_labels for each in scene.expected]
    unexpected = tuple(each for each in notices if dict(each.labels) not in wanted)
    return Outcome(scene, tuple(arrivals), unexpected, tuple(_leaks(messages, tenants)))


def _faults(expected: Expected, found: Notice | None, messages: tuple[Message, ...]) -> list[str]:
    if found is None:
        return ["never arrived"]
    faults = []
    said = found.annotations["description"]
    if not says(expected.text, said):
        faults.append(f"says: {said}")
    page = f"{found.labels['alertname'].lower()}.md"
    if not found.annotations["runbook_url"].endswith(f"/{page}"):
        faults.append(f"leads to {found.annotations['runbook_url']}")
    if expected.tenant_text and not _told(expected, messages):
        faults.append("the tenant's own channel was not told so")
    return faults


def _leaks(messages: tuple[Message, ...], tenants: tuple[str, ...]) -> list[str]:
    """Messages that name another tenant, or tell a tenant of what is none of theirs."""
    return [
        f"{message.tenant} was told of {other}: {message.body}"
        for message in messages
        for other in tenants
        if other != message.tenant and other in message.body
    ]
