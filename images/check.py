"""Look into the images that `make images` built, and run each as its user on a read-only root.

Prints a table: size, packages, seconds to the first page, memory. Ends with 1 and says what
is wrong when a promise of docs/security.md does not hold. Needs root and buildah.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[1]
BUILDAH = ["buildah", *shlex.split(os.environ.get("BUILDAH_FLAGS", ""))]
VERSION = re.findall(r'VERSION = "(.+)"', (ROOT / "contract/version.py").read_text(encoding="utf-8"))[0]
PARTS = {"exporter": ("exporter",), "accounting": ("accounting", "parquet", "pdf")}
STATE = "var/lib/slicemeter"
PATIENCE_SECONDS = 60
EXPORTER = "exporter node --cluster c --node-name n --kube-api-url https://127.0.0.1:1 --kube-ca-file '' "
COMMANDS = {
    "exporter": (EXPORTER + "--listen-host 127.0.0.1 --listen-port {port}", "metrics"),
    "accounting": (
        "accounting serve --database sqlite:////var/lib/slicemeter/b.sqlite --listen 127.0.0.1:{port}",
        "readyz",
    ),
}


def main() -> int:
    """Check both images."""
    wrong: list[str] = []
    print(f"{'IMAGE':<12}{'ARCHIVE MiB':>12}{'PACKAGES':>10}{'FIRST PAGE s':>14}{'RSS MiB':>9}")
    for part in PARTS:
        wrong += [f"{part}: {each}" for each in _configuration(part)]
        with _mounted(part) as root:
            names = _packages(root)
            wrong += [f"{part}: {each}" for each in _contents(part, root, names)]
            seconds, rss_mib = _served(part, root)
        size_mib = (ROOT / f"build/images/{part}.tar").stat().st_size / 2**20
        print(f"{part:<12}{size_mib:>12.0f}{len(names):>10}{seconds:>14.2f}{rss_mib:>9.0f}")
    for each in wrong:
        print(each, file=sys.stderr)
    return 1 if wrong else 0


def _buildah(*words: str) -> str:
    done = subprocess.run([*BUILDAH, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _configuration(part: str) -> Iterator[str]:
    image = json.loads(_buildah("inspect", "--type", "image", f"localhost/slicemeter-{part}:{VERSION}"))
    config = image["OCIv1"]["config"]
    if config.get("User") != "65532:65532":
        yield f"runs as {config.get('User')}, not as 65532:65532"
    if config.get("Entrypoint") != ["slicemeter"]:
        yield f"starts with {config.get('Entrypoint')}"
    if config["Labels"].get("org.opencontainers.image.licenses") != "Apache-2.0":
        yield "has no licence label"


@contextmanager
def _mounted(part: str) -> Iterator[Path]:
    container = _buildah("from", "--pull-never", f"localhost/slicemeter-{part}:{VERSION}")
    try:
        yield Path(_buildah("mount", container))
    finally:
        _buildah("umount", container)
        _buildah("rm", container)


def _packages(root: Path) -> set[str]:
    bill = json.loads((root / "opt/slicemeter/sbom.cdx.json").read_text(encoding="utf-8"))
    return {each["name"].lower().replace("_", "-") for each in bill["components"]}


def _contents(part: str, root: Path, names: set[str]) -> Iterator[str]:
    pinned: set[str] = set()
    for file in PARTS[part]:
        text = (ROOT / f"requirements/{file}.txt").read_text(encoding="utf-8")
        pinned |= {name.lower() for name in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}
    if names - {"slicemeter"} - pinned:
        yield f"has packages that no requirement file names: {sorted(names - pinned)}"
    folder = root / "opt/slicemeter/lib"
    bare = [each for each in folder.rglob("slicemeter/*.py") if not _bytecode(each).exists()]
    if bare:
        yield f"has modules without bytecode: {bare[0].name} and {len(bare) - 1} more"
    writable = [
        each for each in (root / "opt").rglob("*") if not each.is_symlink() and each.stat().st_mode & 0o002
    ]
    if writable:
        yield f"has files that anybody may write: {writable[0]}"


def _bytecode(module: Path) -> Path:
    version = module.parents[2].name.removeprefix("python").replace(".", "")
    return module.parent / "__pycache__" / f"{module.stem}.cpython-{version}.pyc"


def _served(part: str, root: Path) -> tuple[float, float]:
    """Start the program as its user, its root read-only, and wait for its page."""
    arguments, path = COMMANDS[part]
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    (root / STATE).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as state:
        os.chown(state, 65_532, 65_532)
        inside = shlex.quote(str(root))
        script = (
            f"set -e; mount --make-rprivate /; mount --bind {inside} {inside};"
            f"mount -o remount,bind,ro {inside};"
            f"mount --bind {shlex.quote(state)} {inside}/{STATE}; mount --rbind /proc {inside}/proc;"
            f"mount --rbind /dev {inside}/dev; mount -t tmpfs -o mode=1777 tmpfs {inside}/tmp;"
            f"exec setpriv --no-new-privs chroot --userspec=65532:65532 --groups= {inside}"
            " /usr/bin/env -i HOME=/tmp PATH=/opt/slicemeter/bin PYTHONDONTWRITEBYTECODE=1"
            f" slicemeter {arguments.format(port=port)}"
        )
        began = time.monotonic()
        with subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", script], stderr=subprocess.PIPE, text=True
        ) as started:
            try:
                seconds = _wait(f"http://127.0.0.1:{port}/{path}", began, started)
                status = Path(f"/proc/{started.pid}/status").read_text(encoding="ascii")
            finally:
                started.terminate()
        if not re.search(r"^Uid:\t65532\t65532", status, re.MULTILINE):
            raise SystemExit(f"{part}: does not run as 65532:\n{status}")
        if not re.search(r"^CapEff:\t0+$", status, re.MULTILINE):
            raise SystemExit(f"{part}: has capabilities:\n{status}")
        rss_kib = int(re.findall(r"^VmRSS:\s+(\d+)", status, re.MULTILINE)[0])
    return seconds, rss_kib / 1024


def _wait(url: str, began: float, started: subprocess.Popen[str]) -> float:
    while started.poll() is None and time.monotonic() - began < PATIENCE_SECONDS:
        with suppress(OSError), urlopen(url, timeout=10) as answer:
            answer.read()
            return time.monotonic() - began
        time.sleep(0.02)
    started.terminate()
    raise SystemExit(f"{url}: no answer: {started.communicate()[1]}")


if __name__ == "__main__":
    raise SystemExit(main())
