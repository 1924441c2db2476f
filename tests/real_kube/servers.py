"""A genuine Kubernetes API: Debian's etcd, kube-apiserver with RBAC, real kubectl; nothing else of a cluster.

Certificates and keys are made for each run. An administrator's token is known to the server from a file;
everybody else comes as a ServiceAccount, with a token that the server made or that we signed with its own
key, which alone can be of any age.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from exporter.kube.access import KubeAccess
from tests.exporter.node.program import free_port

APISERVER_ENV = "SLICEMETER_KUBE_APISERVER"
ISSUER = "https://kubernetes.default.svc"
PATIENCE_S = 180.0
STOP_S = 30.0
NAMESPACE = "slicemeter"
"""Where the chart is installed."""

Object = dict[str, Any]


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Look until it holds; fail with what it was."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"it never came to be: {what}"
        threading.Event().wait(0.2)


class Process:
    """A program that is ended at the end."""

    def __init__(self, log: Path, words: list[str | Path]) -> None:
        self.log = log
        self._words = [str(word) for word in words]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._words, stdout=log, stderr=log, start_new_session=True)

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


class Etcd:
    """One etcd, spoken to through its JSON gateway."""

    def __init__(self, folder: Path) -> None:
        port, peer = free_port(), free_port()
        self.url = f"http://127.0.0.1:{port}"
        peers = f"http://127.0.0.1:{peer}"
        words: list[str | Path] = ["etcd", "--data-dir", folder / "etcd", "--listen-client-urls", self.url]
        words += ["--advertise-client-urls", self.url, "--listen-peer-urls", peers]
        words += ["--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}"]
        self.process = Process(folder / "etcd.log", words)

    def ask(self, path: str, body: Object) -> Object:
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=10) as answer:
            found: Object = json.load(answer)
            return found

    def revision(self) -> int:
        """The newest revision; Kubernetes calls it resourceVersion."""
        key = base64.b64encode(b"/").decode()
        return int(self.ask("/v3/kv/range", {"key": key, "count_only": True})["header"]["revision"])

    def compact(self) -> int:
        """Forget all but the newest revision, also on disk; which is that."""
        revision = self.revision()
        self.ask("/v3/kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def is_well(self) -> bool:
        try:
            return self.revision() > 0
        except OSError:
            return False


@dataclass(frozen=True)
class Answer:
    """What the API server said."""

    status: int
    body: Object


def first_object(text: bytes) -> Object:
    """The answer, or the first event of a watch; empty for what is no object."""
    line = text.partition(b"\n")[0]
    found: Object = json.loads(line) if line.startswith(b"{") else {}
    return found


class RealCluster:
    """One cluster: etcd and API servers, whose addresses stay the same over `stop_api` and `start_api`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.etcd = Etcd(folder)
        self.ca_file = folder / "ca.crt"
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca_file))
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        certificate.private_key_pem.write_to_path(str(folder / "server.key"))
        (folder / "server.crt").write_bytes(b"".join(pem.bytes() for pem in certificate.cert_chain_pems))
        self._key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        (folder / "accounts.key").write_bytes(
            self._key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        self.admin = "token-of-the-administrator"
        (folder / "tokens.csv").write_text(f'{self.admin},admin,admin,"system:masters"\n')
        self.port = free_port()
        self._api = self._api_server(self.port, "api")
        self._kubeconfig = folder / "kubeconfig"
        self._kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "c",
                    "clusters": [
                        {
                            "name": "c",
                            "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)},
                        }
                    ],
                    "users": [{"name": "admin", "user": {"token": self.admin}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "admin"}}],
                }
            )
        )

    def _api_server(self, port: int, name: str) -> Process:
        folder = self.folder
        flags: dict[str, str | Path] = {
            "etcd-servers": self.etcd.url,
            # We compact by hand, at the moment that matters.
            "etcd-compaction-interval": "0",
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": str(port),
            "tls-cert-file": folder / "server.crt",
            "tls-private-key-file": folder / "server.key",
            "token-auth-file": folder / "tokens.csv",
            "authorization-mode": "RBAC",
            "service-account-key-file": folder / "accounts.key",
            "service-account-signing-key-file": folder / "accounts.key",
            "service-account-issuer": ISSUER,
            "service-cluster-ip-range": "10.0.0.0/24",
            # No controller makes the default ServiceAccount here.
            "disable-admission-plugins": "ServiceAccount",
            "endpoint-reconciler-type": "none",
            "cert-dir": folder,
        }
        words: list[str | Path] = [os.environ[APISERVER_ENV]]
        words += [f"--{flag}={value}" for flag, value in flags.items()]
        return Process(folder / f"{name}.log", words)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def access(self, token_file: Path) -> KubeAccess:
        return KubeAccess(self.url, self.ca_file, token_file)

    def start(self) -> None:
        self.etcd.process.start()
        wait_until(self.etcd.is_well, "etcd answers")
        self.start_api()

    def stop(self) -> None:
        self.stop_api()
        self.etcd.process.stop()

    def start_api(self) -> None:
        self._api.start()
        wait_until(lambda: self.is_ready() or not self._api.is_running(), "the API server is ready")
        assert self._api.is_running(), self._api.log.read_text()[-4_000:]

    def stop_api(self, how: signal.Signals = signal.SIGTERM) -> None:
        self._api.stop(how)

    @contextmanager
    def second_door(self) -> Iterator[RealCluster]:
        """Another API server on the same etcd: what happens while the first one is away."""
        other = object.__new__(RealCluster)
        other.__dict__ |= self.__dict__
        other.port = free_port()
        other._api = other._api_server(other.port, "other-api")
        other.start_api()
        try:
            yield other
        finally:
            other.stop_api()

    def is_ready(self) -> bool:
        try:
            # The namespace kube-system is made by the server after its start.
            return (
                self.ask("GET", "/readyz").status == 200
                and self.ask("GET", "/api/v1/namespaces/kube-system").status == 200
                and self.ask("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin").status
                == 200
            )
        except OSError:
            return False

    def ask(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        token: str | None = None,
        media_type: str = "application/json",
    ) -> Answer:
        """One request, as the administrator unless a token is given."""
        headers = {"Authorization": f"Bearer {token or self.admin}", "Accept": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = media_type
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        context = ssl.create_default_context(cafile=str(self.ca_file))
        try:
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                text = answer.read()
                return Answer(answer.status, first_object(text))
        except urllib.error.HTTPError as error:
            with error:
                text = error.read()
                return Answer(error.code, first_object(text))

    def put(self, path: str, body: Object) -> Object:
        """Create an object, or fail."""
        answer = self.ask("POST", path, body)
        assert answer.status == 201, answer.body
        return answer.body

    def patch(self, path: str, body: Object) -> Object:
        """Change an object, or fail."""
        answer = self.ask("PATCH", path, body, media_type="application/merge-patch+json")
        assert answer.status == 200, answer.body
        return answer.body

    def delete(self, path: str) -> None:
        """Delete an object at once: no kubelet would confirm it."""
        answer = self.ask(
            "DELETE", path, {"gracePeriodSeconds": 0, "kind": "DeleteOptions", "apiVersion": "v1"}
        )
        assert answer.status == 200, answer.body

    def kubectl(self, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator; the caller looks at the exit code."""
        command = ["kubectl", "--kubeconfig", str(self._kubeconfig), *words]
        environ = os.environ | {"HOME": str(self.folder), "KUBECONFIG": ""}
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, env=environ)

    def apply(self, *objects: Object) -> None:
        """`kubectl apply`, or fail."""
        done = self.kubectl("apply", "-f", "-", stdin="\n".join(json.dumps(each) for each in objects))
        assert done.returncode == 0, done.stderr

    def token_of(self, account: str) -> str:
        """A ServiceAccount's token, made by the server, as the kubelet asks for one."""
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [ISSUER]},
        }
        return str(self.put(path, body)["status"]["token"])

    def short_token_of(self, account: str, seconds: float) -> str:
        """The same, good for so long only; the server itself gives out none below ten minutes."""
        found = self.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}").body
        now = time.time()
        claims = {
            "iss": ISSUER,
            "aud": [ISSUER],
            "sub": f"system:serviceaccount:{NAMESPACE}:{account}",
            "iat": int(now),
            "nbf": int(now),
            "exp": int(now + seconds),
            "kubernetes.io": {
                "namespace": NAMESPACE,
                "serviceaccount": {"name": account, "uid": found["metadata"]["uid"]},
            },
        }
        return jwt.encode(claims, self._key, algorithm="RS256")

    def add_node(self, name: str, register: str) -> None:
        """A Ready node with HAMi's register annotation."""
        self.put(
            "/api/v1/nodes",
            {"metadata": {"name": name, "annotations": {"hami.io/node-nvidia-register": register}}},
        )
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now}
        ready |= {"reason": "KubeletReady", "message": "ready"}
        self.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": [ready]}})

    def add_namespace(self, name: str, tenant: str = "") -> None:
        """A namespace, with the label that names its tenant."""
        labels = {"capsule.clastix.io/tenant": tenant} if tenant else {}
        self.put("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})

    def add_pod(self, namespace: str, name: str, node: str, card: str, *, memory_mib: int = 4_000) -> Object:
        """A pod that HAMi bound to a card and a kubelet runs."""
        entry = f"{card},NVIDIA,{memory_mib},30:;"
        resources = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory_mib), "nvidia.com/gpucores": "30"}
        path = f"/api/v1/namespaces/{namespace}/pods"
        pod = self.put(
            path,
            {
                "metadata": {
                    "name": name,
                    "annotations": {
                        "hami.io/vgpu-node": node,
                        "hami.io/vgpu-time": str(int(time.time())),
                        "hami.io/bind-phase": "success",
                        "hami.io/vgpu-devices-allocated": entry,
                    },
                },
                "spec": {
                    "nodeName": node,
                    "schedulerName": "hami-scheduler",
                    "automountServiceAccountToken": False,
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry.example/job:1",
                            "resources": {"limits": resources, "requests": resources},
                        }
                    ],
                },
            },
        )
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
        self.patch(f"{path}/{name}/status", {"status": {"phase": "Running", "conditions": [scheduled]}})
        return pod
