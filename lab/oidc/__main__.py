"""`python -m lab.oidc`: run the provider, and print the settings with which accounting knows it."""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Sequence

from lab.oidc.provider import Client, Person
from lab.oidc.serving import serving


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.oidc",
        description="An OpenID provider on loopback that asks nobody for a password.",
    )
    parser.add_argument("--port", type=int, default=8478, help="default: %(default)s; 0: any")
    parser.add_argument(
        "--service",
        metavar="URL",
        default="http://127.0.0.1:8476",
        help="where accounting is reached; default: %(default)s",
    )
    parser.add_argument(
        "--person",
        metavar="NAME:GROUP,GROUP",
        action="append",
        default=[],
        help="who may sign in, again for each; default: olga:operators and tim:team-a",
    )
    arguments = parser.parse_args(argv)
    people = [_person(text) for text in arguments.person or ("olga:operators", "tim:team-a")]
    client = Client("slicemeter", f"{arguments.service}/ui/oidc/callback")
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    with serving(client, people, clock=time.time, port=arguments.port) as provider:
        print(
            f'issuer = "{provider.issuer}"\nclient_id = "{client.client_id}"\n'
            f'redirect_url = "{client.redirect_url}"',
            flush=True,
        )
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    return 0


def _person(text: str) -> Person:
    name, _, groups = text.partition(":")
    return Person(name, tuple(one for one in groups.split(",") if one))


if __name__ == "__main__":
    raise SystemExit(main())
