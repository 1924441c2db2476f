"""Where alerts go in Alertmanager: which silence which, what a tenant's receiver may say, and to whom.

Invariant: a receiver of a tenant is told `tenant_description` and the alert's own labels, never
`description`, which may name other tenants. Webhooks send every annotation, so they are for the platform
alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import yaml

Route: TypeAlias = dict[str, object]

PERFORMANCE = ("NoisyNeighbour", "SliceBlocked", "SliceNearLimit", "SliceOverMemoryLimit", "UsageUnknown")
"""What a slice says of itself while its card is failing: consequences, not causes."""

TENANT_TITLE = "{{ .CommonAnnotations.summary }}"
TENANT_TEXT = '{{ range .Alerts.Firing }}{{ .Annotations.tenant_description }}{{ "\\n" }}{{ end }}'


def inhibitions() -> list[dict[str, object]]:
    """A dead exporter silences what its node's page said; a failing card what its slices say of speed.

    Locks are left out: they are seen by the cluster role, and they stop every pod whoever is dead.
    """
    slices = "|".join(f"Slicemeter{name}" for name in PERFORMANCE)
    return [
        {
            "source_matchers": ["alertname = SlicemeterExporterDown"],
            "target_matchers": ['alertname =~ "Slicemeter.+"', 'alertname !~ "SlicemeterNodeLock.+"'],
            "equal": ["cluster", "node"],
        },
        {
            "source_matchers": ["alertname = SlicemeterXid", "severity = critical"],
            "target_matchers": [f'alertname =~ "{slices}"'],
            "equal": ["cluster", "node", "device_uuid"],
        },
    ]


def tenant_message() -> dict[str, object]:
    """What a message to a tenant's channel is made of (`slack_configs`; other kinds have the same fields)."""
    return {"title": TENANT_TITLE, "text": TENANT_TEXT, "fallback": TENANT_TITLE, "send_resolved": False}


@dataclass(frozen=True, slots=True)
class Channel:
    """Where a tenant is told.

    Attributes:
        name: Of the receiver, after `tenant-`.
        tenants: What the label `tenant` may be: the exporters' key (`vision`), and the path in accounting's
            tree (`institute/vision`), which alerts about money carry.
        address: A hook of the tenant's chat.
    """

    name: str
    tenants: tuple[str, ...]
    address: str


def alertmanager_config(
    platform: Mapping[str, object], channels: Sequence[Channel], *, waits: Mapping[str, str] | None = None
) -> str:
    """A whole configuration.

    Args:
        platform: What the platform's receiver is (`webhook_configs: […]`, `email_configs: […]`, …).
        channels: Of tenants that are told what is theirs.
        waits: `group_wait`, `group_interval` and `repeat_interval`, where Alertmanager's own do not suit.
    """
    routes: list[Route] = [
        {
            "matchers": [f'tenant = "{tenant}"', 'alertname =~ "Slicemeter.+"'],
            "receiver": f"tenant-{channel.name}",
            "continue": True,
        }
        for channel in channels
        for tenant in channel.tenants
    ]
    document = {
        "route": {
            "receiver": "platform",
            "group_by": ["cluster", "alertname", "tenant"],
            **(waits or {}),
            "routes": [*routes, {"receiver": "platform"}],
        },
        "inhibit_rules": inhibitions(),
        "receivers": [
            {"name": "platform", **platform},
            *(
                {
                    "name": f"tenant-{channel.name}",
                    "slack_configs": [
                        {"api_url": channel.address, "channel": f"#gpu-{channel.name}", **tenant_message()}
                    ],
                }
                for channel in channels
            ),
        ],
    }
    return yaml.safe_dump(document, sort_keys=False, width=110, allow_unicode=True)
