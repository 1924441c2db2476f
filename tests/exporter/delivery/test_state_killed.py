"""A run that is killed at any instant: counters never go back, no fact is lost, none is doubled."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

from prometheus_client import CollectorRegistry

from exporter.delivery.metrics import DeliveryMetrics
from exporter.delivery.state import StateFile

KILLS = 12

RUN = """
import sys
from pathlib import Path
from prometheus_client import CollectorRegistry
from contract.facts import NodeStateFact
from exporter.delivery.metrics import DeliveryMetrics
from exporter.delivery.state import StateFile

state = StateFile.open(Path(sys.argv[1]), "boot", DeliveryMetrics(CollectorRegistry()))
number = int(state.restored or b"0")
print("restored", number, flush=True)
while True:
    number += 1
    fact = NodeStateFact(cluster="a", node_uid="u", node=str(number), from_ms=number, to_ms=number + 1,
                         ready=True, heartbeat_at_ms=number)
    assert state.commit(str(number).encode(), [fact])
    print("published", number, flush=True)
    if number % 7 == 0:
        batch = state.batch(3)
        for entry in batch.entries:
            print("sent", entry.line.decode(), flush=True)
        state.acknowledge(batch)
        print("acknowledged", flush=True)
"""


def lines_until_killed(path: Path, kill_after: int) -> list[str]:
    """What a run printed up to its death; it goes on while we decide, so the kill falls anywhere."""
    with subprocess.Popen([sys.executable, "-c", RUN, str(path)], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        lines = []
        for line in run.stdout:
            lines.append(line)
            if len(lines) == kill_after:
                run.kill()
        assert run.wait(timeout=30) == -signal.SIGKILL
    return [line.strip() for line in lines if line.endswith("\n")]


def test_after_any_kill_counters_go_on_and_every_fact_is_there_once(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    chance = random.Random(20_261_001)
    published = 0
    acknowledged: set[int] = set()
    perhaps: set[int] = set()
    for _ in range(KILLS):
        batch: set[int] = set()
        for line in lines_until_killed(path, chance.randrange(2, 120)):
            word, _, rest = line.partition(" ")
            if word == "restored":
                assert int(rest) >= published
                published = int(rest)
            elif word == "published":
                assert int(rest) == published + 1
                published += 1
            elif word == "sent":
                batch.add(int(json.loads(rest)["node"]))
            else:
                assert not batch & acknowledged
                acknowledged |= batch
                batch = set()
        perhaps |= batch
    state = StateFile.open(path, "boot", DeliveryMetrics(CollectorRegistry()))
    committed = int(state.restored or b"0")
    waiting = [int(json.loads(entry.line)["node"]) for entry in state.batch(1_000_000).entries]
    state.close()
    assert committed >= published > KILLS
    assert len(waiting) == len(set(waiting))
    gone = set(range(1, committed + 1)) - set(waiting)
    assert acknowledged <= gone
    assert gone <= acknowledged | perhaps, "facts are gone that were never sent"
