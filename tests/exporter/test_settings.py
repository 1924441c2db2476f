"""Settings: one name for flag, variable and key; the first place wins; errors are one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.kube.tenant import TenantRule
from exporter.setting import SettingsError
from exporter.settings import (
    CLUSTER_SETTINGS,
    NODE_SETTINGS,
    AccountingAccess,
    load_cluster_settings,
    load_node_settings,
)

NEEDED = {
    "SLICEMETER_CLUSTER": "berlin-1",
    "NODE_NAME": "gpu-7",
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
    "KUBERNETES_SERVICE_PORT": "443",
}


def test_in_a_pod_cluster_and_node_name_are_all_that_is_needed() -> None:
    settings = load_node_settings([], NEEDED)
    assert settings.cluster == "berlin-1"
    assert settings.node_name == "gpu-7"
    assert settings.kube.api_url == "https://10.96.0.1:443"
    assert settings.kube.token_file == Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
    assert (settings.listen_host, settings.listen_port) == ("0.0.0.0", 9476)
    assert settings.accounting is None
    assert settings.state_file == Path("/var/lib/slicemeter/state.db")
    assert settings.tenant_from == (
        TenantRule("namespace-label", "capsule.clastix.io/tenant"),
        TenantRule("namespace"),
    )
    assert settings.scheduler_names == ("hami-scheduler",)
    assert settings.sample_interval_seconds == 1.0
    assert settings.container_roots == (Path("/usr/local/vgpu/containers"),)
    assert settings.proc_root == Path("/proc")
    assert settings.once is False


def test_the_cluster_role_needs_no_node_name() -> None:
    settings = load_cluster_settings(["--cluster", "c"], {**NEEDED, "NODE_NAME": ""})
    assert settings.cluster == "c"
    assert settings.lock_timeout_seconds == 300


def test_a_flag_beats_the_environment_and_that_the_file_and_that_the_default(tmp_path: Path) -> None:
    config = tmp_path / "exporter.toml"
    config.write_text("push_interval_seconds = 10\nlisten_port = 1\nended_keep_seconds = 60\n")
    environ = {**NEEDED, "SLICEMETER_LISTEN_PORT": "2", "SLICEMETER_ENDED_KEEP_SECONDS": "61"}
    argv = ["--config", str(config), "--ended-keep-seconds", "62", "--accounting-url", "https://books:8443/"]
    settings = load_node_settings(argv, environ)
    assert settings.accounting == AccountingAccess("https://books:8443", None, None, 10.0)
    assert settings.listen_port == 2
    assert settings.ended_keep_seconds == 62
    assert settings.scheduler_names == ("hami-scheduler",)


def test_our_own_variable_beats_the_fields_own() -> None:
    assert load_node_settings([], {**NEEDED, "SLICEMETER_NODE_NAME": "alias"}).node_name == "alias"


def test_lists_are_toml_lists_or_words_with_commas(tmp_path: Path) -> None:
    config = tmp_path / "exporter.toml"
    config.write_text('container_roots = ["/a", "/b"]\n')
    settings = load_node_settings([], {**NEEDED, "SLICEMETER_CONFIG": str(config)})
    assert settings.container_roots == (Path("/a"), Path("/b"))
    again = load_node_settings(["--container-roots", "/a, /b"], NEEDED)
    assert again.container_roots == settings.container_roots


def test_an_empty_proc_root_turns_the_lookup_off() -> None:
    assert load_node_settings(["--proc-root", ""], NEEDED).proc_root is None


def test_pages_are_open_plain_and_without_hamis_names_unless_told_otherwise() -> None:
    settings = load_node_settings([], NEEDED)
    assert (settings.web_config_file, settings.metrics_token_file) == (None, None)
    assert (settings.compat, settings.series_budget) == (None, 50_000)
    argv = ["--web-config-file", "/w.yml", "--metrics-token-file", "/t", "--series-budget", "100"]
    settings = load_node_settings([*argv, "--compat", "hami"], NEEDED)
    assert (settings.web_config_file, settings.metrics_token_file) == (Path("/w.yml"), Path("/t"))
    assert (settings.compat, settings.series_budget) == ("hami", 100)


def test_resource_names_and_factor_reach_the_reader_of_pods() -> None:
    argv = ["--resource-count", "example.com/gpu", "--memory-factor", "1024"]
    names = load_cluster_settings(argv, NEEDED).resources
    assert (names.count, names.memory_mib, names.memory_factor) == (
        "example.com/gpu",
        "nvidia.com/gpumem",
        1024,
    )


@pytest.mark.parametrize(
    ("argv", "environ", "line"),
    [
        (
            [],
            {"NODE_NAME": "n"},
            (
                "exporter node: cluster is not set; give --cluster, SLICEMETER_CLUSTER or the key cluster "
                "in the file of --config"
            ),
        ),
        (
            ["--sample-interval-seconds", "20"],
            NEEDED,
            (
                'exporter node: sample_interval_seconds = "20" (--sample-interval-seconds): '
                "give seconds between 0.2 and 10"
            ),
        ),
        (
            ["--sample-interval-seconds", "nan"],
            NEEDED,
            (
                'exporter node: sample_interval_seconds = "nan" (--sample-interval-seconds): '
                "give seconds between 0.2 and 10"
            ),
        ),
        (
            [],
            {**NEEDED, "SLICEMETER_LISTEN_PORT": "65536"},
            (
                'exporter node: listen_port = "65536" (SLICEMETER_LISTEN_PORT): '
                "give a port between 0 and 65535 (0 = any free one)"
            ),
        ),
        (
            ["--accounting-url", "books:8443"],
            NEEDED,
            (
                'exporter node: accounting_url = "books:8443" (--accounting-url): '
                "give an address like https://host:port"
            ),
        ),
        (
            ["--cluster", "Berlin 1"],
            NEEDED,
            (
                'exporter node: cluster = "Berlin 1" (--cluster): '
                "give the cluster's code in accounting: up to 63 of a-z, 0-9 and -"
            ),
        ),
        (
            ["--tenant-from", "pod-label"],
            NEEDED,
            (
                'exporter node: tenant_from = "pod-label" (--tenant-from): '
                '"pod-label" names no label; write pod-label:KEY'
            ),
        ),
        (
            ["--series-budget", "99"],
            NEEDED,
            (
                'exporter node: series_budget = "99" (--series-budget): '
                "give a whole number from 100 to 10000000"
            ),
        ),
        (
            ["--compat", "volcano"],
            NEEDED,
            'exporter node: compat = "volcano" (--compat): give hami or nothing',
        ),
        (
            ["--clock", "1"],
            NEEDED,
            (
                "slicemeter exporter node: unrecognized arguments: --clock 1; "
                "slicemeter exporter node --help lists the flags"
            ),
        ),
        (
            [],
            {"SLICEMETER_CLUSTER": "c", "NODE_NAME": "n"},
            (
                "exporter node: kube_api_url is not set and this is no pod; give --kube-api-url or "
                "SLICEMETER_KUBE_API_URL"
            ),
        ),
    ],
)
def test_an_error_is_one_line_with_thing_place_and_way_out(
    argv: list[str], environ: dict[str, str], line: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        load_node_settings(argv, environ)
    assert str(caught.value) == line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('colour = "red"', 'unknown key "colour"; known are: '),
        ("listen_port = [1]", "listen_port must be text, a number or a list of texts"),
        ("listen_port = true", "listen_port must be text, a number or a list of texts"),
        ("listen_port =", "cannot be read as TOML"),
        ("lock_timeout_seconds = 5", 'unknown key "lock_timeout_seconds"'),
    ],
)
def test_a_bad_file_is_named_with_its_key(tmp_path: Path, text: str, words: str) -> None:
    config = tmp_path / "exporter.toml"
    config.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_node_settings(["--config", str(config)], NEEDED)
    assert str(caught.value).startswith(f"config file {config}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_said_not_skipped(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load_node_settings(["--config", str(tmp_path / "none.toml")], NEEDED)


def test_help_shows_every_setting_with_variable_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        load_node_settings(["--help"], {})
    assert caught.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for setting in NODE_SETTINGS:
        assert setting.flag in shown
        assert f"[{setting.env};" in shown


def test_there_is_neither_a_clock_nor_a_simulate_switch() -> None:
    names = {setting.name for setting in (*NODE_SETTINGS, *CLUSTER_SETTINGS)}
    assert not [name for name in names if "clock" in name or "simul" in name or "fake" in name]


@pytest.mark.parametrize("settings", [NODE_SETTINGS, CLUSTER_SETTINGS])
def test_every_default_is_a_value_that_its_parser_takes(settings: tuple[object, ...]) -> None:
    for setting in NODE_SETTINGS if settings is NODE_SETTINGS else CLUSTER_SETTINGS:
        if setting.default is not None:
            setting.parse(setting.default)
