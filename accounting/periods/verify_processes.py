"""Several processes check one month, each a task at a time, all in the state that one of them sees.

Invariant: every process reads the snapshot of the transaction that asks, which stays open meanwhile; none
outlives the one that asked by more than the task it is at.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection, wait

from accounting.ledger.calendar import Month
from accounting.periods.verify_tasks import CardsTask, MonthCheck, Task, TaskFound
from accounting.periods.workers import Worker, answer_calls
from accounting.progress import Progress
from accounting.store.database import Database


def cards_of(task: Task) -> int:
    """How many cards a task computes."""
    return len(task.cards) if isinstance(task, CardsTask) else 0


def verify_in_processes(  # noqa: PLR0917 - what, where and how
    database: Database,
    month: Month,
    snapshot: str,
    tasks: Sequence[Task],
    processes: int,
    progress: Progress,
) -> list[TaskFound]:
    """Perform the tasks of a month; answers what was found, in their order.

    Args:
        database: PostgreSQL.
        month: Which.
        snapshot: Exported by a transaction that stays open.
        tasks: What to do.
        processes: How many share it.
        progress: Who wants to know how far it is.

    Raises:
        WorkerEndedError: A process ended by itself.
        Exception: What a task raised.
    """
    cards, done = sum(map(cards_of, tasks)), 0
    found: dict[int, TaskFound] = {}
    coming = iter(enumerate(tasks))
    busy: dict[Connection, tuple[Worker, int]] = {}

    def begin(worker: Worker) -> None:
        number, task = next(coming, (-1, None))
        if task is not None:
            worker.call(task)
            busy[worker.calls] = worker, number

    with ExitStack() as stack:
        progress("computing again", 0, cards)
        for _ in range(min(processes, len(tasks))):
            begin(stack.enter_context(Worker(_work, database.reopened_at(), month, snapshot, name="verify")))
        while busy:
            for calls in wait(list(busy)):
                worker, number = busy.pop(calls)  # type: ignore[call-overload] # each is one of them
                answer = worker.answer()
                assert isinstance(answer, TaskFound)
                found[number] = answer
                done += cards_of(tasks[number])
                progress("computing again", done, cards)
                begin(worker)
    return [found[number] for number in range(len(tasks))]


def _work(calls: Connection, url: str, month: Month, snapshot: str) -> None:
    """Perform task after task until the other end is closed."""
    database = Database(url)
    try:
        with database.reading(snapshot=snapshot) as session:
            check = MonthCheck(session, month)
            answer_calls(calls, check.perform)
    finally:
        database.close()
