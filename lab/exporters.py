"""The exporters of one run: their settings files, command lines and addresses.

The cluster role runs by the shipped command, the node role by `lab.node_exporter`; both read a TOML
file as a user would write it. Invariant: an exporter's name in this run, `node CODE` or `cluster
CODE`, is the target's name on every table.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from lab.processes import Program, free_port
from lab.scenarios.stage import Stage

PUSH_INTERVAL_S = 2
SAMPLE_INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True)
class Target:
    """A page that is scraped: its name and its address, without a path."""

    name: str
    url: str

    @property
    def metrics_url(self) -> str:
        """Where the page is."""
        return f"{self.url}/metrics"


@dataclass(frozen=True, slots=True)
class Exporter:
    """One exporter: what to run and where its page will be."""

    target: Target
    program: Program


@dataclass(frozen=True, slots=True)
class Host:
    """The folders of a cluster's one node.

    Attributes:
        container_root: HAMi's tree of container directories; missing on a mock node.
        proc_root: The node's /proc.
        state_root: Where exporters keep their state.
    """

    container_root: Path
    proc_root: Path
    state_root: Path


@dataclass(frozen=True, slots=True)
class Billing:
    """Where facts go, and with whose token."""

    url: str
    node_token_file: Path
    cluster_token_file: Path


@dataclass(frozen=True, slots=True)
class Simulation:
    """What the lab's node exporter needs beyond settings."""

    start_file: Path
    powered_s: int


def clean_environ() -> dict[str, str]:
    """Our environment without settings of ours: a user's own must not leak into the demo."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SLICEMETER_") and name != "NODE_NAME"
    }


def exporters_of(
    stage: Stage,
    host: Host,
    billing: Billing,
    simulation: Simulation,
    logs: Path,
    *,
    sample_interval_s: float = SAMPLE_INTERVAL_S,
) -> tuple[Exporter, Exporter]:
    """Node and cluster exporter of a cluster, not yet started."""
    cluster = stage.cluster
    common: dict[str, str | int | float] = {
        "cluster": cluster.code,
        "listen_host": "127.0.0.1",
        "kube_api_url": stage.double.url,
        "kube_ca_file": str(stage.double.ca_file),
        "kube_token_file": str(stage.double.token_file),
        "accounting_url": billing.url,
        "push_interval_seconds": PUSH_INTERVAL_S,
    }
    on_node: dict[str, str | int | float] = {
        "node_name": cluster.node,
        "container_roots": str(host.container_root),
        "proc_root": str(host.proc_root),
        "mig_lock_file": str(host.state_root / "hami-mig-apply.lock"),
        "sample_interval_seconds": sample_interval_s,
        "accounting_token_file": str(billing.node_token_file),
    }
    on_cluster: dict[str, str | int | float] = {"accounting_token_file": str(billing.cluster_token_file)}
    plan_file = host.state_root / "plan.json"
    plan_file.write_bytes(msgspec.json.encode(cluster))
    simulated = ["--plan", str(plan_file), "--start-file", str(simulation.start_file)]
    simulated += ["--powered-s", str(simulation.powered_s)]
    node_argv = [sys.executable, "-m", "lab.node_exporter", *simulated]
    cluster_argv = [sys.executable, "-m", "slicemeter", "exporter", "cluster"]
    return (
        _exporter(f"node {cluster.code}", node_argv, common | on_node, host, logs),
        _exporter(f"cluster {cluster.code}", cluster_argv, common | on_cluster, host, logs),
    )


def _exporter(
    name: str, argv: list[str], settings: Mapping[str, str | float], host: Host, logs: Path
) -> Exporter:
    port = free_port()
    stem = name.replace(" ", "-")
    config = host.state_root / f"{stem}.toml"
    state_file = str(host.state_root / f"{stem}.db")
    config.write_text(toml({**settings, "listen_port": port, "state_file": state_file}), "utf-8")
    program = Program(name, [*argv, "--config", str(config)], logs / f"{stem}.log", clean_environ())
    return Exporter(Target(name, f"http://127.0.0.1:{port}"), program)


def toml(settings: Mapping[str, str | float]) -> str:
    """A flat TOML table; JSON's strings and numbers are TOML's."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
