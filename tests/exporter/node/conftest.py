"""Fixtures of the node role's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.exporter.node.stand import Stand


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    """A GPU node with HAMi's tree and a scripted card; its API server is up, its exporter is not."""
    found = Stand(tmp_path)
    found.open()
    yield found
    found.close()


@pytest.fixture
def mock_stand(tmp_path: Path) -> Iterator[Stand]:
    """A node of the mock device plugin: no NVML, no tree."""
    found = Stand(tmp_path, is_mock=True)
    found.open()
    yield found
    found.close()
