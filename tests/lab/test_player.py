"""The player: cues in order, each once, and an error that is told."""

from __future__ import annotations

import itertools
import threading

from lab.scenarios.player import Cue, Player


def test_streams_are_merged_by_time_and_each_cue_is_played_once() -> None:
    played: list[str] = []
    first = [Cue(0.00, lambda: played.append("a")), Cue(0.02, lambda: played.append("c"))]
    second = [Cue(0.01, lambda: played.append("b")), Cue(0.03, lambda: played.append("d"))]
    # A clock far beyond every cue: they are all late, and late is better than never.
    player = Player([first, second], start_s=0, now_s=lambda: 100.0)

    player.start()
    player.wait(10)

    assert player.is_over
    assert played == ["a", "b", "c", "d"]


def test_a_stream_without_an_end_is_played_until_it_is_stopped() -> None:
    seen = threading.Event()
    endless = (Cue(number, seen.set) for number in itertools.count())
    player = Player([endless], start_s=0, now_s=lambda: 5.0)

    player.start()
    assert seen.wait(10)
    player.stop()

    assert player.is_over
    assert player.error is None


def test_a_cue_waits_for_its_moment() -> None:
    played: list[int] = []
    player = Player([[Cue(1_000, lambda: played.append(1))]], start_s=0, now_s=lambda: 0.0)

    player.start()
    player.stop()

    assert played == []


def test_the_first_cue_that_fails_stops_the_play_and_is_told() -> None:
    played: list[str] = []

    def fail() -> None:
        raise RuntimeError("no such pod")

    cues = [Cue(0, fail), Cue(1, lambda: played.append("later"))]
    player = Player([cues], start_s=0, now_s=lambda: 100.0)

    player.start()
    player.wait(10)

    assert str(player.error) == "no such pod"
    assert played == []


def test_the_step_is_the_last_text_and_silent_cues_leave_it() -> None:
    cues = [Cue(0, lambda: None, "pod a is bound"), Cue(1, lambda: None)]
    player = Player([cues], start_s=0, now_s=lambda: 100.0)

    player.start()
    player.wait(10)

    assert player.step == "pod a is bound"
