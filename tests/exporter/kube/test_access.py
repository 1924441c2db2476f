from __future__ import annotations

from pathlib import Path

import pytest

from exporter.kube.access import KubeAccess
from exporter.kube.errors import KubeError


def test_a_pod_finds_its_api_server_in_its_environment() -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    folder = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    assert KubeAccess.in_cluster(environ) == KubeAccess(
        "https://10.96.0.1:6443", folder / "ca.crt", folder / "token"
    )


def test_an_address_of_ip_version_6_stands_in_brackets() -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert KubeAccess.in_cluster(environ).api_url == "https://[fd00::1]:443"


def test_outside_a_cluster_the_error_names_the_way_out() -> None:
    with pytest.raises(KubeError, match="name the API server") as caught:
        KubeAccess.in_cluster({})
    assert caught.value.reason == "not_in_cluster"
