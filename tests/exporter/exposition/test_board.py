"""The board: a page is made when it is first wanted, once, and nobody who publishes waits for it."""

from __future__ import annotations

import threading

import pytest

from exporter.exposition.board import Board, Draft
from exporter.exposition.page import Page

JOIN_S = 20.0


class Maker:
    """Makes one page, counts how often, and takes as long as the test wants."""

    def __init__(self, at_seconds: float = 1.0, *, dropped_series: int = 0) -> None:
        self.page = Page(at_seconds, (), dropped_series)
        self.calls = 0
        self.entered = threading.Event()
        self.leave = threading.Event()
        self.leave.set()

    def __call__(self) -> Page:
        self.calls += 1
        self.entered.set()
        assert self.leave.wait(JOIN_S)
        return self.page


def test_before_the_first_tick_there_is_no_page() -> None:
    assert Board().latest() is None


def test_a_finished_page_can_be_published_too() -> None:
    board, page = Board(), Page(1.0, ())
    board.publish(page)
    assert board.latest() is page


def test_a_snapshot_nobody_scrapes_costs_no_page() -> None:
    board, unwanted, wanted = Board(), Maker(), Maker()
    board.publish(Draft(unwanted))
    board.publish(Draft(wanted))
    assert board.latest() is wanted.page
    assert board.latest() is wanted.page
    assert (unwanted.calls, wanted.calls) == (0, 1)


def test_scrapes_at_the_same_time_make_one_page() -> None:
    board, maker = Board(), Maker()
    maker.leave.clear()
    board.publish(Draft(maker))
    pages: list[Page | None] = []
    threads = [threading.Thread(target=lambda: pages.append(board.latest())) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert maker.entered.wait(JOIN_S)
    maker.leave.set()
    for thread in threads:
        thread.join(JOIN_S)
    assert pages == [maker.page] * 4
    assert maker.calls == 1


def test_the_sampler_never_waits_for_a_page_that_is_being_made() -> None:
    board, slow, newer = Board(), Maker(), Maker()
    slow.leave.clear()
    board.publish(Draft(slow))
    scrape = threading.Thread(target=board.latest)
    scrape.start()
    assert slow.entered.wait(JOIN_S)
    board.publish(Draft(newer))
    assert board.latest() is newer.page
    slow.leave.set()
    scrape.join(JOIN_S)


def test_a_caller_whose_deadline_comes_first_gets_the_page_before() -> None:
    board, before, slow = Board(), Maker(), Maker(2.0)
    board.publish(Draft(before))
    assert board.latest() is before.page
    slow.leave.clear()
    board.publish(Draft(slow))
    scrape = threading.Thread(target=board.latest)
    scrape.start()
    assert slow.entered.wait(JOIN_S)
    assert board.latest(patience_s=0.0) is before.page
    slow.leave.set()
    scrape.join(JOIN_S)
    assert board.latest(patience_s=0.0) is slow.page


def test_the_first_page_is_waited_for_since_there_is_none_before() -> None:
    board, slow = Board(), Maker()
    slow.leave.clear()
    board.publish(Draft(slow))
    pages: list[Page | None] = []
    threads = [threading.Thread(target=lambda: pages.append(board.latest(patience_s=0.0))) for _ in range(2)]
    threads[0].start()
    assert slow.entered.wait(JOIN_S)
    threads[1].start()
    slow.leave.set()
    for thread in threads:
        thread.join(JOIN_S)
    assert pages == [slow.page, slow.page]


def test_a_page_that_could_not_be_made_is_tried_again_at_the_next_scrape() -> None:
    attempts = iter([ValueError("no"), None])

    def make() -> Page:
        problem = next(attempts)
        if problem is not None:
            raise problem
        return Page(1.0, ())

    board = Board()
    board.publish(Draft(make))
    with pytest.raises(ValueError, match="no"):
        board.latest()
    assert board.latest() == Page(1.0, ())


def test_dropped_series_are_counted_once_for_each_page_that_was_made() -> None:
    board = Board()
    board.publish(Draft(Maker(dropped_series=3)))
    assert board.dropped_series == 0
    board.latest()
    board.latest()
    assert board.dropped_series == 3
    board.publish(Draft(Maker(dropped_series=4)))
    board.latest()
    assert board.dropped_series == 7
