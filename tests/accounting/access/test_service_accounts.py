from __future__ import annotations

import hashlib
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.access.refusal import TokenRefusedError
from accounting.access.service_accounts import Trust, read_keys, verify
from accounting.access.sign_in import sign_in, sign_in_scope
from accounting.access.tokens import new_token
from accounting.access.trust import distrust_cluster, trust_cluster, trusts
from accounting.access.viewer import COMMAND_LINE, Viewer
from accounting.errors import AccountingError, ConflictError, InvalidError, NotFoundError
from accounting.store.database import Database
from accounting.store.models import BillingAccount, Cluster
from accounting.store.walls import NOBODY, Scope
from tests.accounting.access.projected import AUDIENCE, CLUSTER, ISSUER, NODE, Issuer, b64, ec_key, rsa_key

NOW_MS = 1_790_805_600_000
GENERIC = "the token is missing, unknown, expired or revoked"


def trust_in(issuer: Issuer, cluster: str = "a", **changed: str) -> Trust:
    known = {
        "issuer": ISSUER, "audience": AUDIENCE, "jwks": issuer.jwks(), "node_exporter": NODE,
        "cluster_exporter": CLUSTER,
    }  # fmt: skip
    return Trust(cluster=cluster, **(known | changed))


@pytest.fixture(scope="module", params=["ES256", "RS256"])
def issuer(request: pytest.FixtureRequest) -> Issuer:
    return Issuer(rsa_key() if request.param == "RS256" else ec_key())


def test_a_node_exporters_token_speaks_for_the_node_that_its_pod_runs_on(issuer: Issuer) -> None:
    token = issuer.token(issuer.claims(now_ms=NOW_MS, node_uid="uid-7"))
    name = "serviceaccount:a:slicemeter/slicemeter-node"
    assert verify(token, [trust_in(issuer)], now_ms=NOW_MS) == Viewer(name, "reporter", "a", "uid-7")


def test_the_cluster_exporters_token_speaks_for_its_cluster_wherever_it_runs(issuer: Issuer) -> None:
    token = issuer.token(issuer.claims(CLUSTER, now_ms=NOW_MS, node_uid="uid-7"))
    name = "serviceaccount:a:slicemeter/slicemeter-cluster"
    assert verify(token, [trust_in(issuer)], now_ms=NOW_MS) == Viewer(name, "reporter", "a", None)


@pytest.mark.parametrize("node_uid", [None, "", " ", "x" * 254, "uid\n"])
def test_a_node_exporters_token_without_a_node_is_refused_and_told_the_way_out(
    issuer: Issuer, node_uid: str | None
) -> None:
    token = issuer.token(issuer.claims(now_ms=NOW_MS, node_uid=node_uid))
    with pytest.raises(TokenRefusedError, match=r"names no node.*--node-uid"):
        verify(token, [trust_in(issuer)], now_ms=NOW_MS)


