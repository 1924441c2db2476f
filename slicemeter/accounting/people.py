"""Options of `slicemeter accounting serve` about how people sign in to the pages."""

from __future__ import annotations

import argparse
import ipaddress
import socket
from pathlib import Path

from accounting.errors import InvalidError
from accounting.settings import Settings
from slicemeter.accounting.options import seconds


def add_people_options(made: argparse.ArgumentParser) -> None:
    """Add them."""
    defaults = Settings()
    made.add_argument(
        "--oidc-config-file",
        metavar="FILE",
        type=Path,
        help="a TOML file that says by which OpenID provider people sign in, and what their groups open; "
        "docs/access.md shows one",
    )
    made.add_argument(
        "--session-hours",
        metavar="HOURS",
        type=seconds,
        default=defaults.session_hours,
        help="how long a person stays signed in at most; default: %(default)g",
    )
    made.add_argument(
        "--session-idle-minutes",
        metavar="MINUTES",
        type=seconds,
        default=defaults.session_idle_minutes,
        help="after how long without a request a person is signed out; default: %(default)g",
    )
    made.add_argument(
        "--insecure-cookies",
        action="store_true",
        help="let browsers send the session's cookie without TLS; only with --listen on loopback",
    )


def require_loopback(listening: socket.socket) -> None:
    """Refuse cookies without TLS where others could read them on the way.

    Raises:
        InvalidError: The socket is reached from elsewhere.
    """
    host = str(listening.getsockname()[0])
    if not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        raise InvalidError(
            f"--insecure-cookies with --listen on {host}: anybody on the way could take a session over; "
            "listen on 127.0.0.1, or leave it out and put a proxy with TLS in front"
        )
