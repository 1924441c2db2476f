"""Every setting of both roles, defined once: its name makes the flag, the variable and the TOML key.

A setting `push_interval_seconds` is `--push-interval-seconds`, `SLICEMETER_PUSH_INTERVAL_SECONDS` and
the key `push_interval_seconds` of the file given with `--config`. Invariant: the first place that
names it wins, in the order flag, environment, file, default; whatever is wrong ends in one line that
says which setting, where it was read and what would be right. Nothing here opens a socket or a source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.ids import ClusterCode
from exporter.exposition.page import DEFAULT_SERIES_BUDGET
from exporter.hami.resources import ResourceNames
from exporter.kube.access import SERVICE_ACCOUNT, KubeAccess
from exporter.kube.errors import KubeError
from exporter.kube.tenant import DEFAULT_TENANT_FROM, TenantRule, parse_tenant_rules
from exporter.setting import Given, Setting, SettingsError, collect
from exporter.setting_values import (
    Compat,
    cluster_code,
    compat,
    factor,
    optional_path,
    optional_url,
    path,
    paths,
    port,
    seconds,
    series,
    tenant_rules,
    word,
    words,
)

CLUSTER = Setting("cluster", "the cluster's code in accounting", None, cluster_code)
LISTEN_HOST = Setting("listen_host", "address to serve metrics on", "0.0.0.0", word)  # noqa: S104 - Prometheus must reach it
LISTEN_PORT = Setting("listen_port", "port to serve metrics on; 0 = any free one", "9476", port)
KUBE_API_URL = Setting(
    "kube_api_url", "address of the Kubernetes API; empty = the one of the pod we run in", "", optional_url
)
KUBE_CA_FILE = Setting(
    "kube_ca_file",
    "CA of the Kubernetes API; empty = the system's",
    str(SERVICE_ACCOUNT / "ca.crt"),
    optional_path,
)
KUBE_TOKEN_FILE = Setting(
    "kube_token_file",
    "token for the Kubernetes API, read again when replaced; empty = none",
    str(SERVICE_ACCOUNT / "token"),
    optional_path,
)
ACCOUNTING_URL = Setting(
    "accounting_url", "where facts go, like https://host:port; empty = nowhere", "", optional_url
)
ACCOUNTING_TOKEN_FILE = Setting(
    "accounting_token_file", "token for accounting, read again for each request", "", optional_path
)
ACCOUNTING_CA_FILE = Setting(
    "accounting_ca_file", "CA of accounting; empty = the system's", "", optional_path
)
PUSH_INTERVAL_SECONDS = Setting(
    "push_interval_seconds",
    "how often confirmations and growing usage are sent (starts and ends go at once)",
    "300",
    seconds(1, 3_600),
)
STATE_FILE = Setting(
    "state_file", "running counters and unsent facts (SQLite)", "/var/lib/slicemeter/state.db", path
)
TENANT_FROM = Setting(
    "tenant_from",
    "where the tenant key comes from, first hit wins: pod-label:KEY, namespace-label:KEY, namespace",
    DEFAULT_TENANT_FROM,
    tenant_rules,
)
RESOURCE_COUNT = Setting("resource_count", "resource name of HAMi's slice count", "nvidia.com/gpu", word)
RESOURCE_MEMORY = Setting(
    "resource_memory", "resource name of a slice's memory in MiB", "nvidia.com/gpumem", word
)
RESOURCE_MEMORY_PERCENTAGE = Setting(
    "resource_memory_percentage",
    "resource name of a slice's memory in percent",
    "nvidia.com/gpumem-percentage",
    word,
)
RESOURCE_CORES = Setting(
    "resource_cores", "resource name of a slice's cores in percent", "nvidia.com/gpucores", word
)
MEMORY_FACTOR = Setting(
    "memory_factor",
    "MiB in one unit of a slice's memory (memoryFactor of HAMi's device config)",
    "1",
    factor,
)
SCHEDULER_NAMES = Setting("scheduler_names", "names of HAMi's schedulers", "hami-scheduler", words)
ENDED_KEEP_SECONDS = Setting(
    "ended_keep_seconds",
    "how long an ended slice's counters stay on the page; at least two scrape intervals",
    "120",
    seconds(0, 3_600),
)

SERIES_BUDGET = Setting(
    "series_budget",
    "how many series a page may have; the youngest slices beyond it are left out and counted",
    str(DEFAULT_SERIES_BUDGET),
    series,
)
WEB_CONFIG_FILE = Setting(
    "web_config_file",
    "TLS and basic auth of our own pages, in the format of Prometheus' exporters; empty = plain HTTP",
    "",
    optional_path,
)
METRICS_TOKEN_FILE = Setting(
    "metrics_token_file",
    "bearer token that opens our own pages, read again when replaced; empty = none",
    "",
    optional_path,
)

NODE_NAME = Setting("node_name", "name of this node", None, word, also_env="NODE_NAME")
CONTAINER_ROOTS = Setting(
    "container_roots", "folders with HAMi's container directories", "/usr/local/vgpu/containers", paths
)
PROC_ROOT = Setting(
    "proc_root", "the host's /proc, to find a process's container; empty = none", "/proc", optional_path
)
SAMPLE_INTERVAL_SECONDS = Setting(
    "sample_interval_seconds", "how often sources are read", "1", seconds(0.2, 10)
)
MIG_LOCK_FILE = Setting(
    "mig_lock_file",
    "while this file exists HAMi re-slices cards, and NVML is let go",
    "/tmp/hami/hami-mig-apply.lock",  # noqa: S108 - HAMi's path
    path,
)
COMPAT = Setting(
    "compat",
    "hami = serve /metrics/hami under the names of HAMi 2.10's monitor too, where that does not run",
    "",
    compat,
)

LOCK_TIMEOUT_SECONDS = Setting(
    "lock_timeout_seconds", "age at which HAMi breaks a node lock", "300", seconds(1, 86_400)
)

COMMON_SETTINGS: tuple[Setting[Any], ...] = (
    CLUSTER,
    LISTEN_HOST,
    LISTEN_PORT,
    KUBE_API_URL,
    KUBE_CA_FILE,
    KUBE_TOKEN_FILE,
    ACCOUNTING_URL,
    ACCOUNTING_TOKEN_FILE,
    ACCOUNTING_CA_FILE,
    PUSH_INTERVAL_SECONDS,
    STATE_FILE,
    TENANT_FROM,
    RESOURCE_COUNT,
    RESOURCE_MEMORY,
    RESOURCE_MEMORY_PERCENTAGE,
    RESOURCE_CORES,
    MEMORY_FACTOR,
    SCHEDULER_NAMES,
    ENDED_KEEP_SECONDS,
    SERIES_BUDGET,
    WEB_CONFIG_FILE,
    METRICS_TOKEN_FILE,
)
NODE_SETTINGS: tuple[Setting[Any], ...] = (
    *COMMON_SETTINGS,
    NODE_NAME,
    CONTAINER_ROOTS,
    PROC_ROOT,
    SAMPLE_INTERVAL_SECONDS,
    MIG_LOCK_FILE,
    COMPAT,
)
CLUSTER_SETTINGS: tuple[Setting[Any], ...] = (*COMMON_SETTINGS, LOCK_TIMEOUT_SECONDS)


# -- what the roles get -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AccountingAccess:
    """Where facts go and with which token; `token_file` is read again for each request."""

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None
    push_interval_seconds: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonSettings:
    """What both roles need; `accounting` is None when facts go nowhere, `once` = one tick, then end."""

    cluster: ClusterCode
    kube: KubeAccess
    state_file: Path
    listen_host: str = "0.0.0.0"  # noqa: S104 - Prometheus must reach it
    listen_port: int = 9476
    accounting: AccountingAccess | None = None
    tenant_from: tuple[TenantRule, ...] = parse_tenant_rules(DEFAULT_TENANT_FROM)
    resources: ResourceNames = field(default_factory=ResourceNames)
    scheduler_names: tuple[str, ...] = ("hami-scheduler",)
    ended_keep_seconds: float = 120.0
    series_budget: int = DEFAULT_SERIES_BUDGET
    web_config_file: Path | None = None
    metrics_token_file: Path | None = None
    once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings(CommonSettings):
    """The node role's settings; `proc_root` None = processes are not looked up."""

    node_name: str
    container_roots: tuple[Path, ...] = (Path("/usr/local/vgpu/containers"),)
    proc_root: Path | None = Path("/proc")
    sample_interval_seconds: float = 1.0
    mig_lock_file: Path = Path("/tmp/hami/hami-mig-apply.lock")  # noqa: S108 - HAMi's path
    compat: Compat | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings(CommonSettings):
    """The cluster role's settings."""

    lock_timeout_seconds: float = 300.0


