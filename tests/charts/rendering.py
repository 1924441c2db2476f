"""Render the chart, and write what comes out in one spelling, whichever Helm made it.

A golden file is the objects of one file of `charts/slicemeter/ci`, by kind and name, keys sorted. Generated
tokens are masked, and dashboards, which are compared byte by byte elsewhere, are left out. `SOURCES` holds a
hash of all that goldens are made of, so that a change of the chart is seen where there is no Helm.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "slicemeter"
CASES = sorted((CHART / "ci").glob("*-values.yaml"))
GOLDEN = Path(__file__).parent / "golden"
SOURCES = GOLDEN / "SOURCES.sha256"
KUBERNETES = ("1.25.0", "1.31.0", "1.37.0")
RENEW = "make chart-golden (needs helm; `make chart-tools` fetches one)"

Manifest: TypeAlias = dict[str, Any]


def helms() -> list[Path]:
    """The Helm programs there are: $HELM, that of the PATH, and those that `make chart-tools` fetched."""
    found = [
        os.environ.get("HELM"),
        shutil.which("helm"),
        *map(str, sorted((ROOT / "build").glob("helm/*/helm"))),
    ]
    return list(dict.fromkeys(Path(each).resolve() for each in found if each))


def run(helm: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Helm; the caller looks at the exit code."""
    return subprocess.run([helm, *words], capture_output=True, text=True, check=False)


def template(helm: Path, values: Path, *more: str, kubernetes: str = "1.31.0") -> str:
    """What one file of values renders to."""
    done = run(
        helm,
        "template",
        "slicemeter",
        CHART,
        "-n",
        "slicemeter",
        "--kube-version",
        kubernetes,
        "-f",
        values,
        *more,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(text: str) -> list[Manifest]:
    """The objects of a stream, by kind and name."""
    found = [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]
    return sorted(found, key=lambda each: (each["kind"], each["metadata"]["name"]))


def canonical(text: str) -> str:
    """The golden form of what Helm rendered."""
    kept = []
    for each in objects(text):
        if each["kind"] == "Secret":
            mask = base64.b64encode(b"generated").decode()
            each["data"] = dict.fromkeys(each["data"], mask)
        elif each["kind"] == "ConfigMap" and "-dashboard-" in each["metadata"]["name"]:
            each["data"] = dict.fromkeys(each["data"], "{}")
        kept.append(each)
    return yaml.safe_dump_all(kept, explicit_start=True, sort_keys=True, allow_unicode=True, width=110)


def golden_of(values: Path) -> Path:
    """Where the golden file of a file of values is."""
    return GOLDEN / f"{values.stem.removesuffix('-values')}.yaml"


@cache
def golden(values: Path) -> list[Manifest]:
    """The objects of a golden file."""
    return objects(golden_of(values).read_text(encoding="utf-8"))


def sources() -> str:
    """A hash of every file that has a say in the goldens; of dashboards only the names."""
    digest = hashlib.sha256()
    for path in sorted(each for each in CHART.rglob("*") if each.is_file()):
        name = path.relative_to(CHART).as_posix()
        if name != "README.md":
            text = b"" if name.startswith("files/dashboards/") else path.read_bytes()
            digest.update(f"{name}\0{len(text)}\0".encode() + text)
    return digest.hexdigest() + "\n"


def pod_of(each: Manifest) -> Manifest | None:
    """Labels, annotations and spec of the pods that an object makes, if it makes any."""
    spec = each.get("spec", {})
    if each["kind"] == "Pod":
        return each
    if each["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    template_: Manifest | None = spec.get("template") if each["kind"] != "PrometheusRule" else None
    return template_


def containers(pod: Manifest) -> list[Manifest]:
    """All containers of a pod."""
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
