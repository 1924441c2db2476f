"""Several processes rate one cluster's cards, each some cards at a time; one asks and counts.

Python rates on one core. Invariant: whichever process ends, however it ends, what it had begun is rolled
back and stays due; no process outlives the one that asked by more than the transaction it is in.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Self

from accounting.periods.batch import BatchRated, Stop, StoppedError, rate_batch
from accounting.store.database import Database
from contract.ids import DeviceKey

_LOOK_SECONDS = 0.2
"""How often whoever asks looks whether to stop."""


class RatingProcessError(RuntimeError):
    """A rating process ended by itself; what it had not committed is due as before."""


def rate_in_processes(
    database: Database, batches: Sequence[Sequence[DeviceKey]], processes: int, stop: Stop
) -> Iterator[BatchRated]:
    """Rate batches of cards in so many processes; ends early, without the rest, when `stop` says so.

    Raises:
        RatingProcessError: A process ended.
        Exception: What rating a batch raised.
    """
    coming = iter(batches)
    with ExitStack() as stack:
        workers = [stack.enter_context(_Worker(database)) for _ in range(processes)]
        busy = [worker for worker in workers if worker.begin(next(coming, None))]
        while busy:
            if stop():
                return
            answered = wait([worker.calls for worker in busy], _LOOK_SECONDS)
            for worker in [one for one in busy if one.calls in answered]:
                yield worker.answer()
                if not worker.begin(next(coming, None)):
                    busy.remove(worker)


class _Worker:
    """A process that rates what it is called with; it ends when nobody can call it any more."""

    def __init__(self, database: Database) -> None:
        # Not forked: a service has threads, and what they hold would stay held in the copy.
        context = get_context("spawn")
        self.calls, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=_work, args=(database.reopened_at(), theirs), name="rating", daemon=True
        )
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.calls.close()
        self._process.join()

    def begin(self, batch: Sequence[DeviceKey] | None) -> bool:
        """Ask for a batch, if there is one."""
        if batch is None:
            return False
        try:
            self.calls.send(batch)
        except OSError:
            raise self._ended() from None
        return True

    def answer(self) -> BatchRated:
        """What became of the batch that it was asked for."""
        try:
            answer = self.calls.recv()
        except (EOFError, OSError):
            raise self._ended() from None
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, BatchRated)
        return answer

    def _ended(self) -> RatingProcessError:
        self._process.join()
        return RatingProcessError(
            f"a process that rates ended with {self._process.exitcode}; what it had begun is still due"
        )


def _work(url: str, calls: Connection) -> None:
    """Rate batch after batch until the other end is closed."""
    # Ctrl-C goes to all processes of a terminal; whoever asks decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    database = Database(url)
    try:
        while True:
            batch = calls.recv()
            calls.send(_answer(database, batch, calls))
    except (EOFError, OSError, StoppedError):
        pass
    finally:
        database.close()


def _answer(database: Database, batch: Sequence[DeviceKey], calls: Connection) -> BatchRated | Exception:
    try:
        # While a batch is rated the other end sends nothing: what comes is its end.
        return rate_batch(database, batch, stop=calls.poll)
    except StoppedError:
        raise
    except Exception as error:  # noqa: BLE001 - whoever asked raises it
        return error
