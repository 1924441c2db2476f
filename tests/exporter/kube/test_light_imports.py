from __future__ import annotations

import subprocess
import sys

HEAVY = {
    "aiohttp",
    "asyncio",
    "fastapi",
    "httpx",
    "kubernetes",
    "numpy",
    "prometheus_client",
    "pydantic",
    "pynvml",
    "requests",
    "sqlalchemy",
    "trustme",
}


def test_watching_loads_no_heavy_module() -> None:
    program = (
        "import sys, exporter.kube.watch, exporter.kube.tenant, exporter.kube.cluster_uid\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    loaded = set(output.split())
    assert "msgspec" in loaded
    assert not loaded & HEAVY
