"""What every page must be as HTML: well-formed, with landmarks, headings and captions, and nothing inline."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_VOID = {"meta", "link", "input", "br", "hr", "img"}
_EMPTY_SVG = {"rect", "line"}


class Page(HTMLParser):
    """A page read strictly; `faults` says what is wrong with it."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self._ids: list[str] = []
        self._labels: set[str] = set()
        self._controls: list[tuple[str, dict[str, str | None]]] = []
        self._headings: list[int] = []
        self._tables: list[bool] = []
        self.counts: dict[str, int] = {}
        self.feed(text)
        self.close()
        self._judge(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        if len(known) < len(attrs):
            self.faults.append(f"<{tag}> has an attribute twice")
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag not in _VOID | _EMPTY_SVG:
            self._open.append(tag)
        self._note(tag, known)
        if tag in {"input", "select", "textarea"} and known.get("type") != "hidden":
            self._controls.append((tag, known))
        if tag == "label":
            self._labels.add(known.get("for") or "")
        if re.fullmatch(r"h[1-6]", tag):
            self._headings.append(int(tag[1]))
        if tag == "table":
            self._tables.append(False)
        if tag == "caption":
            self._tables[-1] = True
        if tag == "th" and known.get("scope") not in {"col", "row"}:
            self.faults.append("a <th> without a scope")

    def _note(self, tag: str, known: dict[str, str | None]) -> None:
        """Ids, links and what stands inline."""
        self._ids += [known["id"] or ""] if "id" in known else []
        for name in known:
            if name == "style" or name.startswith("on"):
                self.faults.append(f"<{tag} {name}> is inline")
        if tag == "a":
            href = known.get("href") or ""
            self.links.append(href)
            if href.startswith(("javascript:", "http:", "https:", "//")):
                self.faults.append(f"a link leaves: {href}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID | _EMPTY_SVG:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1] != tag:
            self.faults.append(f"</{tag}> closes {self._open[-1:]}")
        else:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    @property
    def words(self) -> str:
        """What is read, with single spaces."""
        return " ".join(" ".join(self.text).split())

    def _judge(self, text: str) -> None:
        if self._open:
            self.faults.append(f"never closed: {self._open}")
        if not text.startswith("<!doctype html>") or '<html lang="en">' not in text:
            self.faults.append("no doctype or no language")
        for tag, wanted in (("h1", 1), ("main", 1), ("title", None), ("header", 1)):
            found = self.counts.get(tag, 0)
            if found < 1 or (wanted is not None and found != wanted):
                self.faults.append(f"{found} <{tag}>")
        if self.counts.get("style") or self.counts.get("script"):
            self.faults.append("inline style or script")
        twice = {one for one in self._ids if self._ids.count(one) > 1}
        if twice:
            self.faults.append(f"ids twice: {sorted(twice)}")
        if any(after > before + 1 for before, after in zip(self._headings, self._headings[1:], strict=False)):
            self.faults.append(f"headings skip a level: {self._headings}")
        if not all(self._tables):
            self.faults.append("a table without a caption")
        for tag, known in self._controls:
            if (known.get("id") or "") not in self._labels:
                self.faults.append(f"<{tag} name={known.get('name')}> has no label")
        for name in re.findall(r'aria-labelledby="([^"]+)"', text):
            if name not in self._ids:
                self.faults.append(f"aria-labelledby names {name}, which is not there")
