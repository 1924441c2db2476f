from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from exporter.kube.access import KubeAccess
from exporter.kube.cancellation import Cancellation
from exporter.kube.client import ApiClient, Request
from exporter.kube.errors import KubeError
from lab.kube.double import ApiDouble
from lab.kube.faults import Answer, Drop, Pieces, Silence

PODS = Request("/api/v1/pods", {}, silence_s=5.0)


def failure_of(client: ApiClient, request: Request = PODS) -> KubeError:
    with pytest.raises(KubeError) as caught:
        client.read(request)
    return caught.value


def test_a_server_that_another_authority_signed_is_not_believed(api: ApiDouble, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.crt"))
    client = ApiClient(replace(api.access, ca_file=tmp_path / "other.crt"))
    assert failure_of(client).reason == "tls"
    assert api.request_log.count() == 0


def test_the_token_is_read_again_for_each_connection(api: ApiDouble, client: ApiClient) -> None:
    client.read(PODS)
    api.replace_token()
    client.read(PODS)
    api.token_file.write_text("stale")
    error = failure_of(client)
    assert (error.reason, error.status) == ("unauthorized", 401)


@pytest.mark.parametrize("content", ["", "two words", "bücher"])
def test_a_file_that_holds_no_token_is_never_sent(api: ApiDouble, client: ApiClient, content: str) -> None:
    api.token_file.write_text(content, encoding="utf-8")
    assert failure_of(client).reason == "token_unreadable"


def test_a_missing_token_file_is_named(api: ApiDouble, client: ApiClient) -> None:
    api.token_file.unlink()
    assert str(api.token_file) in failure_of(client).detail


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "127.0.0.1:6443", "https://"])
def test_an_address_without_tls_is_refused_before_a_token_leaves(url: str) -> None:
    with pytest.raises(KubeError, match="not an address like"):
        ApiClient(KubeAccess(url))


@pytest.mark.parametrize(
    ("status", "reason"),
    [(403, "forbidden"), (410, "gone"), (429, "throttled"), (500, "server_error"), (418, "refused")],
)
def test_each_refusal_has_its_reason_word(
    api: ApiDouble, client: ApiClient, status: int, reason: str
) -> None:
    api.fail_next(Answer(status))
    error = failure_of(client)
    assert (error.reason, error.status) == (reason, status)


def test_retry_after_reaches_the_caller(api: ApiDouble, client: ApiClient) -> None:
    api.fail_next(Answer(429, retry_after_s=11))
    assert failure_of(client).retry_after_s == 11.0


def test_the_servers_own_words_are_in_the_error(client: ApiClient) -> None:
    request = Request("/api/v1/pods", {"fieldSelector": "spec.shoeSize=44"})
    assert "field label not supported: spec.shoeSize" in failure_of(client, request).detail


def test_a_dropped_connection_is_cut(api: ApiDouble, client: ApiClient) -> None:
    api.fail_next(Drop())
    assert failure_of(client).reason == "cut"


def test_a_silent_server_is_given_up(api: ApiDouble, client: ApiClient) -> None:
    api.fail_next(Silence())
    assert failure_of(client, replace(PODS, silence_s=0.05)).reason == "silent"


def test_a_server_that_is_away_is_unreachable(api: ApiDouble, client: ApiClient) -> None:
    api.stop()
    assert failure_of(client).reason == "unreachable"


def test_an_answer_of_many_mebibytes_in_pieces_is_accepted(api: ApiDouble, client: ApiClient) -> None:
    annotations = {f"key-{number}": "x" * 1_000_000 for number in range(24)}
    metadata = {"name": "big", "namespace": "n", "annotations": annotations}
    api.create("Pod", {"metadata": metadata})
    api.fail_next(Pieces(size_bytes=100_000))
    body = json.loads(client.read(PODS))
    assert body["items"][0]["metadata"]["annotations"] == annotations


def test_a_request_under_a_cancelled_switch_ends_at_once(api: ApiDouble, client: ApiClient) -> None:
    api.fail_next(Silence(), times=None)
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(KubeError):
        client.read(replace(PODS, silence_s=600.0), cancellation)


def test_a_path_in_front_of_the_api_is_kept(api: ApiDouble) -> None:
    client = ApiClient(replace(api.access, api_url=f"{api.url}/api/v1/namespaces/"))
    # The double serves the API at its root only, so the prefix shows in what it looks up.
    api.create("Namespace", {"metadata": {"name": "kube-system"}})
    body = json.loads(client.read(Request("/kube-system", {})))
    assert body["metadata"]["name"] == "kube-system"
