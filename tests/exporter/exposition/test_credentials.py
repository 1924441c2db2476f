"""Who is let in by password or token, and what guessing costs."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable

import bcrypt
import pytest

from exporter.exposition import credentials as module
from exporter.exposition.credentials import Credentials

OF_LIBCRYPT = "$2y$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy"
"""What crypt(3) makes of "open sesame"; htpasswd writes the same form."""

JOIN_S = 20.0


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def hashed(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The passwords that were hashed."""
    seen: list[bytes] = []
    real: Callable[[bytes, bytes], bool] = bcrypt.checkpw

    def checkpw(password: bytes, known: bytes) -> bool:
        seen.append(password)
        return real(password, known)

    monkeypatch.setattr(bcrypt, "checkpw", checkpw)
    return seen


def test_without_users_and_token_everybody_may_come() -> None:
    assert Credentials({}).judge(None) == "welcome"
    assert Credentials({}).challenges == ()


def test_a_right_password_opens_and_a_wrong_one_does_not() -> None:
    door = Credentials({"alice": hashed("open: sesame")})
    assert door.judge(basic("alice", "open: sesame")) == "welcome"
    assert door.judge(basic("alice", "open sesame")) == "unknown"
    assert door.judge(basic("bob", "open: sesame")) == "unknown"
    assert door.challenges == ("Basic",)


def test_hashes_of_other_programs_are_understood() -> None:
    door = Credentials({"alice": OF_LIBCRYPT})
    assert door.judge(basic("alice", "open sesame")) == "welcome"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Basic",
        "Basic !",
        "Basic YQ==",
        "Basic /w==",
        "Digest x",
        "Bearer x",
        "basic",
        "Negotiate " * 9,
    ],
)
def test_anything_else_is_unknown(header: str | None) -> None:
    assert Credentials({"alice": hashed("x")}).judge(header) == "unknown"


def test_a_token_opens_beside_passwords() -> None:
    door = Credentials({"alice": hashed("x")}, "t0ken")
    assert door.challenges == ("Basic", "Bearer")
    assert door.judge("Bearer t0ken") == "welcome"
    assert door.judge("bearer  t0ken") == "welcome"
    assert door.judge(basic("alice", "x")) == "welcome"
    for wrong in ("Bearer t0ke", "Bearer t0ken2", "Bearer ", "Bearer ünknown", basic("alice", "t0ken")):
        assert door.judge(wrong) == "unknown"


def test_a_token_alone_takes_no_password() -> None:
    assert Credentials({}, "t0ken").judge(basic("alice", "t0ken")) == "unknown"


def test_only_the_first_72_bytes_of_a_password_count_as_everywhere_with_bcrypt() -> None:
    door = Credentials({"alice": hashed("x" * 72)})
    assert door.judge(basic("alice", "x" * 100)) == "welcome"
    assert door.judge(basic("alice", "x" * 71)) == "unknown"


def test_a_password_is_hashed_once_right_or_wrong(counted: list[bytes]) -> None:
    door = Credentials({"alice": hashed("x")})
    for _ in range(3):
        assert door.judge(basic("alice", "x")) == "welcome"
        assert door.judge(basic("alice", "y")) == "unknown"
    assert counted == [b"x", b"y"]


def test_an_unknown_user_costs_a_hash_too_so_that_time_tells_nothing(counted: list[bytes]) -> None:
    door = Credentials({"alice": hashed("x")})
    assert door.judge(basic("nobody", "x")) == "unknown"
    assert counted == [b"x"]


def test_guessing_does_not_push_out_who_knows(counted: list[bytes]) -> None:
    door = Credentials({"alice": hashed("x")})
    assert door.judge(basic("alice", "x")) == "welcome"
    for guess in range(150):
        assert door.judge(basic("alice", f"guess {guess}")) == "unknown"
    assert door.judge(basic("alice", "x")) == "welcome"
    assert counted.count(b"x") == 1


def test_who_was_checked_before_is_not_held_up_by_a_check_and_others_are_told_to_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    door = Credentials({"alice": hashed("x")})
    assert door.judge(basic("alice", "x")) == "welcome"
    entered, leave = threading.Event(), threading.Event()

    def slow(password: bytes, known: bytes) -> bool:
        entered.set()
        assert leave.wait(JOIN_S)
        return False

    monkeypatch.setattr(bcrypt, "checkpw", slow)
    monkeypatch.setattr(module, "_PATIENCE_S", 0.0)
    guess = threading.Thread(target=door.judge, args=(basic("alice", "guess"),))
    guess.start()
    assert entered.wait(JOIN_S)
    assert door.judge(basic("alice", "x")) == "welcome"
    assert door.judge(basic("alice", "another guess")) == "busy"
    leave.set()
    guess.join(JOIN_S)
