"""The service as a process: a socket, uvicorn, and a thread that rates the open periods now and then.

Invariant: SIGTERM and SIGINT end the process with 0 after the requests in flight are done; a rating in
progress leaves off after the card that it is at. One that fails is logged and tried again, it never takes
the API down.
"""

from __future__ import annotations

import gc
import logging
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from accounting.errors import InvalidError
from accounting.periods.batch import Stop

_log = logging.getLogger(__name__)

_SHUTDOWN_SECONDS = 10

_OBJECTS_PER_COLLECTION = 100_000
"""A batch of facts makes tens of thousands of objects and no cycle: looking for one took half its time."""


class Rater:
    """Calls `rate` at once and then every `interval_seconds`, in a thread of its own, until stopped.

    `rate` is given what tells it to leave off.
    """

    def __init__(self, rate: Callable[[Stop], None], *, interval_seconds: float) -> None:
        self._rate = rate
        self._interval_seconds = interval_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rater")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the card that a rating in progress is at."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._rate(self._stopped.is_set)
            except Exception:  # noqa: BLE001 - whatever it is, the next round may do better
                _log.exception("rating the open periods failed; next try in %g s", self._interval_seconds)
            self._stopped.wait(self._interval_seconds)


def listen(address: str) -> socket.socket:
    """A listening socket for `HOST:PORT`; port 0 takes a free one.

    Raises:
        InvalidError: No such address, or somebody else listens there.
    """
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise InvalidError(f'listen address "{address}": write HOST:PORT, as 127.0.0.1:8476')
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, int(port)), family=family, backlog=512)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidError(f"cannot listen on {address}: {reason}; name another with --listen") from None


def address_of(listening: socket.socket) -> str:
    """The URL under which a listening socket is reached."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(app: FastAPI, listening: socket.socket, rater: Rater) -> None:
    """Serve until SIGTERM or SIGINT."""
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        server_header=False,
    )
    # uvicorn raises the signal once more when it is done; by then it has been obeyed.
    previous = {number: signal.signal(number, _obeyed) for number in (signal.SIGTERM, signal.SIGINT)}
    collections = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_OBJECTS_PER_COLLECTION, 20, 50)
    rater.start()
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        rater.stop()
        gc.set_threshold(*collections)
        for number, handler in previous.items():
            signal.signal(number, handler)


def _obeyed(_number: int, _frame: FrameType | None) -> None:
    """Nothing is left to do."""
