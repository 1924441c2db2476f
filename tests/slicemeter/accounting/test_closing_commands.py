"""The commands that close, correct, adjust and void, as a user sees them."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from accounting.facts.ingest import ingest
from accounting.facts.reading import Scope, read_lines
from accounting.store.database import Database
from contract.facts import AllocationFact, Fact, PresenceFact, canonical_bytes
from contract.ids import ClusterCode, DeviceUuid, NodeUid, PodUid, TenantKey
from slicemeter.accounting import main
from slicemeter.accounting.progress import Bar, text

HOUR = 3_600_000
DAY = 24 * HOUR
START = 1_791_190_800_000
"""2026-10-05T09:00Z."""
AFTER_GRACE = 1_793_836_800_000
"""2026-11-05T00:00Z."""


@dataclass
class Shell:
    """Runs commands on one database; output as a user sees it."""

    url: str
    capture: pytest.CaptureFixture[str]

    def __call__(self, *words: str) -> tuple[int, str, str]:
        try:
            code = main([*words, "--database", self.url])
        except SystemExit as exit_:
            code = int(str(exit_.code))
        output = self.capture.readouterr()
        return code, output.out, output.err

    def send(self, *facts: Fact, now_ms: int) -> None:
        lines = read_lines(b"\n".join(map(canonical_bytes, facts)), Scope("c"), now_ms=now_ms)
        database = Database(self.url)
        with database.writing() as session:
            assert not ingest(session, lines, cluster="c", now_ms=now_ms).rejected
        database.close()


def allocation(pod: str, end_ms: int, *, mem_mib: int = 0, core_percent: int = 0) -> AllocationFact:
    return AllocationFact(
        cluster=ClusterCode("c"),
        pod_uid=PodUid(pod),
        container="main",
        device_uuid=DeviceUuid("GPU-1"),
        witness="cluster",
        node_uid=NodeUid("node-uid-1"),
        node="node-1",
        namespace="team",
        pod=pod,
        vendor="NVIDIA",
        model="Tesla T4",
        mem_mib=mem_mib,
        core_percent=core_percent,
        container_kind="app",
        tenant_key=TenantKey("team"),
        bound_at_ms=START,
        first_confirmed_at_ms=START,
        confirmed_at_ms=end_ms,
        ended_at_ms=end_ms,
        end_kind="observed",
    )


def presence(end_ms: int) -> PresenceFact:
    return PresenceFact(
        cluster=ClusterCode("c"),
        node_uid=NodeUid("node-uid-1"),
        node="node-1",
        device_uuid=DeviceUuid("GPU-1"),
        witness="cluster",
        from_ms=START,
        to_ms=end_ms,
        state="healthy",
        model="Tesla T4",
        vendor="NVIDIA",
        registered_mib=15_360,
        slots=10,
    )


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Half a T4 for three hours of 5 October at 3.00 EUR; it is 5 November."""
    for command in ("rate", "close", "correct", "adjust", "void"):
        monkeypatch.setattr(f"slicemeter.accounting.{command}.now_ms", lambda: AFTER_GRACE)
    made = Shell(f"sqlite:///{tmp_path / 'books.sqlite'}", capsys)
    assert made("migrate")[0] == 0
    made("account", "add", "acme", "--currency", "EUR", "--time-zone", "Europe/Berlin")
    made("account", "add", "platform", "--kind", "platform", "--currency", "EUR")
    made("cluster", "add", "c", "--account", "acme", "--platform-account", "platform")
    made("price", "set", "--price", "3", "--currency", "EUR", "--from", "2026-01-01")
    end = START + 3 * HOUR
    made.send(presence(end), allocation("train", end, core_percent=50), now_ms=end)
    assert made("rate")[0] == 0
    return made


def test_close_seals_the_month_of_every_account_and_lists_the_statements(shell: Shell) -> None:
    code, out, err = shell("close", "2026-10")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "acme 2026-10 was closed: statement SM-000001, 4.50 EUR"
    assert "platform 2026-10 was closed: statement SM-000002, 4.50 EUR" in out
    assert "SM-000001  statement  issued  acme      2026-10  4.50" in shell("statements")[1]
    assert "acme      2026-10  closed" in shell("periods")[1]
    assert shell("verify", "2026-10")[0] == 0
    assert "period close" in shell("audit", "list")[1]


