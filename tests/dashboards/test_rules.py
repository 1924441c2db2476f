"""The alerts, evaluated by Prometheus itself (promtool): they fire, they wait, they are not fooled."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from dashboards.rules.files import Addresses, plain_files
from dashboards.rules.table import groups
from dashboards.writing import write

MINUTES = 60
CARD = 'cluster="c", node="n", device_uuid="GPU-1"'
FIRING_AT = 40


@dataclass(frozen=True)
class Slice:
    """A slice of the test's card: share of SM time it uses all the time, and cores it reserved."""

    pod: str
    use: float
    cores: float
    unknown: float = 0.0
    labels: str = CARD

    def series(self, *, extra: str = "") -> list[dict[str, str]]:
        tenant = f"tenant-of-{self.pod}"
        labels = (
            f'{self.labels}, namespace="ns", pod="{self.pod}", container="main", tenant="{tenant}"{extra}'
        )
        return [
            _series("slicemeter_slice_sm_seconds_total", labels, 0, self.use * 60),
            _series("slicemeter_slice_core_allocated_ratio", labels, self.cores, 0),
            _series(
                "slicemeter_slice_unknown_seconds_total",
                f'{labels}, reason="source_failed"',
                0,
                self.unknown * 60,
            ),
        ]


def _series(name: str, labels: str, start: float, step: float) -> dict[str, str]:
    return {"series": f"{name}{{{labels}}}", "values": f"{start:g}+{step:g}x{MINUTES}"}


def _card(busy: float | None, registered: float = 1.0, labels: str = CARD) -> list[dict[str, str]]:
    series = [_series("slicemeter_device_core_registered_ratio", labels, registered, 0)]
    if busy is not None:
        series.append(_series("slicemeter_device_busy_seconds_total", labels, 0, busy * 60))
    return series


AGGRESSOR = Slice("aggressor", use=0.70, cores=0.30)
VICTIM = Slice("victim", use=0.25, cores=0.50)