def test_any_other_service_account_of_the_cluster_is_refused_by_name(issuer: Issuer) -> None:
    token = issuer.token(issuer.claims("team/train", now_ms=NOW_MS))
    with pytest.raises(TokenRefusedError, match="ServiceAccount team/train may not report"):
        verify(token, [trust_in(issuer)], now_ms=NOW_MS)


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": ["https://kubernetes.default.svc"]}, {"aud": None}, {"aud": []}, {"aud": 7},
        {"iss": "https://other"}, {"iss": None}, {"iss": ["https://kubernetes.default.svc.cluster.local"]},
        {"exp": NOW_MS // 1000}, {"exp": None}, {"exp": "tomorrow"}, {"exp": float("nan")},
        {"exp": NOW_MS // 1000 - 10_000},
        {"nbf": NOW_MS // 1000 + 61}, {"nbf": "now"},
        {"sub": None}, {"sub": 7}, {"sub": "system:node:node-1"}, {"sub": "slicemeter:slicemeter-node"},
    ],
)  # fmt: skip
def test_a_genuine_token_of_another_time_audience_issuer_or_kind_is_refused_in_the_same_words(
    issuer: Issuer, changed: dict[str, object]
) -> None:
    token = issuer.token(issuer.claims(now_ms=NOW_MS) | changed)
    if None in changed.values():
        claims = {key: value for key, value in issuer.claims(now_ms=NOW_MS).items() if key not in changed}
        token = issuer.token(claims)
    with pytest.raises(TokenRefusedError, match=GENERIC):
        verify(token, [trust_in(issuer)], now_ms=NOW_MS)


def test_a_token_ends_at_its_second_and_may_begin_a_minute_ahead_of_our_clock(issuer: Issuer) -> None:
    second = NOW_MS // 1000
    token = issuer.token(issuer.claims(now_ms=NOW_MS, exp=second + 1, nbf=second + 60))
    assert verify(token, [trust_in(issuer)], now_ms=NOW_MS + 999).node_uid == "node-uid-1"
    with pytest.raises(TokenRefusedError):
        verify(token, [trust_in(issuer)], now_ms=NOW_MS + 1000)


def test_a_token_that_another_key_signed_is_refused_whatever_it_is_called(issuer: Issuer) -> None:
    forger = Issuer(ec_key() if issuer.alg == "ES256" else rsa_key(), kid=issuer.kid)
    for header in ({}, {"kid": None}, {"kid": "../../key"}, {"jwk": forger.jwk()}):
        token = forger.token(forger.claims(now_ms=NOW_MS), **header)
        with pytest.raises(TokenRefusedError, match=GENERIC):
            verify(token, [trust_in(issuer)], now_ms=NOW_MS)


@pytest.mark.parametrize("header", [{"alg": "none"}, {"alg": "HS256"}, {"alg": "PS256"}, {"alg": None}])
def test_a_token_does_not_choose_the_algorithm(issuer: Issuer, header: dict[str, str | None]) -> None:
    token = issuer.token(issuer.claims(now_ms=NOW_MS), **header)
    for one in (token, f"{token.rpartition('.')[0]}."):
        with pytest.raises(TokenRefusedError, match=GENERIC):
            verify(one, [trust_in(issuer)], now_ms=NOW_MS)


def test_a_public_key_is_no_password() -> None:
    # The classic forgery: the published key, taken as the secret of an HMAC.
    issuer = Issuer(rsa_key())
    head = b64(json.dumps({"alg": "HS256", "kid": issuer.kid}).encode())
    body = b64(json.dumps(issuer.claims(now_ms=NOW_MS)).encode())
    for secret in (issuer.jwks().encode(), json.dumps(issuer.jwk()).encode()):
        mac = hmac.new(secret, f"{head}.{body}".encode(), hashlib.sha256).digest()
        with pytest.raises(TokenRefusedError, match=GENERIC):
            verify(f"{head}.{body}.{b64(mac)}", [trust_in(issuer)], now_ms=NOW_MS)


def test_a_changed_claim_spoils_the_signature(issuer: Issuer) -> None:
    head, _, signature = issuer.token(issuer.claims(now_ms=NOW_MS)).split(".")
    other = b64(json.dumps(issuer.claims(now_ms=NOW_MS, node_uid="uid-of-another")).encode())
    with pytest.raises(TokenRefusedError, match=GENERIC):
        verify(f"{head}.{other}.{signature}", [trust_in(issuer)], now_ms=NOW_MS)


def test_clusters_that_share_an_issuer_are_told_apart_by_their_keys() -> None:
    one, two = Issuer(), Issuer()
    both = [trust_in(one, "a"), trust_in(two, "b")]
    for issuer, cluster in ((one, "a"), (two, "b")):
        token = issuer.token(issuer.claims(now_ms=NOW_MS))
        assert verify(token, both, now_ms=NOW_MS).cluster == cluster


def test_after_a_rotation_tokens_of_both_keys_are_good_as_long_as_both_are_published() -> None:
    old, new = Issuer(kid="old"), Issuer(kid="new")
    for issuer in (old, new):
        token = issuer.token(issuer.claims(now_ms=NOW_MS))
        trust = trust_in(old, jwks=new.jwks(old))
        assert verify(token, [trust], now_ms=NOW_MS).cluster == "a"
        if issuer is old:
            with pytest.raises(TokenRefusedError):
                verify(token, [trust_in(new)], now_ms=NOW_MS)


@given(st.one_of(st.text(), st.from_regex(r"[\w-]{0,40}\.[\w-]{0,60}\.[\w-]{0,60}", fullmatch=True)))
def test_any_text_is_refused_and_never_breaks(text: str) -> None:
    with pytest.raises(TokenRefusedError):
        verify(text, [trust_in(_SOME)], now_ms=NOW_MS)


@given(
    st.dictionaries(
        st.sampled_from(["alg", "kid", "typ", "crit", "b64"]), st.none() | st.integers() | st.text()
    ),
    st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(
        st.sampled_from(["iss", "aud", "exp", "sub", "nbf", "kubernetes.io", "node", "uid"]), inner
    )),
)  # fmt: skip
def test_any_signed_json_is_refused_and_never_breaks(header: dict[str, object], claims: object) -> None:
    head = {"alg": "ES256", "kid": _SOME.kid} | header
    text = ".".join(b64(json.dumps(part).encode()) for part in (head, claims))
    signed = f"{text}.{_SOME.token({}).rpartition('.')[2]}"
    with pytest.raises(TokenRefusedError):
        verify(signed, [trust_in(_SOME)], now_ms=NOW_MS)