def load_node_settings(argv: Sequence[str], environ: Mapping[str, str]) -> NodeSettings:
    """Settings of `slicemeter exporter node`.

    Raises:
        SettingsError: With the one line to print. `--help` prints and exits, as argparse does.
    """
    given = collect("node", NODE_SETTINGS, argv, environ)
    return NodeSettings(
        **_common(given),
        node_name=given.value(NODE_NAME),
        container_roots=given.value(CONTAINER_ROOTS),
        proc_root=given.value(PROC_ROOT),
        sample_interval_seconds=given.value(SAMPLE_INTERVAL_SECONDS),
        mig_lock_file=given.value(MIG_LOCK_FILE),
        compat=given.value(COMPAT),
    )


def load_cluster_settings(argv: Sequence[str], environ: Mapping[str, str]) -> ClusterSettings:
    """Settings of `slicemeter exporter cluster`.

    Raises:
        SettingsError: With the one line to print. `--help` prints and exits, as argparse does.
    """
    given = collect("cluster", CLUSTER_SETTINGS, argv, environ)
    return ClusterSettings(**_common(given), lock_timeout_seconds=given.value(LOCK_TIMEOUT_SECONDS))


def _kube_access(given: Given) -> KubeAccess:
    url = given.value(KUBE_API_URL)
    if url is None:
        try:
            url = KubeAccess.in_cluster(given.environ).api_url
        except KubeError as error:
            raise SettingsError(
                f"exporter {given.role}: {KUBE_API_URL.name} is not set and this is no pod; "
                f"give {KUBE_API_URL.flag} or {KUBE_API_URL.env}"
            ) from error
    return KubeAccess(url, given.value(KUBE_CA_FILE), given.value(KUBE_TOKEN_FILE))


