from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from exporter.kube.backoff import Backoff


class FixedRandom(Random):
    """Always the same draw."""

    def __init__(self, draw: float) -> None:
        super().__init__(0)
        self._draw = draw

    def random(self) -> float:
        return self._draw


def test_waits_double_up_to_the_ceiling() -> None:
    backoff = Backoff(0.5, 30.0, FixedRandom(0.0))
    assert [backoff.next_s() for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_jitter_takes_off_up_to_half() -> None:
    backoff = Backoff(0.5, 30.0, FixedRandom(0.5))
    assert [backoff.next_s() for _ in range(3)] == [0.375, 0.75, 1.5]


def test_after_a_success_the_first_wait_comes_again() -> None:
    backoff = Backoff(0.5, 30.0, FixedRandom(0.0))
    backoff.next_s()
    backoff.next_s()
    backoff.reset()
    assert backoff.next_s() == 0.5


def test_retry_after_is_obeyed_but_not_for_hours() -> None:
    assert Backoff(0.5, 30.0, FixedRandom(0.0)).next_s(7.0) == 7.0
    assert Backoff(0.5, 30.0, FixedRandom(0.0)).next_s(86_400.0) == 300.0


@given(st.integers(0, 2**32), st.floats(0, 300), st.integers(0, 20))
def test_no_wait_is_shorter_than_the_server_asked_for(seed: int, asked_s: float, failures: int) -> None:
    backoff = Backoff(0.5, 30.0, Random(seed))
    for _ in range(failures):
        backoff.next_s()
    assert asked_s <= backoff.next_s(asked_s) <= max(asked_s + 0.5, 30.0)
