"""The house itself: what is promised about files, packages and documents."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from contract.metrics_page import metrics_page
from exporter.settings_page import settings_page
from slicemeter.cli import COMMANDS, usage

ROOT = Path(__file__).parents[2]
PACKAGES = ("slicemeter", "contract", "exporter", "accounting", "dashboards", "lab", "migrations")


def test_requirement_files_are_pinned_hashed_and_name_no_address() -> None:
    files = sorted((ROOT / "requirements").glob("*.txt"))
    assert [file.stem for file in files] == [
        "accounting",
        "dashboards",
        "dev",
        "exporter",
        "lab",
        "parquet",
        "pdf",
        "top",
    ]
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert "://" not in text
        blocks = [block for block in re.split(r"\n(?=\S)", text) if "==" in block]
        assert blocks
        assert all("--hash=sha256:" in block for block in blocks), file


def test_the_exporter_needs_five_light_packages() -> None:
    text = (ROOT / "requirements" / "exporter.txt").read_text(encoding="utf-8")
    packages = re.findall(r"^([\w-]+)==", text, re.MULTILINE)
    assert packages == ["bcrypt", "msgspec", "nvidia-ml-py", "prometheus-client", "pyyaml"]


def test_the_metrics_page_is_the_catalogue() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == metrics_page(), "run: make docs"


def test_the_settings_page_is_what_the_code_says() -> None:
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == settings_page(), "run: make docs"


def test_the_first_screen_of_the_readme_has_both_commands_and_the_picture() -> None:
    first_screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:24])
    assert "make demo" in first_screen
    assert "make test" in first_screen
    [picture] = re.findall(r"!\[[^]]+]\(([^)]+)\)", first_screen)
    assert (ROOT / picture).is_file()


def test_every_page_that_a_page_points_to_exists() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            if not re.match(r"\w+:", target):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_command_is_in_the_help_and_in_the_documents() -> None:
    documents = "\n".join(
        page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    )
    for command in COMMANDS:
        assert f"  {command.name} " in usage()
        assert f"slicemeter {command.name}" in documents, command.name


def test_help_is_instant_and_loads_no_part() -> None:
    program = (
        "import sys; from slicemeter.cli import main; main(['--help']);"
        "print([name for name in sys.modules if name.partition('.')[0] in"
        " {'exporter', 'accounting', 'dashboards', 'lab', 'fastapi', 'sqlalchemy', 'prometheus_client'}])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_unknown_command_is_refused_with_the_list_of_those_there_are() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "slicemeter", "metre"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "metre" in line
    assert "cache" in line


@pytest.mark.slow
def test_the_wheel_holds_every_package_and_works_without_the_source(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, ROOT],
        check=True,
        cwd=tmp_path,
    )
    [wheel] = tmp_path.glob("slicemeter-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "migrations/alembic.ini" in names
    assert not [name for name in names if name.startswith("tests/")]
    target = tmp_path / "installed"
    subprocess.run([*pip, "install", "--no-deps", "--target", target, wheel], check=True, cwd=tmp_path)
    program = (
        f"import sys; sys.path.insert(0, {str(target)!r})\n"
        "import importlib, pkgutil\n"
        f"for name in {PACKAGES!r}:\n"
        "    package = importlib.import_module(name)\n"
        f"    assert package.__file__.startswith({str(target)!r}), package.__file__\n"
        "    for found in pkgutil.walk_packages(package.__path__, name + '.'):\n"
        "        runs_when_imported = found.name in {'migrations.env', 'slicemeter.__main__'}\n"
        "        if not runs_when_imported and '.versions.' not in found.name:\n"
        "            importlib.import_module(found.name)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)
