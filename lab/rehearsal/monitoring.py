"""Prometheus and Alertmanager of one rehearsal: configured as a user would, started as programs of their own.

Invariant: both listen on loopback alone and keep everything in the rehearsal's folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import yaml

from dashboards.rules.routing import Channel, alertmanager_config
from dashboards.writing import write
from lab.exporters import Target
from lab.pages import ask
from lab.processes import Household, LabError, Program, free_port
from lab.rehearsal.receiver import PLATFORM_PATH, TENANT_PATH
from lab.rehearsal.scene import ACCOUNT, HOME
from lab.rehearsal.tempo import Tempo

SCRAPES_A_MINUTE = 2
"""30 s between two scrapes, within the 15-60 s that the rules are made for."""

PACKAGES = {"prometheus": "prometheus", "prometheus-alertmanager": "prometheus-alertmanager"}
"""Program to Debian package."""


def program(name: str) -> str:
    """Path of a program of the system.

    Raises:
        LabError: It is not installed.
    """
    # Other systems, and Prometheus' own archives, call it plainly alertmanager.
    path = shutil.which(name) or shutil.which(name.removeprefix("prometheus-"))
    if path is None:
        raise LabError(f"{name} is missing; on Debian: apt-get install {PACKAGES[name]}")
    return path


@dataclass(frozen=True, slots=True)
class Monitoring:
    """The two programs' place and tempo."""

    folder: Path
    logs: Path
    tempo: Tempo

    def start(
        self,
        household: Household,
        exporters: Sequence[Target],
        accounting: tuple[Target, Path],
        receiver_url: str,
        tenants: Sequence[str],
    ) -> str:
        """Start both; returns Prometheus' address.

        Args:
            household: Where they run.
            exporters: Named `node CODE` or `cluster CODE`.
            accounting: Its page and the file with a token for it.
            receiver_url: Of a `Receiver`.
            tenants: Who have channels of their own.
        """
        self.folder.mkdir(parents=True)
        prometheus, alertmanager = program("prometheus"), program("prometheus-alertmanager")
        alerts_to, page = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        config = self.folder / "alertmanager.yml"
        config.write_text(self._routing(receiver_url, tenants), "utf-8")
        argv = [alertmanager, f"--config.file={config}", f"--storage.path={self.folder / 'alertmanager'}"]
        argv += [f"--web.listen-address={alerts_to}", "--cluster.listen-address="]
        household.add(Program("alertmanager", argv, self.logs / "alertmanager.log"))
        write(self.tempo.rules(), self.folder / "rules")
        config = self.folder / "prometheus.yml"
        config.write_text(self._scraping(exporters, accounting, alerts_to), "utf-8")
        argv = [prometheus, f"--config.file={config}", f"--storage.tsdb.path={self.folder / 'tsdb'}"]
        argv += [f"--web.listen-address={page}", "--log.level=warn"]
        household.add(Program("prometheus", argv, self.logs / "prometheus.log"))
        return f"http://{page}"

    def _routing(self, receiver_url: str, tenants: Sequence[str]) -> str:
        platform = {"webhook_configs": [{"url": f"{receiver_url}{PLATFORM_PATH}"}]}
        waits = {"group_wait": "0s", "group_interval": "1s", "repeat_interval": "1h"}
        channels = [
            Channel(tenant, (tenant, f"{ACCOUNT}/{tenant}"), f"{receiver_url}{TENANT_PATH}{tenant}")
            for tenant in tenants
        ]
        return alertmanager_config(platform, channels, waits=waits)

    def _scraping(self, exporters: Sequence[Target], accounting: tuple[Target, Path], alerts_to: str) -> str:
        interval = f"{1_000 * self.tempo.minute_s // SCRAPES_A_MINUTE}ms"
        books, token_file = accounting
        jobs: list[dict[str, object]] = [
            {
                "job_name": target.name,
                "static_configs": [_static(target, target.name.split()[1])],
            }
            for target in exporters
        ]
        jobs.append(
            {
                "job_name": books.name,
                "honor_labels": True,
                "authorization": {"credentials_file": str(token_file)},
                "static_configs": [_static(books, HOME)],
            }
        )
        document = {
            "global": {
                "scrape_interval": interval,
                "scrape_timeout": interval,
                "evaluation_interval": interval,
            },
            "rule_files": [f"{self.folder}/rules/*.yaml"],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alerts_to]}]}]},
            "scrape_configs": jobs,
        }
        return yaml.safe_dump(document, sort_keys=False)


def _static(target: Target, cluster: str) -> dict[str, object]:
    address = target.url.removeprefix("http://")
    return {"targets": [address], "labels": {"cluster": cluster, "instance": target.name}}


def answers(url: str) -> bool:
    """Whether Prometheus is ready."""
    return ask(f"{url}/-/ready").status == HTTPStatus.OK