def test_close_check_changes_nothing_and_exits_with_1_while_something_blocks(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slicemeter.accounting.close.now_ms", lambda: AFTER_GRACE - 3 * DAY)
    code, out, _ = shell("close", "2026-10", "--account", "acme", "--check")
    assert code == 1
    assert "close_grace: the account waits 3 days for late facts, until 2026-11-03T23:00:00Z" in out
    assert "way out: wait until then; or --override --reason TEXT" in out
    code, out, _ = shell("close", "2026-10", "--account", "acme", "--check", "--json")
    (blocker,) = json.loads(out)["blockers"]
    assert (code, blocker["check"], blocker["can_override"]) == (1, "close_grace", True)
    assert shell("statements")[1].splitlines()[1:] == []
    code, out, _ = shell("close", "2026-10", "--account", "acme", "--override", "--reason", "audit")
    assert (code, "was closed" in out) == (0, True)


def test_an_override_without_a_reason_is_bad_input(shell: Shell) -> None:
    code, _, err = shell("close", "2026-10", "--override")
    assert (code, err.count("\n")) == (2, 1)
    assert "--override --reason TEXT" in err


@pytest.mark.parametrize("words", [("close", "2025-01"), ("correct", "2026-10"), ("close", "October")])
def test_a_month_that_is_not_there_is_named_in_one_line(shell: Shell, words: tuple[str, ...]) -> None:
    code, out, err = shell(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words[1] in err


def test_a_late_fact_is_pending_and_corrected_once(shell: Shell) -> None:
    shell("close", "2026-10")
    end = START + 2 * HOUR
    shell.send(allocation("late", end, mem_mib=3_840), now_ms=AFTER_GRACE)
    code, out, _ = shell("verify", "2026-10")
    assert code == 0
    assert "pending: usage of acme/team on c/node-uid-1/GPU-1" in out
    # 2 h of a quarter at 3.00.
    assert "acme 2026-10: 1 lines, 1.5 EUR, not posted" in shell("correct", "2026-10", "--check")[1]
    assert "acme 2026-10: 1 lines, 1.5 EUR, posted into 2026-11" in shell("correct", "2026-10")[1]
    assert "acme 2026-10: nothing to correct" in shell("correct", "2026-10")[1]
    table = shell("statement", "2026-11", "--account", "acme")[1]
    assert "correction of 2026-10-05: team/late · main" in table
    row = shell("statement", "2026-11", "--account", "acme", "--format", "csv")[1].splitlines()[1]
    assert row.endswith(",2026-10,2026-10-05,facts that came after the close")


def test_adjust_and_void_say_what_they_did(shell: Shell) -> None:
    shell("close", "2026-10")
    code, out, _ = shell("adjust", "--tenant", "team", "--amount=-1.20", "--reason", "slow card")
    assert (code, out) == (0, "acme 2026-11: -1.2 EUR for acme/team: slow card\n")
    assert "adjustment: slow card" in shell("statement", "2026-11", "--tenant", "team")[1]
    code, out, _ = shell("void", "SM-000001", "--reason", "wrong address", "--reissue")
    assert out == "SM-000001 was voided by credit note SM-000003, and issued again as SM-000004\n"
    rows = json.loads(shell("statements", "--account", "acme", "--json")[1])["rows"]
    assert [(row["number"], row["state"], row["total"], row["voids"]) for row in rows] == [
        ("SM-000001", "voided", "4.50", None),
        ("SM-000003", "issued", "-4.50", "SM-000001"),
        ("SM-000004", "issued", "4.50", None),
    ]


def test_backup_and_restore_say_that_the_copy_was_checked(shell: Shell, tmp_path: Path) -> None:
    code, out, _ = shell("backup", str(tmp_path / "copy.sqlite"))
    assert (code, out.endswith(" bytes, checked\n")) == (0, True)
    code, _, err = shell("restore", str(tmp_path / "copy.sqlite"))
    assert (code, "say --replace" in err) == (2, True)
    assert shell("restore", str(tmp_path / "copy.sqlite"), "--replace")[0] == 0


def test_a_bar_is_drawn_only_on_a_terminal_and_only_after_two_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with Bar() as progress:
        progress("hashing lines", 1, 4)
        assert screen.getvalue() == ""
        now += 2.5
        progress("hashing lines", 1, 4)
        assert "hashing lines [#######.......................] 25 %" in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K")
    assert text("copying", 1_234, 0) == "copying: 1,234"
    monkeypatch.setattr("sys.stderr", quiet := io.StringIO())
    with Bar() as progress:
        now += 10
        progress("hashing lines", 1, 4)
    assert quiet.getvalue() == ""


def test_close_last_closes_each_accounts_month_before_this_one_and_may_be_asked_again(shell: Shell) -> None:
    code, out, _ = shell("close", "last")
    assert code == 0
    assert "acme 2026-10 was closed: statement" in out
    code, out, _ = shell("close", "last", "--account", "acme")
    assert code == 0
    assert "acme 2026-10 was closed before" in out
    assert "platform" not in out


def test_close_last_does_not_fail_while_a_month_only_waits_for_late_facts(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    third_of_november = 1_793_664_000_000
    monkeypatch.setattr("slicemeter.accounting.close.now_ms", lambda: third_of_november)
    code, out, _ = shell("close", "last")
    assert code == 0
    assert "close_grace" in out
    assert shell("close", "2026-10")[0] == 1


def test_close_last_has_nothing_to_do_where_nothing_was_rated(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_year_later = AFTER_GRACE + 365 * DAY
    monkeypatch.setattr("slicemeter.accounting.close.now_ms", lambda: a_year_later)
    assert shell("close", "last") == (0, "", "")
