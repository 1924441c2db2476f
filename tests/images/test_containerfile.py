"""What is promised of the images, as far as it can be read; `make images-check` looks at what was built."""

from __future__ import annotations

import importlib.util
import re
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "Containerfile").read_text(encoding="utf-8")
STAGES = {
    re.split(r"\s+", stage.splitlines()[0])[-1]: stage
    for stage in re.split(r"^(?=FROM )", TEXT, flags=re.MULTILINE)[1:]
}


def test_there_are_two_images_and_each_is_built_in_a_stage_that_stays_behind() -> None:
    assert list(STAGES) == ["exporter-build", "exporter", "accounting-build", "accounting"]
    for part in ("exporter", "accounting"):
        copied = re.findall(r"^COPY (.+)$", STAGES[part], re.MULTILINE)
        assert copied == [f"--from={part}-build /opt/slicemeter /opt/slicemeter"]


def test_both_run_as_the_charts_user_and_start_without_a_shell() -> None:
    for part in ("exporter", "accounting"):
        assert re.findall(r"^USER (.+)$", STAGES[part], re.MULTILINE) == ["65532:65532"]
        assert 'ENTRYPOINT ["slicemeter"]' in STAGES[part]


def test_every_stage_has_the_same_base_and_its_tag_is_not_the_latest() -> None:
    assert re.findall(r"^FROM (\S+)", TEXT, re.MULTILINE) == ["${BASE_IMAGE}"] * 4
    [default] = re.findall(r"^ARG BASE_IMAGE=(\S+)$", TEXT, re.MULTILINE)
    assert re.fullmatch(r"python:3\.\d+-slim-\w+", default)


def test_packages_come_from_wheels_and_by_their_hashes_alone() -> None:
    script = (ROOT / "images" / "assemble.sh").read_text(encoding="utf-8")
    installs = re.findall(r"pip install (.*?)(?=\n\"|\n$)", script, re.DOTALL)
    assert len(installs) == 2
    assert all("--no-index" in each for each in installs)
    assert "--require-hashes" in installs[0]
    assert "--no-deps" in installs[1]
    assert "slicemeter-*.whl" in installs[1]


def test_only_the_exporters_own_requirements_are_in_its_image() -> None:
    assert "sh /images/assemble.sh exporter\n" in STAGES["exporter-build"]
    assert re.findall(r"COPY requirements/(.+) /requirements/", STAGES["exporter-build"]) == ["exporter.txt"]


def test_the_bill_of_materials_names_what_is_installed_and_is_the_same_twice() -> None:
    spec = importlib.util.spec_from_file_location("sbom", ROOT / "images" / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    sbom = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sbom)
    installed = [distribution("msgspec"), distribution("prometheus-client")]
    bill = sbom.bill(installed)
    assert [each["name"].replace("_", "-") for each in bill["components"]] == ["msgspec", "prometheus-client"]
    [version] = re.findall(
        r"^msgspec==(\S+)", (ROOT / "requirements/exporter.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert bill["components"][0]["purl"] == f"pkg:pypi/msgspec@{version}"
    assert bill == sbom.bill(list(reversed(installed)))
