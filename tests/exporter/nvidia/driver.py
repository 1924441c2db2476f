"""The mock driver: a C library in place of `libnvidia-ml.so.1`, and steps played against `NvmlSource`."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
GCC = shutil.which("gcc")

Step: TypeAlias = tuple[object, ...]
Play: TypeAlias = Callable[..., list[dict[str, Any]]]

NODE = """\
* nvmlInitWithFlags 0
* nvmlShutdown 0
* nvmlSystemGetDriverVersion 0 550.54.15
* nvmlEventSetCreate 0
* nvmlEventSetFree 0
"""
IDENTITY = """\
{index} nvmlDeviceGetHandleByIndex_v2 0
{index} nvmlDeviceGetUUID 0 GPU-{index}
{index} nvmlDeviceGetName 0 Tesla T4
{index} nvmlDeviceGetPciInfo_v3 0 00000000:{index}B:00.0
"""
NOW_S = 1_800_000_000
NOW_US = NOW_S * 1_000_000
OPEN: tuple[Step, ...] = (("clock", NOW_S), ("open",))


def node(*lines: str, cards: int = 1) -> Step:
    """Answers of a node with `cards` T4; what is not in `lines` is not supported, a later line wins."""
    identities = [IDENTITY.format(index=index) for index in range(cards)]
    count = f"* nvmlDeviceGetCount_v2 0 {cards}\n"
    return ("answers", NODE + count + "".join(identities) + "\n".join(lines) + "\n")


def only(given: dict[str, Any]) -> dict[str, Any]:
    """The reading of the only card."""
    (reading,) = given["readings"]
    assert isinstance(reading, dict)
    return reading


def build(folder: pathlib.Path, *flags: str) -> pathlib.Path:
    """Build the mock `libnvidia-ml.so.1` into a folder."""
    if GCC is None:
        if os.environ.get("CI"):
            pytest.fail("gcc builds the mock of NVML; install it")
        pytest.skip("no gcc to build the mock of NVML")
    built = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [GCC, *flags, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", built, HERE / "mock_nvml.c"],
        check=True,
    )
    return folder


def environment(library: pathlib.Path, answers: pathlib.Path) -> dict[str, str]:
    """A process with this environment has the mock as its driver."""
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(library),
        "MOCK_NVML": str(answers),
        "PYTHONPATH": str(ROOT),
    }


def player(library: pathlib.Path, answers: pathlib.Path) -> Play:
    """Plays steps against `NvmlSource` in a process where the mock is the driver's library."""

    def run(*steps: Step, logged: list[str] | None = None) -> list[dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, str(HERE / "ask_nvml.py")],
            input=json.dumps(steps),
            capture_output=True,
            text=True,
            env=environment(library, answers),
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        if logged is not None:
            logged += done.stderr.splitlines()
        given: list[dict[str, Any]] = json.loads(done.stdout)
        return given

    return run
