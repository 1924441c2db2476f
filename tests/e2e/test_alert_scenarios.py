"""Every scene of the rehearsal with the real programs: exactly what must arrive does, in the right words.

Some ten minutes of real seconds, so it stands outside of what must pass everywhere; `make alert-scenarios`
runs it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab.rehearsal.rehearsal import rehearse
from lab.rehearsal.scene import Scene
from lab.rehearsal.scenes import SCENES
from lab.rehearsal.table import faults
from lab.rehearsal.tempo import Tempo
from slicemeter.demo import accounting_command

pytestmark = [pytest.mark.timed, pytest.mark.promtool]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_exactly_the_expected_alerts_arrive_with_their_labels_and_words(
    scene: Scene, need_tool: Callable[[str, str], str]
) -> None:
    need_tool("prometheus", "prometheus")
    need_tool("prometheus-alertmanager", "prometheus-alertmanager")
    outcome = rehearse(scene, Tempo(1), accounting_command, lambda _: None)
    assert list(faults(outcome)) == []
