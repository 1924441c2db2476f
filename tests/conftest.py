"""What every test may rely on: no network beyond loopback, and tools that must be there in CI."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

# No test may depend on how busy the machine is. At a desk each run tries other examples, so few are enough.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("desk", settings.get_profile("house"), max_examples=40)
settings.load_profile("house" if os.environ.get("CI") else "desk")

_LOOPBACK = {"127.0.0.1", "::1", "localhost", "0.0.0.0"}
_real_connect = socket.socket.connect


def _guarded_connect(self: socket.socket, address: object) -> None:
    if isinstance(address, tuple) and address[0] not in _LOOPBACK:
        pytest.fail(f"this test reached out to {address!r}; tests stay on loopback")
    _real_connect(self, address)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _stay_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", _guarded_connect)


@pytest.fixture(scope="session")
def need_tool() -> Callable[[str, str], str]:
    """Path of a program; without it the test is skipped with the package's name, and fails in CI."""

    def find(program: str, package: str) -> str:
        path = shutil.which(program)
        if path is None:
            reason = f"{program} is missing; it comes with Debian's package {package}"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)
        return path

    return find