_SOME = Issuer()


def spoilt(**changed: str | None) -> str:
    key = {name: value for name, value in (_SOME.jwk() | changed).items() if value is not None}
    return json.dumps({"keys": [key]})


@pytest.mark.parametrize(
    ("jwks", "reason"),
    [
        ("", "no JWKS document"), ("[]", "no JWKS document"), ("{}", "no JWKS document"),
        ('{"keys": 7}', "no JWKS document"), ('{"keys": ["a"]}', "no JWKS document"),
        ('{"keys": []}', "0 keys"), (spoilt(kty="OKP"), "no JWKS document"),
        (spoilt(x="AA"), "no JWKS document"),
        (spoilt(x=None), "no JWKS document"), (spoilt(alg="none"), "no JWKS document|key is for none"),
        (spoilt(d="AA"), "secret"), (Issuer(rsa_key(1024)).jwks(), "1024 bits"),
        (json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "x"}]}), "secret"),
        (json.dumps({"keys": [Issuer(rsa_key()).jwk() | {"alg": "RS512"}]}), "a key is for RS512"),
        (_SOME.jwks(*([_SOME] * 20)), "21 keys"),
    ],
)  # fmt: skip
def test_keys_that_no_api_server_publishes_are_refused_with_the_way_out(jwks: str, reason: str) -> None:
    with pytest.raises(InvalidError, match=reason) as refused:
        read_keys(jwks)
    if "a key is for" not in str(refused.value) and "bits" not in str(refused.value):
        assert "kubectl get --raw /openid/v1/jwks" in str(refused.value)


@pytest.fixture
def registered(database: Database) -> Database:
    with database.writing() as session:
        session.add(
            BillingAccount(
                code="acme", kind="platform", time_zone="UTC", currency=None, grace_days=3, created_at_ms=0
            )
        )
        session.flush()
        for code in ("a", "b"):
            session.add(Cluster(code=code, account="acme", platform_account="acme", created_at_ms=0))
    return database


def trusted(database: Database, trust: Trust) -> None:
    with database.writing() as session:
        trust_cluster(session, trust, by=COMMAND_LINE, now_ms=NOW_MS)