def _common(given: Given) -> dict[str, Any]:
    url = given.value(ACCOUNTING_URL)
    accounting = None
    if url is not None:
        accounting = AccountingAccess(
            url,
            given.value(ACCOUNTING_TOKEN_FILE),
            given.value(ACCOUNTING_CA_FILE),
            given.value(PUSH_INTERVAL_SECONDS),
        )
    return {
        "cluster": given.value(CLUSTER),
        "kube": _kube_access(given),
        "state_file": given.value(STATE_FILE),
        "listen_host": given.value(LISTEN_HOST),
        "listen_port": given.value(LISTEN_PORT),
        "accounting": accounting,
        "tenant_from": given.value(TENANT_FROM),
        "resources": ResourceNames(
            given.value(RESOURCE_COUNT),
            given.value(RESOURCE_MEMORY),
            given.value(RESOURCE_MEMORY_PERCENTAGE),
            given.value(RESOURCE_CORES),
            given.value(MEMORY_FACTOR),
        ),
        "scheduler_names": given.value(SCHEDULER_NAMES),
        "ended_keep_seconds": given.value(ENDED_KEEP_SECONDS),
        "series_budget": given.value(SERIES_BUDGET),
        "web_config_file": given.value(WEB_CONFIG_FILE),
        "metrics_token_file": given.value(METRICS_TOKEN_FILE),
        "once": given.once,
    }
