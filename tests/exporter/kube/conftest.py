"""A real API double over TLS, and real watches on it that end with the test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from exporter.kube.client import ApiClient
from exporter.kube.feed import Timing
from exporter.kube.resources import Resource
from exporter.kube.watch import ObjectWatch
from lab.kube.double import ApiDouble

PATIENCE_S = 20.0
FAST = Timing(
    silence_s=5.0,
    watch_min_s=60.0,
    watch_max_s=60.0,
    list_silence_s=5.0,
    first_wait_s=0.005,
    ceiling_s=0.05,
    doubt_s=0.005,
)


class Watching(Protocol):
    """Starts a watch with the fast timing."""

    def __call__(self, resource: Resource[Any], **options: Any) -> ObjectWatch[Any]: ...


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiDouble]:
    with ApiDouble(tmp_path / "api", bookmark_interval_s=0.02) as double:
        yield double


@pytest.fixture
def client(api: ApiDouble) -> ApiClient:
    return ApiClient(api.access)


@pytest.fixture
def watching(client: ApiClient) -> Iterator[Watching]:
    started: list[ObjectWatch[Any]] = []

    def start(resource: Resource[Any], **options: Any) -> ObjectWatch[Any]:
        watch = ObjectWatch(client, resource, **({"timing": FAST} | options))
        started.append(watch)
        watch.start()
        return watch

    yield start
    for watch in started:
        watch.stop()


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    """Waits until a condition holds; fails when it never does."""

    def wait(condition: Callable[[], object]) -> None:
        pause = threading.Event()
        for _ in range(int(PATIENCE_S / 0.005)):
            if condition():
                return
            pause.wait(0.005)
        pytest.fail(f"did not come true within {PATIENCE_S} s")

    return wait