def who(database: Database, token: str) -> Viewer:
    with database.seen_as(sign_in_scope(token)).reading() as session:
        return sign_in(session, token, now_ms=NOW_MS)


def test_who_signs_in_needs_to_see_one_row_or_public_keys() -> None:
    token = new_token()
    assert sign_in_scope(token) == Scope("sign-in", token.split("_")[1])
    assert sign_in_scope(_SOME.token({})) == Scope("sign-in")
    for other in ("", "a.b", "a.b.c.d", "Basic x", "smt_1"):
        assert sign_in_scope(other) == NOBODY


def test_a_cluster_is_trusted_replaced_and_trusted_no_more(registered: Database) -> None:
    old, new = Issuer(), Issuer()
    token, later = (one.token(one.claims(now_ms=NOW_MS)) for one in (old, new))
    with pytest.raises(TokenRefusedError):
        who(registered, token)
    trusted(registered, trust_in(old))
    assert who(registered, token).cluster == "a"
    trusted(registered, trust_in(new))
    assert who(registered, later).cluster == "a"
    with pytest.raises(TokenRefusedError):
        who(registered, token)
    with registered.writing() as session:
        distrust_cluster(session, "a", by=COMMAND_LINE, now_ms=NOW_MS)
    with pytest.raises(TokenRefusedError):
        who(registered, later)
    with registered.writing() as session, pytest.raises(NotFoundError, match="cluster list"):
        distrust_cluster(session, "a", by=COMMAND_LINE, now_ms=NOW_MS)


def test_two_clusters_never_share_issuer_audience_and_a_key(registered: Database) -> None:
    shared, own = Issuer(kid="one"), Issuer(kid="two")
    trusted(registered, trust_in(shared))
    renamed = Issuer(shared.key, kid="another name")
    with pytest.raises(ConflictError, match=r'cluster "a" has one of these keys'):
        trusted(registered, trust_in(own, "b", jwks=own.jwks(renamed)))
    trusted(registered, trust_in(renamed, "b", audience="slicemeter-of-b"))
    with registered.reading() as session:
        assert [trust.cluster for trust in trusts(session)] == ["a", "b"]
    token = shared.token(shared.claims(now_ms=NOW_MS, aud="slicemeter-of-b"))
    assert who(registered, shared.token(shared.claims(now_ms=NOW_MS))).cluster == "a"
    with pytest.raises(TokenRefusedError):
        who(registered, token)  # of that audience only the other name of the key is known
    other = renamed.token(renamed.claims(now_ms=NOW_MS, aud="slicemeter-of-b"))
    assert who(registered, other).cluster == "b"


@pytest.mark.parametrize(
    ("error", "reason", "changed"),
    [
        (NotFoundError, "cluster add", {"cluster": "c"}), (InvalidError, "--issuer", {"issuer": " "}),
        (InvalidError, "--audience", {"audience": "two\nlines"}),
        (InvalidError, "--issuer", {"issuer": "x" * 501}),
        (InvalidError, "--node-exporter", {"node_exporter": "slicemeter-node"}),
        (InvalidError, "--cluster-exporter", {"cluster_exporter": "a/b:c"}),
        (InvalidError, "ServiceAccount each", {"cluster_exporter": NODE}),
        (InvalidError, "JWKS", {"jwks": "{}"}), (InvalidError, "--jwks", {"jwks": " " * 65_537}),
    ],
)  # fmt: skip
def test_what_cannot_be_trusted_is_refused_by_its_option(
    registered: Database, error: type[AccountingError], reason: str, changed: dict[str, str]
) -> None:
    known = {"cluster": "a", "issuer": ISSUER, "audience": AUDIENCE, "jwks": _SOME.jwks()}
    with pytest.raises(error, match=reason):
        trusted(registered, Trust(**({"node_exporter": NODE, "cluster_exporter": CLUSTER} | known | changed)))
