"""People sign in by an OpenID provider: a real one on loopback, which tests make lie."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from sqlalchemy import select

from accounting.store.models import WebSession
from lab.oidc.provider import LabProvider, Person, new_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.accounting.web.conftest import Browser

SIGN_IN = "__Host-slicemeter-oidc"


def sessions(browser: Browser) -> list[WebSession]:
    with browser.api.database.reading() as session:
        found = list(session.scalars(select(WebSession)))
        session.expunge_all()
    return found


def encoded(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.fixture
def database_kind() -> str:
    """What the books keep of a session is tried on both databases by `test_sessions.py`."""
    return "sqlite"


def test_a_person_is_what_the_first_mapping_says_that_names_a_group_of_theirs(
    company: Browser, provider: LabProvider
) -> None:
    for name, role, tenant in (
        ("ada", "admin", None), ("olga", "operator", None), ("tim", "tenant", "acme/team-a")
    ):  # fmt: skip
        answer = company.sign_in_at(name, "/ui/months/2026-10?tenant=acme/team-a")
        assert answer.status_code == 303
        assert answer.headers["Location"] == "/ui/months/2026-10?tenant=acme/team-a"
        (kept,) = sessions(company)
        subject = "lab-" + hashlib.sha256(name.encode()).hexdigest()[:16]
        assert (kept.role, kept.tenant_path, kept.token_prefix) == (role, tenant, None)
        assert kept.person == f"oidc:{name} ({subject})"
        assert company.is_signed_in()
        assert SIGN_IN not in company.cookies


def test_the_way_to_the_provider_has_state_nonce_and_a_challenge_and_its_cookie_is_the_browsers_alone(
    company: Browser, provider: LabProvider
) -> None:
    away = httpx.URL(company.get("/ui/oidc/start").headers["Location"])
    assert str(away).startswith(f"{provider.issuer}/authorize?")
    asked = away.params
    assert asked["code_challenge_method"] == "S256"
    assert {len(asked[name]) for name in ("state", "nonce", "code_challenge")} == {43}
    assert len({asked[name] for name in ("state", "nonce", "code_challenge")}) == 3
    (cookie,) = company.set_cookies
    assert cookie.startswith(f"{SIGN_IN}=")
    assert set(cookie.split("; ")[1:]) == {"HttpOnly", "Max-Age=600", "Path=/", "SameSite=lax", "Secure"}
    assert all(asked[name] not in cookie for name in ("state", "nonce", "code_challenge"))
    again = httpx.URL(company.get("/ui/oidc/start").headers["Location"]).params
    assert again["state"] != asked["state"]


def test_a_person_of_no_mapped_group_is_told_what_to_ask_for(company: Browser, provider: LabProvider) -> None:
    answer = company.sign_in_at("nora")
    assert answer.status_code == 403
    assert "none of your groups opens anything here (yours: staff)" in answer.text
    assert "ask an operator of this service to map one of them" in answer.text
    assert sessions(company) == []
    provider.alter = lambda claims: {name: value for name, value in claims.items() if name != "groups"}
    answer = company.sign_in_at("olga")
    assert answer.status_code == 403
    assert "says nothing of your groups" in answer.text


def test_what_a_provider_tells_is_shown_as_text(company: Browser, provider: LabProvider) -> None:
    evil = "<script>alert(1)</script>"
    provider.people = [Person(evil, (evil,))]
    answer = company.sign_in_at(evil)
    assert answer.status_code == 403
    assert "<script>alert" not in answer.text
    assert "&lt;script&gt;alert(1)" in answer.text


def test_an_answer_with_another_state_is_refused_before_the_provider_sees_the_code(
    company: Browser, provider: LabProvider
) -> None:
    for number, state in enumerate(("", "x" * 43, "ä" * 10), start=1):
        back = httpx.URL(company.way_back("olga"))
        answer = company.get(str(back.copy_set_param("state", state)))
        assert answer.status_code == 403
        assert "was not begun in this browser" in answer.text
        assert len(provider._codes) == number
    assert sessions(company) == []


def test_an_answer_in_another_browser_is_refused(company: Browser, provider: LabProvider) -> None:
    back = company.way_back("olga")
    victim = type(company)(company.api)
    assert victim.get(back).status_code == 403
    victim.get("/ui/oidc/start")
    assert victim.get(back).status_code == 403
    assert not victim.is_signed_in()


def test_an_answer_that_comes_too_late_is_refused(company: Browser, provider: LabProvider) -> None:
    begun_ms = company.api.now_ms
    for wait_ms, status in ((600_001, 403), (-1, 403), (600_000, 303)):
        company.api.now_ms = begun_ms
        back = company.way_back("olga")
        company.api.now_ms = begun_ms + wait_ms
        code = httpx.URL(back).params["code"]
        # The provider's own minute is not what is tried here.
        provider._codes[code] = replace(provider._codes[code], given_at=company.api.now_ms / 1000)
        assert company.get(back).status_code == status


def test_a_cookie_that_was_altered_fits_no_answer(company: Browser, provider: LabProvider) -> None:
    back = company.way_back("olga")
    seed, at_ms, page = company.cookies[SIGN_IN].split(".")
    for altered in (f"{seed}.{int(at_ms) + 1}.{page}", f"{seed}.{at_ms}.L3VpL3g", f"{seed}.{at_ms}", ""):
        company.cookies[SIGN_IN] = altered
        assert company.get(back).status_code == 403
    assert sessions(company) == []


def test_a_replayed_answer_signs_nobody_in(company: Browser, provider: LabProvider) -> None:
    back = company.way_back("olga")
    begun = company.cookies[SIGN_IN]
    assert company.get(back).status_code == 303
    thief = type(company)(company.api)
    assert thief.get(back).status_code == 403
    thief.cookies[SIGN_IN] = begun
    answer = thief.get(back)
    assert answer.status_code == 403
    assert "does not take the code any more" in answer.text
    assert len(sessions(company)) == 1


def test_a_stolen_code_is_nothing_without_the_verifier(company: Browser, provider: LabProvider) -> None:
    stolen = httpx.URL(company.way_back("olga")).params["code"]
    thief = type(company)(company.api)
    own = httpx.URL(thief.way_back("nora"))
    answer = thief.get(str(own.copy_set_param("code", stolen)))
    assert answer.status_code == 403
    assert sessions(company) == []


def _with(**changes: object) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda claims: {
        name: value for name, value in (claims | changes).items() if value is not None
    }  # fmt: skip


LIES = {
    "another nonce": _with(nonce="n" * 43),
    "no nonce": _with(nonce=None),
    "another audience": _with(aud="grafana"),
    "no audience": _with(aud=None),
    "several audiences and none authorized": _with(aud=["slicemeter", "grafana"]),
    "authorized for another": _with(azp="grafana"),
    "another issuer": _with(iss="https://login.example.org"),
    "no subject": _with(sub=None),
    "an empty subject": _with(sub=" "),
    "expired": lambda claims: claims | {"exp": claims["iat"]},
    "expiring never": _with(exp=None),
    "expiring at no number": _with(exp="never"),
    "of the future": lambda claims: claims | {"nbf": claims["iat"] + 61},
    "made in the future": lambda claims: claims | {"iat": claims["iat"] + 61},
}


def test_a_token_that_lies_signs_nobody_in(company: Browser, provider: LabProvider) -> None:
    for lie, alter in LIES.items():
        company.api.now_ms += 60_000  # so that earlier failures are forgotten
        provider.alter = alter
        assert company.sign_in_at("olga").status_code == 403, lie
        assert sessions(company) == [], lie
    provider.alter = _with()
    assert company.sign_in_at("olga").status_code == 303


def test_a_token_for_several_that_names_us_as_the_authorized_one_is_taken(
    company: Browser, provider: LabProvider
) -> None:
    provider.alter = _with(aud=["slicemeter", "grafana"], azp="slicemeter")
    assert company.sign_in_at("olga").status_code == 303


def public_pem(provider: LabProvider) -> bytes:
    return provider.key.private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _hs256(provider: LabProvider, claims: dict[str, Any]) -> str:
    """Signed with the public key as if it were a shared secret, by hand: PyJWT refuses to."""
    import hmac  # noqa: PLC0415 - only here

    head = encoded({"alg": "HS256", "typ": "JWT", "kid": provider.key.key_id})
    signed = f"{head}.{encoded(claims)}"
    mac = hmac.new(public_pem(provider), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


def _stranger(provider: LabProvider, claims: dict[str, Any]) -> str:
    return jwt.encode(claims, new_key().private, algorithm="RS256", headers={"kid": provider.key.key_id})


SIGNERS: dict[str, Callable[[LabProvider, dict[str, Any]], str]] = {
    "nobody": lambda _provider, claims: jwt.encode(claims, "", algorithm="none"),
    "nobody, with the key's name": lambda provider, claims: (
        f"{encoded({'alg': 'none', 'kid': provider.key.key_id})}.{encoded(claims)}."
    ),
    "the public key as a secret": _hs256,
    "a stranger's key under the same name": _stranger,
    "the right key by another algorithm": lambda provider, claims: jwt.encode(
        claims, provider.key.private, algorithm="PS256", headers={"kid": provider.key.key_id}
    ),
    "a signature cut off": lambda provider, claims: (
        jwt.encode(claims, provider.key.private, algorithm="RS256").rpartition(".")[0] + "."
    ),
    "no token at all": lambda _provider, _claims: "not.a.token",
}


def test_a_token_that_the_providers_key_did_not_sign_signs_nobody_in(
    company: Browser, provider: LabProvider
) -> None:
    for signer, sign in SIGNERS.items():
        company.api.now_ms += 60_000
        provider.sign = lambda claims, sign=sign: sign(provider, claims)
        assert company.sign_in_at("olga").status_code == 403, signer
        assert sessions(company) == [], signer


def test_keys_may_be_rotated(
    company: Browser, provider: LabProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    known = company.api.app.state.service.provider
    monkeypatch.setattr(known, "_monotonic", lambda: now)
    assert company.sign_in_at("olga").status_code == 303
    provider.rotate()
    # Fetched a moment ago: whoever sends tokens of unknown keys does not make us fetch again and again.
    assert company.sign_in_at("olga").status_code == 403
    now = 15.0
    assert company.sign_in_at("olga").status_code == 303


def test_a_key_that_is_published_no_more_signs_nobody_in_after_an_hour(
    company: Browser, provider: LabProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(company.api.app.state.service.provider, "_monotonic", lambda: now)
    old = provider.key
    assert company.sign_in_at("olga").status_code == 303
    provider.rotate()
    provider.key = old
    now = 3_600.0
    assert company.sign_in_at("olga").status_code == 403


def test_the_provider_may_be_away_and_nothing_of_it_is_told(
    company: Browser, provider: LabProvider, caplog: pytest.LogCaptureFixture
) -> None:
    back = company.way_back("olga")
    known = company.api.app.state.service.provider
    known._known.provider.token_endpoint = f"{provider.issuer}/nowhere"
    with caplog.at_level(logging.WARNING):
        answer = company.get(back)
    assert answer.status_code == 403
    known._known.provider.token_endpoint = "http://127.0.0.1:9/token"
    answer = company.sign_in_at("olga")
    assert answer.status_code == 503
    assert "does not answer as it should" in answer.text
    assert "127.0.0.1:9" not in answer.text
    assert "127.0.0.1:9" in caplog.text


def test_a_provider_that_calls_itself_otherwise_is_not_believed(
    company: Browser, provider: LabProvider, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = provider.issuer
    provider.issuer = "https://login.example.org"
    answer = company.get("/ui/oidc/start")
    assert answer.status_code == 503
    assert 'calls itself "https://login.example.org"' in caplog.text
    provider.issuer = issuer


def test_an_answer_that_names_another_issuer_is_refused(company: Browser, provider: LabProvider) -> None:
    for told in ("https://login.example.org", None):
        back = httpx.URL(company.way_back("olga"))
        mixed = back.copy_remove_param("iss") if told is None else back.copy_set_param("iss", told)
        assert company.get(str(mixed)).status_code == 403
    assert sessions(company) == []


def test_a_person_who_refuses_at_the_provider_may_begin_again(company: Browser) -> None:
    state = httpx.URL(company.get("/ui/oidc/start").headers["Location"]).params["state"]
    answer = company.get(f"/ui/oidc/callback?error=access_denied&state={state}")
    assert answer.status_code == 403
    assert "did not sign you in: access_denied" in answer.text
    assert 'href="/ui/oidc/start' in answer.text
    state = httpx.URL(company.get("/ui/oidc/start").headers["Location"]).params["state"]
    answer = company.get(f"/ui/oidc/callback?error=%3Cb%3E&state={state}")
    assert "<b>" not in answer.text


def test_failed_answers_are_held_up(company: Browser, provider: LabProvider) -> None:
    failures = company.api.app.state.service.failures
    for number in range(19):
        failures.failed("127.0.0.1", f"another code {number}", now_ms=company.api.now_ms)
    assert company.sign_in_at("nora").status_code == 403
    answer = company.sign_in_at("olga")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "60")
    assert "too many failed sign-ins" in answer.text
    company.api.now_ms += 60_000
    assert company.sign_in_at("olga").status_code == 303


def test_who_signs_in_gets_a_new_session_and_the_old_one_ends(
    company: Browser, provider: LabProvider
) -> None:
    company.sign_in_at("olga")
    before = company.cookies["__Host-slicemeter"]
    company.sign_in_at("tim")
    after = company.cookies["__Host-slicemeter"]
    assert before != after
    assert [one.role for one in sessions(company)] == ["tenant"]
    company.cookies["__Host-slicemeter"] = before
    assert not company.is_signed_in()


def test_without_a_provider_there_is_no_such_sign_in(browser: Browser) -> None:
    assert browser.get("/ui/oidc/start").status_code == 404
    assert browser.get("/ui/oidc/callback?code=x&state=y").status_code in {403, 404}
    assert "oidc/start" not in browser.get("/ui/sign-in").text


def test_a_token_of_the_provider_is_a_bearer_at_the_api(company: Browser, provider: LabProvider) -> None:
    tim, nora = provider.people[2], provider.people[3]
    api = company.api
    answer = api.request("GET", "/api/v1/tenants", token=provider.id_token(tim))
    assert answer.status_code == 200
    assert api.request("GET", "/api/v1/audit", token=provider.id_token(tim)).status_code == 403
    assert api.request("GET", "/api/v1/tenants", token=provider.id_token(nora)).status_code == 401
    provider.alter = _with(aud="grafana")
    assert api.request("GET", "/api/v1/tenants", token=provider.id_token(tim)).status_code == 401
    provider.alter = _with()
    provider.sign = lambda claims: _hs256(provider, claims)
    assert api.request("GET", "/api/v1/tenants", token=provider.id_token(tim)).status_code == 401
    provider.sign = None
    token = provider.id_token(tim)
    # Five minutes, as the provider says: it ends when it says.
    api.now_ms += 299_999
    assert api.request("GET", "/api/v1/tenants", token=token).status_code == 200
    api.now_ms += 1
    assert api.request("GET", "/api/v1/tenants", token=token).status_code == 401
