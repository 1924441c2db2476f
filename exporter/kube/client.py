"""One GET at a time to an API server, over http.client and ssl: the official clients cost 90 MiB a node.

Each request has its own connection, with the token and the CA as they are on disk at that moment.
Invariant: every failure leaves as a `KubeError` with a reason word; there is no limit on the size of
an answer (tens of MiB are normal), only on how long the server may stay silent.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

import msgspec

from contract.version import VERSION
from exporter.kube.access import KubeAccess
from exporter.kube.cancellation import Cancellation
from exporter.kube.errors import KubeError, refusal

JSON = "application/json"
CHUNK_BYTES = 64 * 1024
ERROR_BODY_BYTES = 64 * 1024
"""How much of an error's body is read to find its message."""


@dataclass(frozen=True, slots=True)
class Request:
    """A GET.

    Attributes:
        path: Below the API's root, e.g. `/api/v1/pods`.
        query: Parameters, unescaped.
        accept: The representation we want.
        silence_s: How long the server may send nothing before the connection counts as dead.
    """

    path: str
    query: Mapping[str, str]
    accept: str = JSON
    silence_s: float = 30.0

    @property
    def target(self) -> str:
        """Path and query as sent."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


class _Status(msgspec.Struct):
    """The part of a `Status` object that a person wants to read."""

    message: str = ""


class _TidySocket(ssl.SSLSocket):
    """Closes itself: `ssl` forgets a socket whose peer resets it just before the handshake."""

    def __del__(self) -> None:
        self.close()


class ApiClient:
    """GETs to one API server; holds no connection, so threads may share it.

    Args:
        access: Where and as whom.
        connect_timeout_s: For the connection and the TLS handshake.

    Raises:
        KubeError: The URL is not `https://host[:port][/path]`.
    """

    def __init__(self, access: KubeAccess, *, connect_timeout_s: float = 10.0) -> None:
        parts = urlsplit(access.api_url)
        if parts.scheme != "https" or not parts.hostname:
            raise KubeError(
                "bad_url", f'API server "{access.api_url}": not an address like https://10.96.0.1:443'
            )
        self._access = access
        self._host, self._port = parts.hostname, parts.port or 443
        self._prefix = parts.path.rstrip("/")
        self._connect_timeout_s = connect_timeout_s

    def read(self, request: Request, cancellation: Cancellation | None = None) -> bytes:
        """The whole body of an answer.

        Raises:
            KubeError: No answer, an incomplete one, or a refusal.
        """
        with self._answer(request, cancellation or Cancellation()) as response:
            return response.read()

    @contextmanager
    def stream(self, request: Request, cancellation: Cancellation) -> Iterator[Iterator[bytes]]:
        """The body of an answer in pieces as they arrive; the pieces end when the server ends cleanly.

        Raises:
            KubeError: No answer, a refusal, or the connection broke or fell silent in the middle.
        """
        with self._answer(request, cancellation) as response:
            yield iter(lambda: response.read1(CHUNK_BYTES), b"")

    @contextmanager
    def _answer(self, request: Request, cancellation: Cancellation) -> Iterator[http.client.HTTPResponse]:
        place = f"GET {self._access.api_url}{request.path}"
        with _failures_named(place), closing(self._connect()) as connection:
            connection.connect()
            with cancellation.interrupting(connection.sock):
                connection.sock.settimeout(request.silence_s)
                connection.request("GET", self._prefix + request.target, headers=self._headers(request))
                with closing(connection.getresponse()) as response:
                    if response.status != http.HTTPStatus.OK:
                        raise _refusal(place, response)
                    yield response

    def _connect(self) -> http.client.HTTPSConnection:
        cafile = str(self._access.ca_file) if self._access.ca_file else None
        context = ssl.create_default_context(cafile=cafile)
        context.sslsocket_class = _TidySocket
        # Python 3.13 began to demand extensions that cluster authorities of older kubeadm lack.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._connect_timeout_s, context=context
        )

    def _headers(self, request: Request) -> dict[str, str]:
        headers = {"Accept": request.accept, "User-Agent": f"slicemeter-exporter/{VERSION}"}
        if self._access.token_file is not None:
            headers["Authorization"] = f"Bearer {self._token(self._access)}"
        return headers

    @staticmethod
    def _token(access: KubeAccess) -> str:
        assert access.token_file is not None
        try:
            token = access.token_file.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise KubeError(
                "token_unreadable", f"token file {access.token_file}: {error}; mount a service account token"
            ) from error
        if not token or any(character.isspace() for character in token):
            raise KubeError("token_unreadable", f"token file {access.token_file}: holds no single token")
        return token


def complete_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The lines, without their ends, of a stream that arrives in pieces of any size.

    Raises:
        KubeError: The stream ended in the middle of a line; half a line is never yielded (`cut`).
    """
    rest = bytearray()
    for piece in pieces:
        searched = len(rest)
        rest += piece
        start = 0
        while (end := rest.find(b"\n", max(start, searched))) >= 0:
            if end > start:
                yield bytes(rest[start:end])
            start = end + 1
        del rest[:start]
    if rest:
        raise KubeError("cut", f"the stream ended in the middle of a line, after {len(rest)} bytes of it")


@contextmanager
def _failures_named(place: str) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError as error:
        raise KubeError("tls", f"{place}: {error}; check the CA file and the address") from error
    except TimeoutError as error:
        raise KubeError("silent", f"{place}: the server sent nothing for too long") from error
    except http.client.HTTPException as error:
        raise KubeError("cut", f"{place}: the answer broke off ({error!r})") from error
    except OSError as error:
        raise KubeError("unreachable", f"{place}: {error}") from error


def _refusal(place: str, response: http.client.HTTPResponse) -> KubeError:
    body = response.read(ERROR_BODY_BYTES)
    try:
        message = msgspec.json.decode(body, type=_Status).message
    except msgspec.MsgspecError:
        message = ""
    text = message or response.reason or "no reason given"
    return refusal(
        response.status, f"{place}: {response.status} {text}", _seconds(response.getheader("Retry-After"))
    )


def _seconds(retry_after: str | None) -> float | None:
    # The HTTP-date form exists on paper; API servers send whole seconds.
    return float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else None
