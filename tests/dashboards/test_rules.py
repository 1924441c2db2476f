"""The alerts, evaluated by Prometheus itself (promtool): they fire, they wait, they are not fooled."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

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


class Check(Protocol):
    """Judges with promtool."""

    def __call__(
        self,
        alert: str,
        minute: int,
        series: Sequence[dict[str, str]],
        expected: Sequence[dict[str, object]],
        interval_s: int = 60,
    ) -> None: ...


@pytest.fixture
def alerts_firing(tmp_path: Path, need_tool: Callable[[str, str], str]) -> Check:
    """Checks with promtool that exactly the expected alerts fire at a minute."""
    promtool = need_tool("promtool", "prometheus")
    rules = write(plain_files(groups(), Addresses()), tmp_path)

    def check(
        alert: str,
        minute: int,
        series: Sequence[dict[str, str]],
        expected: Sequence[dict[str, object]],
        interval_s: int = 60,
    ) -> None:
        document = {
            "rule_files": [str(path) for path in rules],
            "evaluation_interval": "1m",
            "tests": [
                {
                    "interval": f"{interval_s}s",
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


def _counted(pod: str, cores: float, seconds_at: Sequence[float]) -> list[dict[str, str]]:
    """A slice whose SM-seconds counter reads so much at each scrape."""
    [counter, held, unknown] = Slice(pod, use=0, cores=cores).series()
    values = " ".join(f"{seconds:.3f}" for seconds in seconds_at)
    return [{**counter, "values": values}, _long(held), _long(unknown)]


def _long(series: dict[str, str]) -> dict[str, str]:
    """The same for as many scrapes as an hour of the shortest interval has."""
    return {**series, "values": series["values"].replace(f"x{MINUTES}", f"x{MINUTES * 4}")}


def _steady(pod: str, use: float, cores: float, interval_s: int) -> list[dict[str, str]]:
    count = MINUTES * 60 // interval_s
    return _counted(pod, cores, [use * interval_s * number for number in range(count + 1)])


def _full_card(interval_s: int) -> list[dict[str, str]]:
    ratio, busy = _card(busy=0.95)
    return [_long(ratio), {**busy, "values": f"0+{0.95 * interval_s:g}x{MINUTES * 60 // interval_s}"}]


def _duty(at_s: float, period_s: float, on_s: float) -> float:
    """SM-seconds of a slice that runs for the first part of each period."""
    whole, rest = divmod(at_s, period_s)
    return whole * on_s + min(rest, on_s)


@pytest.mark.parametrize("phase_s", [0, 5, 11, 17, 23, 30, 37])
@pytest.mark.parametrize("interval_s", [15, 30, 60])
def test_a_slice_that_its_limit_holds_to_thirty_per_cent_is_never_noisy(
    alerts_firing: Check, interval_s: int, phase_s: int
) -> None:
    # On for 12.6 of 42 s: a mean of exactly 0.30, its share; samples of a second read 0 or 1.
    times = range(0, MINUTES * 60 + 1, interval_s)
    start = _duty(phase_s, 42, 12.6)
    held = _counted("held", 0.30, [_duty(at_s + phase_s, 42, 12.6) - start for at_s in times])
    starving = _steady("victim", 0.25, 0.50, interval_s)
    series = [*held, *starving, *_full_card(interval_s)]
    for minute in (20, 33, 47, 58):
        alerts_firing("SlicemeterNoisyNeighbour", minute, series, [], interval_s)


@pytest.mark.parametrize("interval_s", [15, 30, 60])
def test_a_slice_that_had_the_card_to_itself_is_noisy_once_a_neighbour_starves(
    alerts_firing: Check, interval_s: int
) -> None:
    # 0.90 of 0.30 entitled under the policy `default`; the neighbour comes at minute 20, gets 0.10 of 0.50.
    alone = _steady("alone", 0.90, 0.30, interval_s)
    times = range(0, MINUTES * 60 + 1, interval_s)
    late = [0.1 * max(0, at_s - 20 * 60) for at_s in times]
    series = [*alone, *_counted("late", 0.50, late), *_full_card(interval_s)]
    alerts_firing("SlicemeterNoisyNeighbour", 19, series, [], interval_s)
    # Over its share by 60 %, missing 80 %; told 25 minutes after the neighbour came.
    expected = [_neighbour("alone", "60%", "late", "80%")]
    alerts_firing("SlicemeterNoisyNeighbour", 45, series, expected, interval_s)


@pytest.mark.parametrize("turn_s", [60, 120])
def test_aggressors_that_take_turns_are_both_told(alerts_firing: Check, turn_s: int) -> None:
    # Each takes 0.90 for its turn and nothing for the other's: 0.45 on average, 0.25 entitled.
    times = range(0, MINUTES * 60 + 1, 15)
    one = [0.9 * _duty(at_s, 2 * turn_s, turn_s) for at_s in times]
    other = [0.9 * (_duty(at_s + turn_s, 2 * turn_s, turn_s) - turn_s) for at_s in times]
    series = [*_counted("one", 0.25, one), *_counted("other", 0.25, other)]
    series += [*_steady("victim", 0.05, 0.50, 15), *_full_card(15)]
    # In the last five minutes one of them had two and the other three: 0.36 and 0.54, less 0.25.
    few, many = ("one", "other") if turn_s == 60 else ("other", "one")
    told = [_neighbour(few, "11%", "victim", "90%"), _neighbour(many, "29%", "victim", "90%")]
    minute = 44 if turn_s == 60 else 46
    alerts_firing("SlicemeterNoisyNeighbour", minute, series, told, 15)


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
