"""A process of ours that does what it is called with, one call after the other.

Python works on one core. Invariant: no process outlives the one that calls it by more than the call it is
at: it ends when nobody can call it any more, however that came.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Self, TypeVar

Call = TypeVar("Call")


class WorkerEndedError(RuntimeError):
    """A process ended by itself, without an answer."""


class Worker:
    """A process, and the end of the pipe by which it is called.

    Args:
        work: What it runs, with its own end of the pipe and the arguments; see `answer_calls`.
        arguments: Whatever else it needs.
        name: Of the process.
    """

    def __init__(self, work: Callable[..., None], *arguments: object, name: str) -> None:
        # Not forked: a service has threads, and what they hold would stay held in the copy.
        context = get_context("spawn")
        self.calls, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=_begin, args=(work, theirs, *arguments), name=name, daemon=True
        )
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.calls.close()
        self._process.join()

    def call(self, what: object) -> None:
        """Ask for something; `answer` gives what came of it."""
        try:
            self.calls.send(what)
        except OSError:
            raise self._ended() from None

    def answer(self) -> object:
        """What came of the call; waits for it.

        Raises:
            WorkerEndedError: The process ended.
            Exception: What the call raised.
        """
        try:
            answer = self.calls.recv()
        except (EOFError, OSError):
            raise self._ended() from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _ended(self) -> WorkerEndedError:
        self._process.join()
        return WorkerEndedError(
            f"a process for {self._process.name} ended with {self._process.exitcode}; run the command again"
        )


def _begin(work: Callable[..., None], calls: Connection, *arguments: Any) -> None:
    # Ctrl-C goes to all processes of a terminal; whoever asks decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    work(calls, *arguments)


def answer_calls(calls: Connection, perform: Callable[[Any], object]) -> None:
    """Perform call after call until the other end is closed."""
    try:
        while True:
            what = calls.recv()
            try:
                answer = perform(what)
            except Exception as error:  # noqa: BLE001 - whoever called raises it
                answer = error
            calls.send(answer)
    except (EOFError, OSError):
        pass
