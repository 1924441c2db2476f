"""Two real programs on loopback: a provider of the lab, and the service with the file of an operator."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

MAPPING = """
[[mapping]]
group = "operators"
role = "operator"

[[mapping]]
group = "team-a"
role = "tenant"
tenant = "acme/team-a"
"""


@contextmanager
def started(*arguments: str, lines: int) -> Iterator[list[str]]:
    """A program, and the first lines that it prints."""
    process = subprocess.Popen([sys.executable, "-m", *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield [process.stdout.readline() for _ in range(lines)]
    finally:
        process.terminate()
        assert process.wait(30) == 0
        process.stdout.close()


@pytest.mark.slow
def test_people_sign_in_by_the_labs_provider_and_are_what_their_groups_open(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    service = f"http://{address}"
    with started("lab.oidc", "--port", "0", "--service", service, lines=3) as told:
        settings = tmp_path / "oidc.toml"
        settings.write_text("".join(told) + MAPPING)
        database = f"sqlite:///{tmp_path}/books.sqlite"
        serve = ["slicemeter", "accounting", "serve", "--database", database, "--listen", address]
        serve += ["--insecure-cookies", "--oidc-config-file", str(settings)]
        with started(*serve, lines=1) as (listening,):
            assert listening == f"listening on {service}\n"
            for name, status in (("olga", 200), ("tim", 403)):
                with httpx.Client(base_url=service, headers={"Accept": "text/html"}) as browser:
                    page = browser.get("/", follow_redirects=True)
                    assert page.url.path == "/ui/sign-in"
                    (button,) = re.findall(r'href="(/ui/oidc/start[^"]*)"', page.text)
                    choice = browser.get(button, follow_redirects=True)
                    (person,) = re.findall(rf'href="([^"]*person={name})"', choice.text)
                    home = browser.get(choice.url.join(person.replace("&amp;", "&")), follow_redirects=True)
                    assert (home.status_code, home.url.path) == (200, "/ui/")
                    assert "Sign out" in home.text
                    assert browser.get("/api/v1/audit").status_code == status
