"""`slicemeter top`: live slices in the terminal, from one or many node exporters."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.live import Live

from slicemeter.top.keys import Keys
from slicemeter.top.model import Watch
from slicemeter.top.rows import SORTS, Filters, Row, ordered
from slicemeter.top.scraping import Access, page_url, scrape_all
from slicemeter.top.screen import View, next_sort, render

DEFAULT_URL = "http://127.0.0.1:9476/metrics"
_SHORTEST_S, _LONGEST_S = 0.2, 3_600.0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; see: {self.prog} --help", file=sys.stderr)
        raise SystemExit(2)


def _interval(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or not _SHORTEST_S <= value <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text} s: from {_SHORTEST_S:g} to {_LONGEST_S:g}")
    return value


def _parser() -> argparse.ArgumentParser:
    made = _Parser(
        prog="slicemeter top",
        description="Live slices from one or many node exporters. SM use and watts are means between two "
        "looks, from counters: under HAMi's throttling a single sample says nothing.",
        epilog="Without a way to the nodes: kubectl port-forward an exporter's pod, then ask this computer.",
        allow_abbrev=False,
    )
    made.add_argument(
        "--url",
        action="append",
        metavar="URL",
        help=f"a node exporter, as gpu-node:9476; may be repeated; default: {DEFAULT_URL}",
    )
    made.add_argument("--token-file", type=Path, metavar="FILE", help="bearer token that opens the pages")
    made.add_argument("--ca-file", type=Path, metavar="FILE", help="authority that signed the exporters")
    made.add_argument(
        "--interval", type=_interval, default=2.0, metavar="SECONDS", help="default: %(default)g"
    )
    made.add_argument("--sort", choices=tuple(SORTS), default="sm", help="default: %(default)s")
    made.add_argument("--reverse", action="store_true", help="the other way round")
    made.add_argument("--tenant", metavar="PATH", help="only this tenant and all below it")
    made.add_argument("--namespace", help="only this namespace")
    made.add_argument("--once", action="store_true", help="look twice, print one table and end")
    made.add_argument("--json", action="store_true", help="with --once: one JSON object a slice and line")
    return made


def main(argv: Sequence[str]) -> int:
    """Show slices until q or Ctrl-C; with `--once` 1 when an exporter did not answer."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        urls = list(dict.fromkeys(page_url(text) for text in arguments.url or [DEFAULT_URL]))
        token = None if arguments.token_file is None else arguments.token_file.read_text().strip()
        access = Access(token, arguments.ca_file)
        is_once = arguments.once or arguments.json or not sys.stdout.isatty()
        return _once(urls, access, arguments) if is_once else _live(urls, access, arguments)
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        if error.filename is None:
            raise
        parser.error(f"cannot read {error.filename}: {error.strerror}")


def _once(urls: Sequence[str], access: Access, arguments: argparse.Namespace) -> int:
    watch = Watch()
    watch.take(scrape_all(urls, access))
    if len(watch.errors) < len(urls):
        time.sleep(arguments.interval)
        watch.take(scrape_all(urls, access))
    if arguments.json:
        for row in _shown(watch, arguments, arguments.sort, is_reversed=arguments.reverse):
            print(json.dumps(_document(row), ensure_ascii=False))
        for url, error in watch.errors.items():
            print(f"slicemeter top: {url}: {error}", file=sys.stderr)
    else:
        console = Console()
        rows = _shown(watch, arguments, arguments.sort, is_reversed=arguments.reverse)
        view = View(
            rows, {}, watch.errors, len(urls), arguments.sort, is_reversed=arguments.reverse, is_live=False
        )
        console.print(render(view, console.width, None))
    return 1 if watch.errors else 0


def _live(urls: Sequence[str], access: Access, arguments: argparse.Namespace) -> int:
    console, watch = Console(), Watch()
    sort, is_reversed, top = arguments.sort, arguments.reverse, 0
    due_s = 0.0
    with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + arguments.interval
                watch.take(scrape_all(urls, access))
            rows = _shown(watch, arguments, sort, is_reversed=is_reversed)
            top = max(0, min(top, len(rows) - 1))
            histories = {row.key: watch.history(row.key) for row in rows}
            view = View(rows, histories, watch.errors, len(urls), sort, is_reversed=is_reversed, top=top)
            live.update(render(view, console.width, console.height), refresh=True)
            match keys.wait(due_s - time.monotonic()):
                case "q":
                    return 0
                case "s":
                    sort = next_sort(sort)
                case "r":
                    is_reversed = not is_reversed
                case "down" | "j":
                    top += 1
                case "up" | "k":
                    top -= 1


def _shown(watch: Watch, arguments: argparse.Namespace, sort: str, *, is_reversed: bool) -> list[Row]:
    filters = Filters(arguments.tenant, arguments.namespace)
    return ordered(filter(filters.lets_pass, watch.rows), sort, is_reversed=is_reversed)


def _document(row: Row) -> dict[str, object]:
    document = dataclasses.asdict(row)
    return {"exporter": row.key[0], "device_uuid": row.key[-1]} | {
        name: value for name, value in document.items() if name != "key"
    }
