from __future__ import annotations

import threading

import pytest

from accounting.api.serving import Rater, address_of, listen
from accounting.periods.batch import Stop


def test_a_rating_that_fails_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    rounds: list[int] = []
    second = threading.Event()

    def rate(_stop: Stop) -> None:
        rounds.append(len(rounds))
        if len(rounds) == 1:
            raise RuntimeError("the first round fails")
        second.set()

    rater = Rater(rate, interval_seconds=0.01)
    rater.start()
    assert second.wait(30)
    rater.stop()
    assert "rating the open periods failed" in caplog.text
    assert "the first round fails" in caplog.text


def test_a_rater_ends_without_waiting_for_its_interval() -> None:
    rated = threading.Event()
    rater = Rater(lambda _stop: rated.set(), interval_seconds=86_400)
    rater.start()
    assert rated.wait(30)
    rater.stop()


def test_a_rating_in_progress_is_told_to_leave_off() -> None:
    begun = threading.Event()
    left_off = threading.Event()

    def rate(stop: Stop) -> None:
        begun.set()
        while not stop():
            threading.Event().wait(0.01)
        left_off.set()

    rater = Rater(rate, interval_seconds=86_400)
    rater.start()
    assert begun.wait(30)
    rater.stop()
    assert left_off.is_set()


@pytest.mark.parametrize(
    ("address", "prefix"), [("127.0.0.1:0", "http://127.0.0.1:"), ("[::1]:0", "http://[::1]:")]
)
def test_port_0_takes_a_free_port_and_tells_it(address: str, prefix: str) -> None:
    with listen(address) as listening:
        url = address_of(listening)
    assert url.startswith(prefix)
    assert int(url.rpartition(":")[2]) > 0