@pytest.fixture
def alerts_firing(
    tmp_path: Path, need_tool: Callable[[str, str], str]
) -> Callable[[str, int, Sequence[dict[str, str]], Sequence[dict[str, object]]], None]:
    """Checks with promtool that exactly the expected alerts fire at a minute."""
    promtool = need_tool("promtool", "prometheus")
    rules = write(plain_files(groups(), Addresses()), tmp_path)

    def check(
        alert: str,
        minute: int,
        series: Sequence[dict[str, str]],
        expected: Sequence[dict[str, object]],
    ) -> None:
        document = {
            "rule_files": [str(path) for path in rules],
            "evaluation_interval": "1m",
            "tests": [
                {
                    "interval": "1m",
                    "input_series": list(series),
                    "alert_rule_test": [
                        {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": list(expected)}
                    ],
                }
            ],
        }
        path = tmp_path / "test.yaml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return check


Check = Callable[[str, int, Sequence[dict[str, str]], Sequence[dict[str, object]]], None]


def _neighbour(aggressor: str, over: str, victim: str, missing: str) -> dict[str, object]:
    """The alert as it must be worded; percentages worked out by hand in each test."""
    return {
        "exp_labels": {
            "severity": "warning",
            "cluster": "c",
            "node": "n",
            "device_uuid": "GPU-1",
            "namespace": "ns",
            "pod": aggressor,
            "container": "main",
            "tenant": f"tenant-of-{aggressor}",
        },
        "exp_annotations": {
            "summary": "A slice uses more than its share while a neighbour on the same card starves",
            "description": (
                f"ns/{aggressor} (main, of tenant-of-{aggressor}) uses {over} of card GPU-1 on n beyond its "
                f"entitlement. Starved: ns/{victim} (main) misses {missing} of its share; "
            ),
            "tenant_description": (
                f"ns/{aggressor} (main) uses {over} of its card beyond its entitlement, while another slice "
                "starves."
            ),
            "runbook_url": "docs/runbooks/slicemeternoisyneighbour.md",
            "dashboard_url": "/d/slicemeter-neighbours?var-cluster=c&var-node=n&var-device=GPU-1",
        },
    }


def test_noisy_neighbour_names_the_aggressor_and_its_victim(alerts_firing: Check) -> None:
    # 0.70 used − 0.30 entitled = 40 % over; 1 − 0.25/0.50 = 50 % missing.
    series = [*AGGRESSOR.series(), *VICTIM.series(), *_card(busy=0.95)]
    expected = _neighbour("aggressor", "40%", "victim", "50%")
    alerts_firing("SlicemeterNoisyNeighbour", FIRING_AT, series, [expected])


def test_noisy_neighbour_without_reserved_cores_is_entitled_to_what_is_left(alerts_firing: Check) -> None:
    # 1 − 0.50 reserved = 0.50 left for the one active slice without cores; 0.70 − 0.50 = 20 % over.
    free_rider = Slice("free-rider", use=0.70, cores=0)
    series = [*free_rider.series(), *VICTIM.series(), *_card(busy=0.95)]
    expected = _neighbour("free-rider", "20%", "victim", "50%")
    alerts_firing("SlicemeterNoisyNeighbour", FIRING_AT, series, [expected])


def test_noisy_neighbour_waits_for_fifteen_minutes(alerts_firing: Check) -> None:
    # The starved rule needs two points of use before it says anything, so minute 14 is surely too early.
    series = [*AGGRESSOR.series(), *VICTIM.series(), *_card(busy=0.95)]
    alerts_firing("SlicemeterNoisyNeighbour", 14, series, [])


def test_noisy_neighbour_fires_within_twenty_five_minutes(alerts_firing: Check) -> None:
    series = [*AGGRESSOR.series(), *VICTIM.series(), *_card(busy=0.95)]
    expected = _neighbour("aggressor", "40%", "victim", "50%")
    alerts_firing("SlicemeterNoisyNeighbour", 25, series, [expected])


def test_noisy_neighbour_survives_a_second_scrape_of_the_same_exporter(alerts_firing: Check) -> None:
    twice = ', instance="second"'
    series = [*AGGRESSOR.series(), *VICTIM.series(), *_card(busy=0.95)]
    series += [*AGGRESSOR.series(extra=twice), *VICTIM.series(extra=twice)]
    series += _card(busy=0.95, labels=CARD + twice)
    expected = _neighbour("aggressor", "40%", "victim", "50%")
    alerts_firing("SlicemeterNoisyNeighbour", FIRING_AT, series, [expected])


def test_a_burst_beside_an_idle_neighbour_is_no_noise(alerts_firing: Check) -> None:
    idle = Slice("idle", use=0.0, cores=0.50)
    burst = Slice("burst", use=0.95, cores=0.30)
    alerts_firing("SlicemeterNoisyNeighbour", FIRING_AT, [*burst.series(), *idle.series(), *_card(0.95)], [])


def test_a_victim_whose_time_is_unknown_is_no_witness(alerts_firing: Check) -> None:
    blurred = Slice("victim", use=0.25, cores=0.50, unknown=0.20)
    series = [*AGGRESSOR.series(), *blurred.series(), *_card(busy=0.95)]
    alerts_firing("SlicemeterNoisyNeighbour", FIRING_AT, series, [])


@pytest.mark.parametrize("busy", [None, 0.80], ids=["no busy figure", "room left"])
def test_a_card_that_is_not_full_starves_nobody(alerts_firing: Check, busy: float | None) -> None:
    series = [*AGGRESSOR.series(), *VICTIM.series(), *_card(busy)]
    alerts_firing("SlicemeterNoisyNeighbour", FIRING_AT, series, [])


def test_equal_names_in_another_cluster_are_another_card(alerts_firing: Check) -> None:
    elsewhere = CARD.replace('cluster="c"', 'cluster="d"')
    victim = Slice("victim", use=0.25, cores=0.50, labels=elsewhere)
    series = [*AGGRESSOR.series(), *_card(0.95), *victim.series(), *_card(0.95, labels=elsewhere)]
    alerts_firing("SlicemeterNoisyNeighbour", FIRING_AT, series, [])


def test_on_scaled_cores_the_registered_ratio_takes_the_place_of_one(
    alerts_firing: Check,
) -> None:
    # devcore 200: 0.60 of 2 registered cores is 30 % of the card, 1.00 of 2 is 50 %.
    aggressor = Slice("aggressor", use=0.70, cores=0.60)
    victim = Slice("victim", use=0.25, cores=1.00)
    series = [*aggressor.series(), *victim.series(), *_card(busy=0.95, registered=2.0)]
    expected = _neighbour("aggressor", "40%", "victim", "50%")
    alerts_firing("SlicemeterNoisyNeighbour", FIRING_AT, series, [expected])


def _lock(waiting: int, extra: str = "") -> list[dict[str, str]]:
    node = f'cluster="c", node="n"{extra}'
    owner = f'{node}, owner_namespace="ns", owner_pod="p"'
    return [
        _series("slicemeter_node_lock_acquired_timestamp_seconds", owner, 60, 0),
        _series("slicemeter_node_lock_waiting_pods", node, waiting, 0),
    ]


def _blocking(held: str) -> dict[str, object]:
    return {
        "exp_labels": {"severity": "warning", "cluster": "c", "node": "n"},
        "exp_annotations": {
            "summary": "HAMi's node lock is held while pods wait for it",
            "description": (
                f"The lock of node n has been held for {held} and pods wait for it: nothing binds there "
                "until it is released or expires."
            ),
            "runbook_url": "docs/runbooks/slicemeternodelockblocking.md",
            "dashboard_url": "/d/slicemeter-neighbours?var-cluster=c&var-node=n",
        },
    }


def test_a_lock_that_pods_wait_for_blocks_after_two_minutes(alerts_firing: Check) -> None:
    # Taken at 60 s; above 60 s from minute 3 on (180 − 60 = 120 > 60), held for one more minute.
    alerts_firing("SlicemeterNodeLockBlocking", 4, _lock(waiting=2), [_blocking("3m 0s")])


def test_a_lock_is_given_a_minute_before_it_blocks(alerts_firing: Check) -> None:
    alerts_firing("SlicemeterNodeLockBlocking", 2, _lock(waiting=2), [])


def test_a_lock_that_nobody_waits_for_is_no_alert(alerts_firing: Check) -> None:
    alerts_firing("SlicemeterNodeLockBlocking", 30, _lock(waiting=0), [])


def test_a_lock_seen_by_two_scrapes_is_one_alert(alerts_firing: Check) -> None:
    series = _lock(waiting=2) + _lock(waiting=2, extra=', instance="second"')
    alerts_firing("SlicemeterNodeLockBlocking", 4, series, [_blocking("3m 0s")])


def _expiring(extra: str = "") -> dict[str, str]:
    labels = f'cluster="c", node="n", outcome="expired"{extra}'
    return {"series": f"slicemeter_node_lock_transitions_total{{{labels}}}", "values": "0x9 1x50"}


TIMED_OUT: dict[str, object] = {
    "exp_labels": {"severity": "warning", "cluster": "c", "node": "n"},
    "exp_annotations": {
        "summary": "A HAMi node lock ran into its timeout",
        "description": (
            "Locks of node n expired in the last 30m: pods waited for the whole timeout before the next "
            "could bind."
        ),
        "runbook_url": "docs/runbooks/slicemeternodelocktimeout.md",
        "dashboard_url": "/d/slicemeter-neighbours?var-cluster=c&var-node=n",
    },
}


def test_an_expired_lock_is_told_at_once(alerts_firing: Check) -> None:
    # The counter was exported from 0, so its first step at minute 10 is seen.
    alerts_firing("SlicemeterNodeLockTimeout", 11, [_expiring()], [TIMED_OUT])


def test_an_expired_lock_seen_by_two_scrapes_is_one_alert(alerts_firing: Check) -> None:
    alerts_firing(
        "SlicemeterNodeLockTimeout", 11, [_expiring(), _expiring(', instance="second"')], [TIMED_OUT]
    )


def test_no_expired_lock_no_alert(alerts_firing: Check) -> None:
    alerts_firing("SlicemeterNodeLockTimeout", 9, [_expiring()], [])


def test_an_expired_lock_is_forgotten_after_half_an_hour(alerts_firing: Check) -> None:
    alerts_firing("SlicemeterNodeLockTimeout", 50, [_expiring()], [])
