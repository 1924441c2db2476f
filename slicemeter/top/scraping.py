"""The pages of many exporters at once: whoever does not answer is named and holds nobody else up."""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from exporter.exposition.reading import Page, parse_page

MOST_BYTES = 64 * 1024 * 1024
_MOST_THREADS = 32


@dataclass(frozen=True, slots=True)
class Access:
    """How the exporters are asked.

    Attributes:
        token: Sent as bearer token.
        ca_file: Whom to believe besides the system's authorities.
    """

    token: str | None = None
    ca_file: Path | None = None
    timeout_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one exporter answered: a page, or why there is none."""

    url: str
    page: Page | None
    error: str = ""


def page_url(text: str) -> str:
    """The address of an exporter's page: `node:9476`, `http://node:9476` and the whole URL name the same.

    Raises:
        ValueError: It is no address of an HTTP server.
    """
    parts = urllib.parse.urlsplit(text if "://" in text else f"http://{text}")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f'"{text}" is no address of an exporter; write it like http://gpu-node:9476')
    path = parts.path if parts.path not in {"", "/"} else "/metrics"
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def scrape_all(urls: Sequence[str], access: Access) -> list[Scrape]:
    """One page of each exporter, in the given order.

    Raises:
        OSError: The CA file cannot be read.
    """
    context = ssl.create_default_context()
    if access.ca_file is not None:
        context.load_verify_locations(access.ca_file)
    with ThreadPoolExecutor(min(len(urls), _MOST_THREADS)) as pool:
        return list(pool.map(lambda url: _scrape(url, access, context), urls))


def _scrape(url: str, access: Access, context: ssl.SSLContext) -> Scrape:
    headers = {"Authorization": f"Bearer {access.token}"} if access.token else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - page_url lets only HTTP pass
    try:
        with urllib.request.urlopen(request, timeout=access.timeout_s, context=context) as answer:  # noqa: S310
            body = answer.read(MOST_BYTES)
        return Scrape(url, parse_page(body.decode(), time.time()))
    except urllib.error.HTTPError as error:
        with error:
            way_out = "; name a token with --token-file" if error.code in {401, 403} else ""
            return Scrape(url, None, f"{error.code} {error.reason}{way_out}")
    except urllib.error.URLError as error:
        return Scrape(url, None, str(getattr(error.reason, "strerror", None) or error.reason))
    except (OSError, http.client.HTTPException) as error:
        return Scrape(url, None, str(error) or type(error).__name__)
    except ValueError:
        return Scrape(url, None, "answers with no metrics page; is it an exporter's address?")
