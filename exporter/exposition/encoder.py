"""The fast encoder: a page as Prometheus text or OpenMetrics, byte-equal to `generate_latest`.

In Python rendering is the cost of a scrape, not collecting (`reference/metering.md §9`). A series'
`name{labels} ` does not change from page to page, so it is kept, and a page formats only values.
Invariants: a page is rendered once per encoding however many scrapers ask; the kept prefixes are those
of the newest page, so churn does not grow them; nothing here touches a source.
"""

from __future__ import annotations

import functools
import operator
import threading
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from contract.catalogue import Family
from exporter.exposition.page import FamilySamples, Labels, Page

if TYPE_CHECKING:
    from zlib import _Compress

_NO_NUMBERS = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
_GZIP_WINDOW = 31  # zlib's way to say: gzip header and trailer
_GZIP_LEVEL = 1  # pages repeat themselves; more effort buys little and a scrape waits for it
_GO_EXPONENT_FROM = 1e6  # Go writes an exponent from seven digits on, Python only from seventeen


@dataclass(frozen=True, slots=True)
class _Kept:
    """One family of the newest page: the finished prefix of each series.

    Attributes:
        body: The text of all, if it was the same on two pages in a row; else it is not worth its memory.
    """

    labels: tuple[Labels, ...]
    values: tuple[float, ...]
    prefixes: list[str]
    body: str | None = None

    def text(self) -> str:
        """The text of all series."""
        return _body(self.values, self.prefixes) if self.body is None else self.body


@dataclass(frozen=True, slots=True)
class _Created:
    """Since when a counter's series count, and the lines that say so, each to stand behind its series."""

    labels: tuple[Labels, ...]
    created_s: tuple[float | None, ...]
    lines: list[str]


class PageEncoder:
    """Renders pages; one for each server, shared by its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._created: dict[str, _Created] = {}
        self._page: Page | None = None
        self._rendered: dict[bool, bytes] = {}
        self._compressed: dict[bool, tuple[bytes, _Compress]] = {}

    def render(self, page: Page, *, openmetrics: bool) -> bytes:
        """The page's families as text; without the closing `# EOF`, since more families follow."""
        with self._lock:
            return self._render(page, openmetrics=openmetrics)

    def render_gzip(self, page: Page, tail: bytes, *, openmetrics: bool) -> bytes:
        """The same with `tail` behind it, as one gzip stream; the page's part is compressed once."""
        with self._lock:
            text = self._render(page, openmetrics=openmetrics)
            if openmetrics not in self._compressed:
                compressor = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WINDOW)
                head = compressor.compress(text) + compressor.flush(zlib.Z_SYNC_FLUSH)
                self._compressed[openmetrics] = (head, compressor)
            head, compressor = self._compressed[openmetrics]
            rest = compressor.copy()
        return head + rest.compress(tail) + rest.flush()

    def _render(self, page: Page, *, openmetrics: bool) -> bytes:
        if page is not self._page:
            self._take(page)
        if openmetrics not in self._rendered:
            parts: list[str] = []
            for family in page.families:
                body = self._kept[family.family.name].text()
                text = self._with_created(family, body) if openmetrics and family.created_s else body
                parts.extend((_header(family.family, openmetrics=openmetrics), text))
            self._rendered[openmetrics] = "".join(parts).encode()
        return self._rendered[openmetrics]

    def _with_created(self, family: FamilySamples, body: str) -> str:
        """A counter's text with the line behind each series that says since when it counts."""
        name = family.family.name
        kept = self._created.get(name)
        if kept is None or kept.labels != family.labels or kept.created_s != family.created_s:
            known = (
                {}
                if kept is None
                else dict(zip(zip(kept.labels, kept.created_s, strict=True), kept.lines, strict=True))
            )
            lines = [
                known.get(at) or _created_line(family.family, *at)
                for at in zip(family.labels, family.created_s, strict=True)
            ]
            kept = self._created[name] = _Created(family.labels, family.created_s, lines)
        # Line breaks in labels are escaped.
        return "\n".join([*map(operator.add, body[:-1].split("\n"), kept.lines), ""])

    def _take(self, page: Page) -> None:
        """Make ready for a page; its samples look the same in both encodings."""
        kept = self._kept
        self._kept = {
            family.family.name: _format(family, kept.get(family.family.name)) for family in page.families
        }
        self._created = {name: kept for name, kept in self._created.items() if name in self._kept}
        self._rendered = {}
        self._compressed = {}
        self._page = page


def _format(family: FamilySamples, kept: _Kept | None) -> _Kept:
    """A family: mostly with the prefixes of the page before, often with its very text."""
    if kept is None:
        prefixes = [_prefix(family.family, values) for values in family.labels]
    elif family.labels != kept.labels:
        known = dict(zip(kept.labels, kept.prefixes, strict=True))
        prefixes = [known.get(values) or _prefix(family.family, values) for values in family.labels]
    elif family.values == kept.values:
        return kept if kept.body is not None else replace(kept, body=kept.text())
    else:
        prefixes = kept.prefixes
    return _Kept(family.labels, family.values, prefixes)


def _body(values: tuple[float, ...], prefixes: list[str]) -> str:
    # NaN and infinities fail both comparisons and take the long way.
    texts = [
        repr(value) if -_GO_EXPONENT_FROM < value < _GO_EXPONENT_FROM else _go_text(value) for value in values
    ]
    return "\n".join([*map(operator.add, prefixes, texts), ""])


def _go_text(value: float) -> str:
    """A number as Go writes it: with an exponent from seven digits before the point on."""
    text = repr(value)
    point = text.find(".")
    if value > 0 and point > 6:
        digits = f"{text[0]}.{text[1:point]}{text[point + 1 :]}".rstrip("0.")
        return f"{digits}e+{point - 1:02d}"
    return _NO_NUMBERS.get(text, text)


def _prefix(family: Family, labels: Labels, name: str = "") -> str:
    name = name or family.full_name
    if not labels:
        return name + " "
    pairs = sorted(zip(family.labels, labels, strict=True))
    text = ",".join(f'{name}="{_escape(value)}"' for name, value in pairs)
    return f"{name}{{{text}}} "


def _created_line(family: Family, labels: Labels, created_s: float | None) -> str:
    if created_s is None:
        return ""
    name = family.full_name.removesuffix("_total") + "_created"
    return f"\n{_prefix(family, labels, name)}{_go_text(created_s + 0.0)}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@functools.cache
def _header(family: Family, *, openmetrics: bool) -> str:
    """HELP and TYPE; OpenMetrics names a counter without `_total` and escapes quotes in help too."""
    kind = "gauge" if family.type == "info" else family.type
    name = family.full_name
    text = family.help.replace("\\", r"\\").replace("\n", r"\n")
    if openmetrics:
        text = text.replace('"', r"\"")
        if kind == "counter":
            name = name.removesuffix("_total")
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
