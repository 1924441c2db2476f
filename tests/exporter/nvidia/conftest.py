"""Fixtures with the mock driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exporter.nvidia.driver import Play, build, player


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the mock `libnvidia-ml.so.1`, built once."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a driver that lacks the newer functions."""
    return build(tmp_path_factory.mktemp("nvml-old"), "-DOLD_DRIVER")


@pytest.fixture
def play(library: Path, tmp_path: Path) -> Play:
    """Plays steps against `NvmlSource` and the mock driver."""
    return player(library, tmp_path / "answers")


@pytest.fixture
def play_old(old_library: Path, tmp_path: Path) -> Play:
    """The same with the old driver."""
    return player(old_library, tmp_path / "answers")
