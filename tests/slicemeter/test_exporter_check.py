"""The command: the real process, with a driver's library in C, an API server, and an exporter that runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.kube.double import ApiDouble
from slicemeter.exporter import main
from tests.exporter.nvidia.driver import build, environment, node

PATIENCE_S = 60.0
ANSWERS = (
    "0 nvmlDeviceGetMemoryInfo_v2 0 16106127360 471859200 10000000000 5634268160",
    "0 nvmlDeviceGetComputeRunningProcesses_v3 0",
    "0 nvmlDeviceGetTotalEnergyConsumption 0 123456789",
    "0 nvmlDeviceGetTemperature 0 54",
)
HANGS = ("0 nvmlDeviceGetTotalEnergyConsumption 9999 5",)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def double(tmp_path: Path) -> Iterator[ApiDouble]:
    found = ApiDouble(tmp_path / "kube")
    found.create("Namespace", {"kind": "Namespace", "metadata": {"name": "kube-system", "uid": "ks"}})
    register = {"hami.io/node-nvidia-register": "GPU-0,10,15360,100,T4,0,true:"}
    meta = {"name": "worker-1", "uid": "node-uid", "annotations": register}
    found.create("Node", {"kind": "Node", "metadata": meta})
    with found:
        yield found


def flags(folder: Path, double: ApiDouble) -> list[str]:
    given = {
        "--cluster": "c1",
        "--node-name": "worker-1",
        "--kube-api-url": double.url,
        "--kube-ca-file": str(double.ca_file),
        "--kube-token-file": str(double.token_file),
        "--state-file": str(folder / "state.db"),
        "--container-roots": str(folder / "containers"),
        "--proc-root": "",
        "--mig-lock-file": str(folder / "mig.lock"),
    }
    return [word for flag in given.items() for word in flag]


def check(
    folder: Path, double: ApiDouble, library: Path, answers: Sequence[str]
) -> tuple[int, dict[str, dict[str, Any]]]:
    _, text = node(*answers)
    (folder / "answers").write_text(str(text))
    done = subprocess.run(
        [sys.executable, "-m", "slicemeter", "exporter", "check", "--json", *flags(folder, double)],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        env=environment(library, folder / "answers"),
    )  # fmt: skip
    assert done.stderr.count("Traceback") == 0, done.stderr
    found = json.loads(done.stdout)
    return done.returncode, {each["check"]: each for each in found["checks"]}


def test_a_card_is_told_with_what_its_driver_answers(
    tmp_path: Path, double: ApiDouble, library: Path
) -> None:
    code, checks = check(tmp_path, double, library, ANSWERS)
    assert code == 0
    answered, _, lacks = checks["card 0"]["detail"].partition("; not supported: ")
    assert answered == "Tesla T4 GPU-0: memory, processes, energy, temperature"
    assert "SM time of processes" in lacks
    assert checks["nvml"]["detail"] == "driver 550.54.15, 1 cards"
    assert checks["gpu processes"]["detail"] == "none runs now"


def test_a_driver_call_that_never_returns_is_told_and_the_command_ends(
    tmp_path: Path, double: ApiDouble, library: Path
) -> None:
    code, checks = check(tmp_path, double, library, HANGS)
    assert code == 1
    assert checks["nvml"] == {
        "check": "nvml",
        "ok": False,
        "verdict": "finding",
        "detail": "no answer within 5 s",
        "way_out": "the driver hangs: see dmesg; the exporter's page shows no figures of cards meanwhile",
    }


def test_an_exporter_that_runs_is_seen_and_not_disturbed(
    tmp_path: Path, double: ApiDouble, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-m", "slicemeter", "exporter", "node", *flags(tmp_path, double)]
    with subprocess.Popen([*command, "--listen-host", "127.0.0.1", "--listen-port", "0"]) as process:
        deadline_s = time.monotonic() + PATIENCE_S
        while not (tmp_path / "state.db-wal").exists() and time.monotonic() < deadline_s:
            threading.Event().wait(0.05)
        main(["check", "--json", *flags(tmp_path, double)])
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert f"in use by the exporter with pid {process.pid}" in capsys.readouterr().out


def test_the_cluster_role_is_checked_with_its_own_settings(
    tmp_path: Path, double: ApiDouble, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = [*flags(tmp_path, double)[:2], *flags(tmp_path, double)[4:12]]
    assert main(["check", "--role", "cluster", *kept]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "kubernetes events ok" in printed
    assert "kubernetes resourcequotas ok" in printed


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--cluster", "c1", "--kube-api-url", "https://127.0.0.1:1"], "node_name"),
        (["--role", "pod"], "--role"),
        (["--colour", "red"], "--colour"),
    ],
)
def test_bad_settings_are_one_line_and_exit_code_2(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("SLICEMETER_")]:
        monkeypatch.delenv(name)
    assert main(["check", *words]) == 2
    error = capsys.readouterr().err
    assert (error.count("\n"), told in error) == (1, True)


def test_the_help_says_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--help"]) == 0
    assert "why is my page empty?" in capsys.readouterr().out
