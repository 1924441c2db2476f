"""`slicemeter top` as it is typed, against exporters' pages on loopback."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from slicemeter.top import main
from slicemeter.top.scraping import page_url
from tests.slicemeter.top.test_rows import slice_lines


class Exporter(ThreadingHTTPServer):
    """Answers with a page whose counters have grown by half a card since the last one."""

    token = ""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Exporter

    def do_GET(self) -> None:
        if self.server.token and self.headers.get("Authorization") != f"Bearer {self.server.token}":
            self.send_error(401)
            return
        self.server.asked += 1
        asked = self.server.asked
        lines = slice_lines("train", sm_s=asked * 0.5, memory_used_bytes=1024 * 1024)
        body = f"slicemeter_snapshot_timestamp_seconds {100 + asked}\n{lines}\n".encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body if self.path == "/metrics" else b"<html>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    with Exporter() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_json_is_one_slice_a_line_with_its_rates(
    exporter: Exporter, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--url", exporter.url, "--json", "--interval", "0.2"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert (told["pod"], told["sm_ratio"], told["used_bytes"]) == ("train", 0.5, 1024 * 1024)
    assert (told["exporter"], told["device_uuid"]) == (f"{exporter.url}/metrics", "GPU-1")


def test_a_table_where_one_exporter_is_away_shows_the_other_and_says_which(
    exporter: Exporter, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--url", exporter.url, "--url", "127.0.0.1:1", "--once", "--interval", "0.2"]) == 1
    out = capsys.readouterr().out
    assert "train" in out
    assert "http://127.0.0.1:1/metrics: Connection refused" in out


def test_a_page_behind_a_token(
    exporter: Exporter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exporter.token = "open"
    words = ["--url", exporter.url, "--once", "--interval", "0.2"]
    assert main(words) == 1
    assert "name a token with --token-file" in capsys.readouterr().out.replace("\n", " ")
    (tmp_path / "token").write_text("open\n")
    assert main([*words, "--token-file", str(tmp_path / "token")]) == 0


def test_what_is_no_exporter_is_said_to_be_none(
    exporter: Exporter, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--url", f"{exporter.url}/other", "--json"]) == 1
    assert "no metrics page" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--url", "ftp://x"], ["--url", "http://"], ["--interval", "nan"], ["--token-file", "/absent"]]
)
def test_bad_words_end_in_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main([*words, "--once"])
    assert (exited.value.code, capsys.readouterr().err.count("\n")) == (2, 1)


def test_addresses_may_be_short() -> None:
    assert page_url("node:9476") == page_url("http://node:9476/") == "http://node:9476/metrics"
    assert page_url("https://node/gpu/metrics") == "https://node/gpu/metrics"


def test_in_a_terminal_it_lives_until_q(exporter: Exporter) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "slicemeter", "top", "--url", exporter.url, "--interval", "0.2"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "30"}
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment) as process:
        os.close(slave)
        shown = b""
        deadline = time.monotonic() + 60
        while b"50%" not in shown and time.monotonic() < deadline:
            if select.select([master], [], [], 1)[0]:
                shown += os.read(master, 65_536)
        os.write(master, b"s")
        while b"by used" not in shown and time.monotonic() < deadline:
            if select.select([master], [], [], 1)[0]:
                shown += os.read(master, 65_536)
        os.write(master, b"q")
        while process.poll() is None and time.monotonic() < deadline:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    os.read(master, 65_536)
                except OSError:
                    break
        assert process.wait(10) == 0
    os.close(master)
    assert b"by used" in shown
