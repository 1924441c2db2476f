"""What a node pays: heavy libraries are never loaded by the exporter, and help loads nothing."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys

import pytest

import exporter

HEAVY = (
    "sqlalchemy",
    "fastapi",
    "pydantic",
    "numpy",
    "httpx",
    "kubernetes",
    "starlette",
    "jinja2",
    "alembic",
)

MODULES = sorted(module.name for module in pkgutil.walk_packages(exporter.__path__, exporter.__name__ + "."))


def loaded_after(program: str) -> set[str]:
    """Top-level names in `sys.modules` of a fresh interpreter that ran a program."""
    report = "\nimport json, sys\nprint(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    run = subprocess.run(
        [sys.executable, "-c", program + report], check=True, capture_output=True, text=True, timeout=60
    )
    return set(json.loads(run.stdout.splitlines()[-1]))


def test_the_walk_finds_every_room() -> None:
    rooms = {name.split(".")[1] for name in MODULES}
    assert {"hami", "kube", "nvidia", "node", "cluster", "exposition", "delivery", "settings"} <= rooms


def test_the_exporter_loads_no_heavy_library() -> None:
    loaded = loaded_after("\n".join(f"import {name}" for name in MODULES))
    assert "exporter" in loaded
    assert not loaded & set(HEAVY)


def test_the_exporter_loads_no_pynvml_before_a_driver_is_wanted() -> None:
    # 17 MiB of private memory (`reference/tooling.md §4`): a node without a driver pays nothing.
    assert "pynvml" not in loaded_after("\n".join(f"import {name}" for name in MODULES))


def test_the_exporter_loads_no_yaml_and_no_bcrypt_before_a_web_config_file_is_given() -> None:
    assert not {"yaml", "bcrypt"} & loaded_after("\n".join(f"import {name}" for name in MODULES))


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["nonsense"]])
def test_help_loads_neither_the_exporter_nor_its_libraries(arguments: list[str]) -> None:
    loaded = loaded_after(f"import slicemeter.cli\nslicemeter.cli.main({arguments!r})")
    parts = {"exporter", "accounting", "dashboards", "lab", "prometheus_client", "msgspec"}
    assert not loaded & {*HEAVY, *parts}
