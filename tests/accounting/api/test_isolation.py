"""Every route, asked by whom it must tell nothing: no byte of any answer is somebody else's.

Tenant `acme/mine` shares a card with `acme/zorro-guest`; the account `zorro-corp` has a cluster, a card, a
price, a discount, a rule and a month of its own. Whatever is not mine has `zorro` in its name, or an amount
that only it has. Routes are taken from the OpenAPI description, so that a new one is walked too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

import httpx
import pytest
from sqlalchemy import select, true

from accounting.access.tokens import create_token, revoke_token
from accounting.access.viewer import COMMAND_LINE
from accounting.api.app import create_app
from accounting.facts.ingest import ingest
from accounting.facts.reading import Scope, read_lines
from accounting.ledger.calendar import parse_month
from accounting.periods.close import Closed, close_period
from accounting.periods.rate import rate
from accounting.prices.book import set_price
from accounting.prices.discounts import set_discount
from accounting.prices.policies import set_policy
from accounting.settings import Settings
from accounting.store.database import Database
from accounting.store.models import LedgerLine, Tenant
from accounting.tenants.registry import add_account, add_cluster
from accounting.tenants.tree import find_tenant
from contract.facts import AllocationFact, Fact, PresenceFact, SliceUsageFact, canonical_bytes
from contract.ids import allocation_id
from tests.accounting.api.routes import BESIDE, ROUTES, SHAPE, Call, Names
from tests.accounting.periods.test_energy_lines import board, bypassing
from tests.accounting.postgresql import OWNER

if TYPE_CHECKING:
    from tests.accounting.api.conftest import Api

HOUR = 3_600_000
AFTER_GRACE = 1_793_836_800_000
"""2026-11-05T00:00Z."""

NOBODYS = Names("acme/nowhere", "nowhere", "nowhere", "Tesla T4", 10**12, "SM-999999")
"""The price list is nobody's: who names a model is told its price, whoever has such cards."""


@dataclass
class World:
    """The books, and what may be named in them."""

    api: Api
    start: int
    now: int
    facts: Callable[..., AllocationFact]
    presence: Callable[..., PresenceFact]
    usage: Callable[..., SliceUsageFact]
    mine: Names = NOBODYS
    foreign: Names = NOBODYS
    guest: Names = NOBODYS
    secrets: frozenset[str] = frozenset()
    """Texts that only others have."""

    def send(self, cluster: str, *facts: Fact) -> None:
        lines = read_lines(b"\n".join(map(canonical_bytes, facts)), Scope(cluster), now_ms=self.now)
        with self.api.database.writing() as session:
            assert not ingest(session, lines, cluster=cluster, now_ms=self.now).rejected

    def rate(self) -> None:
        rate(self.api.database, as_of_ms=self.now, grace_ms=900_000)

    def held(self, who: str, cluster: str, **fields: object) -> AllocationFact:
        known: dict[str, object] = {
            "cluster": cluster, "pod_uid": f"uid-{who}", "pod": f"pod-{who}", "namespace": f"rooms-of-{who}",
            "tenant_key": who, "mem_mib": 0, "core_percent": 80, "bound_at_ms": self.start,
            "started_at_ms": self.start, "confirmed_at_ms": self.now, "ended_at_ms": self.now,
            "end_kind": "observed", "labels": {"team": who},
        }  # fmt: skip
        return self.facts(**(known | fields))

    def used(self, who: str, cluster: str, **fields: object) -> SliceUsageFact:
        known: dict[str, object] = {
            "cluster": cluster, "pod_uid": f"uid-{who}", "hour_ms": self.start, "from_ms": self.start,
            "to_ms": self.start + HOUR, "covered_ms": HOUR, "sm_ppm_ms": HOUR * 300_000,
        }  # fmt: skip
        return self.usage(**(known | fields))

    def price(self, model: str, unit_price: str, sku: str = "gpu-slice") -> None:
        with self.api.database.writing() as session:
            set_price(
                session, sku=sku, model=model, currency="EUR", unit_price=Decimal(unit_price),
                valid_from_ms=0, by=COMMAND_LINE, now_ms=0,
            )  # fmt: skip

    def add_mine(self) -> None:
        """A card that mine and a guest hold 80 % of each; the guest also bypasses HAMi there."""
        self.price("Tesla T4", "0.50")
        self.price("Tesla T4", "0.25", "gpu-unallocated")
        self.price("", "0.30", "gpu-energy")
        with self.api.database.writing() as session:
            for kind, value in (("idle", "by_allocation"), ("unallocated", "price"), ("energy", "memory")):
                _set_policy(session, kind, value)
        bypass = bypassing(
            self.start, cluster="a", pod_uid="uid-zorro-sneak", pod="pod-zorro-sneak",
            namespace="rooms-of-zorro-guest", tenant_key="zorro-guest", sm_ppm_ms=HOUR * 10_000,
            energy_active_mj=7_000,
        )  # fmt: skip
        self.send(
            "a", self.presence(self.start, self.now, cluster="a"), self.held("mine", "a"),
            self.held("zorro-guest", "a"), self.used("mine", "a"), self.used("zorro-guest", "a"),
            board(self.start, cluster="a", energy_mj=3_600_000, energy_idle_mj=1_000_000), bypass,
        )  # fmt: skip
        self.rate()
        self.mine = Names(
            "acme/mine",
            "acme",
            "a",
            "Tesla T4",
            self.line_of("acme/mine"),
            "SM-000009",
            "rooms-of-mine",
            "node-1",
            device="GPU-1",
            slice=slice_of("a", "mine", "GPU-1"),
        )
        self.guest = replace(
            self.mine, tenant="acme/zorro-guest", line=self.line_of("acme/zorro-guest"),
            namespace="rooms-of-zorro-guest", slice=slice_of("a", "zorro-guest", "GPU-1"),
        )  # fmt: skip

    def add_zorro(self) -> None:
        """An account with everything of its own."""
        with self.api.database.writing() as session:
            for code, kind in (("zorro-corp", "tenant"), ("zorro-platform", "platform")):
                add_account(
                    session, code, kind=kind, currency="EUR", time_zone="Europe/Berlin", grace_days=3,  # type: ignore[arg-type]
                    by=COMMAND_LINE, now_ms=0,
                )  # fmt: skip
            add_cluster(
                session, "zorro-east", account="zorro-corp", platform_account="zorro-platform",
                by=COMMAND_LINE, now_ms=0,
            )  # fmt: skip
        self.price("Model Zorro", "7.7654321")
        card = {
            "device_uuid": "GPU-zorro", "node_uid": "uid-zorro-node",
            "node": "zorro-node",
        }  # fmt: skip
        self.send(
            "zorro-east", self.presence(
                self.start, self.now, cluster="zorro-east", **card, model="Model Zorro"
            ),
            self.held("zorro-team", "zorro-east", **card, model="Model Zorro"),
            self.used("zorro-team", "zorro-east", device_uuid="GPU-zorro", node_uid="uid-zorro-node"),
        )  # fmt: skip
        self.rate()
        with self.api.database.writing() as session:
            tenant = find_tenant(session, COMMAND_LINE, "zorro-corp/zorro-team")
            set_discount(
                session, tenant, percent=Decimal("12.345678"), valid_from_ms=0, by=COMMAND_LINE, now_ms=0
            )
        self.rate()
        self.foreign = Names(
            "zorro-corp/zorro-team", "zorro-corp", "zorro-east", "Tesla T4",
            self.line_of("zorro-corp/zorro-team"), "SM-000001", "rooms-of-zorro-team", "zorro-node",
            device="GPU-zorro", slice=slice_of("zorro-east", "zorro-team", "GPU-zorro"),
        )  # fmt: skip
        self.find_secrets()

    def close(self, account: str) -> None:
        month = parse_month("2026-10")
        done = close_period(
            self.api.database, account, month, by=COMMAND_LINE, now_ms=AFTER_GRACE, grace_ms=900_000,
            min_coverage=Decimal(0), override_reason="a test",
        )  # fmt: skip
        assert isinstance(done, Closed), getattr(done, "blockers", done)

    def line_of(self, path: str) -> int:
        with self.api.database.reading() as session:
            query = select(LedgerLine.id).join(Tenant, Tenant.id == LedgerLine.tenant_id)
            found = session.scalars(
                query.where(Tenant.path == path, LedgerLine.kind == "usage").order_by(LedgerLine.id)
            ).first()
        assert found is not None
        return found

    def find_secrets(self) -> None:
        """Amounts and ids that an operator sees of others, and mine has not."""
        operator = self.api.token("operator")
        texts = [
            self.api.request("GET", f"/api/v1/statements/2026-10?tenant={path}", token=operator).text
            for path in (self.mine.tenant, self.foreign.tenant, self.guest.tenant)
        ]
        known = [set(re.findall(r"\d+\.\d{4,}|[0-9a-f]{8}-[0-9a-f-]{27}", text)) for text in texts]
        self.secrets = frozenset({"zorro", *((known[1] | known[2]) - known[0])})
        assert any(re.fullmatch(r"\d+\.\d+", secret) for secret in known[1] - known[0])

    def ask(self, token: str | None, names: Names, *, app: Api | None = None) -> list[Answer]:
        """Call every route in every form."""
        asked = [(route, call) for route, calls in ROUTES.items() for call in calls(names)]
        return [
            Answer(route, call, _send(app or self.api, route.partition(" ")[0], call, token))
            for route, call in asked
        ]

    def leaks(self, answers: list[Answer]) -> list[tuple[str, str]]:
        """Where a secret stands that the question did not name itself."""
        assert [one.call.path for one in answers if one.response.status_code >= 500] == []
        return [
            (answer.call.path, secret)
            for answer in answers
            for secret in self.secrets
            if secret in answer.told.lower()
        ]


@dataclass(frozen=True)
class Answer:
    """What a route said."""

    route: str
    call: Call
    response: httpx.Response

    @property
    def told(self) -> str:
        """Every byte of it, less the words of the question, which an error may repeat."""
        text = f"{self.response.headers!r}{self.response.text}"
        if self.response.status_code < 400:
            return text
        asked = re.findall(r"zorro[-a-z/]*|[Mm]odel Zorro", httpx.URL(self.call.path).query.decode() + str(
            httpx.URL(self.call.path).params
        ) + (self.call.content or b"").decode("latin-1"))  # fmt: skip
        asked += re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", self.call.path)
        for word in sorted(set(asked), key=len, reverse=True):
            text = text.replace(word, "")
        return text


def slice_of(cluster: str, who: str, device_uuid: str) -> str:
    return str(allocation_id(cluster, f"uid-{who}", "main", device_uuid))


def _send(api: Api, method: str, call: Call, token: str | None) -> httpx.Response:
    return api.request(method, call.path, token=token, headers=call.headers, content=call.content)


def _set_policy(session: object, kind: str, value: str) -> None:
    set_policy(session, kind=kind, value=value, valid_from_ms=0, by=COMMAND_LINE, now_ms=0)  # type: ignore[arg-type]


@pytest.fixture
def world(
    api: Api,
    at: Callable[..., int],
    allocation: Callable[..., AllocationFact],
    presence: Callable[..., PresenceFact],
    slice_usage: Callable[..., SliceUsageFact],
) -> World:
    made = World(api, at("10:00"), at("12:00"), allocation, presence, slice_usage)
    api.now_ms = made.now
    made.add_mine()
    return made


def test_every_route_of_the_description_is_walked(api: Api) -> None:
    described = api.request("GET", "/api/v1/openapi.json", token=api.token("operator")).json()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in described.items() for method in methods}
    missing, gone = sorted(routes - set(ROUTES)), sorted(set(ROUTES) - routes)
    assert not missing, (
        f"nobody foreign walks {missing}: say in ROUTES of tests/accounting/api/routes.py how each is called"
    )
    assert not gone, f"take out of ROUTES in tests/accounting/api/routes.py, no such route: {gone}"


def test_every_parameter_that_names_something_is_asked_with(api: Api) -> None:
    described = api.request("GET", "/api/v1/openapi.json", token=api.token("operator")).json()["paths"]
    for route, calls in ROUTES.items():
        method, _, path = route.partition(" ")
        known = {
            each["name"] for each in described[path][method.lower()].get("parameters", [])
            if each["in"] == "query"
        }  # fmt: skip
        asked = {name for call in calls(NOBODYS) for name in httpx.URL(call.path).params}
        assert known - asked - SHAPE == set(), f"{route}: ask with each in tests/accounting/api/routes.py"
        assert asked <= known, route


def test_no_answer_to_a_tenant_depends_on_an_account_that_is_not_its_own(world: World) -> None:
    token = world.api.token("tenant", tenant_path="acme/mine")
    before = world.ask(token, world.mine)
    world.add_zorro()
    world.mine = replace(world.mine, line=world.line_of("acme/mine"))
    after = world.ask(token, world.mine)
    for was, now in zip(before, after, strict=True):
        assert now.response.status_code == was.response.status_code
        assert without_ids(now) == without_ids(was), now.call.path
    # Whatever is not for operators alone was really answered, so there was something to compare.
    read = {answer.route for answer in after if answer.response.status_code == 200}
    refused = {answer.route for answer in after if answer.response.status_code == 403}
    assert {route for route in ROUTES if route.startswith("GET")} - read <= refused
    assert len(read) > 10


def without_ids(answer: Answer) -> tuple[str, list[tuple[str, str]]]:
    """An answer without the ids of lines, which are new each time that an open month is rated."""
    headers = [one for one in answer.response.headers.multi_items() if one[0] != "content-length"]
    return re.sub(r'"line":\d+', '"line":0', answer.response.text), headers


@pytest.mark.parametrize("state", ["open", "closed"])
def test_no_byte_of_any_answer_to_a_tenant_is_anothers(world: World, state: str) -> None:
    world.add_zorro()
    if state == "closed":
        for account in ("zorro-corp", "zorro-platform", "acme", "platform"):
            world.close(account)
    token = world.api.token("tenant", tenant_path="acme/mine")
    for names in (world.mine, world.foreign, world.guest, NOBODYS):
        assert world.leaks(world.ask(token, names)) == []


def test_a_foreign_id_answers_as_one_that_does_not_exist(world: World) -> None:
    world.add_zorro()
    world.close("zorro-corp")
    token = world.api.token("tenant", tenant_path="acme/mine")
    nobody = world.ask(token, NOBODYS)
    shared = {"account": "platform", "cluster": NOBODYS.cluster, "node": NOBODYS.node}
    shared |= {"device": NOBODYS.device}
    for names in (world.foreign, replace(world.guest, **shared)):  # type: ignore[arg-type]
        for foreign, none in zip(world.ask(token, names), nobody, strict=True):
            assert foreign.response.status_code == none.response.status_code, foreign.call.path
            said = foreign.response.text
            if foreign.response.status_code >= 400:
                said = said.replace(names.slice, NOBODYS.slice)
            if foreign.response.status_code >= 400:
                for own, other in (
                    (names.tenant, NOBODYS.tenant), (names.account, NOBODYS.account),
                    (names.cluster, NOBODYS.cluster), (str(names.line), str(NOBODYS.line)),
                    (names.statement, NOBODYS.statement), (names.namespace, NOBODYS.namespace),
                    (names.node, NOBODYS.node), (names.device, NOBODYS.device), (names.slice, NOBODYS.slice),
                ):  # fmt: skip
                    said = re.sub(rf'(?<=["\s]){re.escape(own)}(?=[";\\])', other, said)
            assert said == none.response.text, foreign.call.path


@pytest.fixture
def without_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The application's own filter, switched off wherever it was imported."""
    for name, module in list(sys.modules.items()):
        if name.startswith("accounting") and hasattr(module, "tenant_is_visible"):
            monkeypatch.setattr(module, "tenant_is_visible", lambda _viewer: true())


@pytest.mark.parametrize("state", ["open", "closed"])
@pytest.mark.usefixtures("without_filter")
def test_with_the_applications_filter_off_postgresql_still_leaks_nothing(world: World, state: str) -> None:
    world.add_zorro()
    if state == "closed":
        for account in ("zorro-corp", "zorro-platform", "acme", "platform"):
            world.close(account)
    token = world.api.token("tenant", tenant_path="acme/mine")
    leaks = [
        leak
        for names in (world.mine, world.foreign, world.guest)
        for leak in world.leaks(world.ask(token, names))
    ]
    if world.api.database.is_postgresql:
        assert leaks == []
    else:
        # SQLite has the one wall: that it leaks now shows that the walk finds what there is to find.
        assert len({path for path, _ in leaks}) > 10


@pytest.mark.parametrize("state", ["open", "closed"])
def test_the_second_wall_changes_no_answer(world: World, state: str) -> None:
    if not world.api.database.is_postgresql:
        pytest.skip("SQLite has one wall")
    world.add_zorro()
    if state == "closed":
        for account in ("zorro-corp", "zorro-platform", "acme", "platform"):
            world.close(account)
    asked = [("acme/mine", world.foreign)]
    asked += [
        (path, replace(world.mine, tenant=path))
        for path in ("acme/mine", "acme", "zorro-corp/zorro-team", "platform/idle")
    ]
    with _as_superuser(world.api) as open_to_all:
        for path, names in asked:
            token = world.api.token("tenant", tenant_path=path)
            walled, bare = world.ask(token, names), world.ask(token, names, app=open_to_all)
            for one, other in zip(walled, bare, strict=True):
                assert one.response.text == other.response.text, (path, one.call.path)


@contextmanager
def _as_superuser(api: Api) -> Iterator[Api]:
    url = api.database.engine.url.set(drivername="postgresql", username=OWNER)
    database = Database(url.render_as_string(hide_password=False))
    made = replace(api, database=database)
    made.app = create_app(Settings(), database=database, clock=lambda: made.now_ms)
    try:
        yield made
    finally:
        database.close()


def test_without_a_good_token_no_route_tells_anything(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accounting.access.attempts.MAX_FAILURES", 10**6)
    world.add_zorro()
    api = world.api
    expired, revoked = (_spoilt(api, how) for how in ("expired", "revoked"))
    strangers = [None, expired, revoked, "smt_0123456789ab_" + "0" * 64, "zorro", "a.b.c"]
    for token in strangers:
        answers = world.ask(token, world.foreign)
        assert {answer.response.status_code for answer in answers} == {401}
        assert len({answer.response.text for answer in answers}) == 1
        assert world.leaks(answers) == []
    for path in BESIDE:
        for token in (None, expired, api.token("tenant", tenant_path="acme/mine")):
            response = api.request("GET", path, token=token)
            assert "zorro" not in response.text.lower(), path


def _spoilt(api: Api, how: str) -> str:
    """An operator's token that is good no more."""
    with api.database.writing() as session:
        token = create_token(
            session, role="operator", by=COMMAND_LINE, now_ms=0,
            expires_at_ms=1 if how == "expired" else None,
        )  # fmt: skip
        if how == "revoked":
            revoke_token(session, token, by=COMMAND_LINE, now_ms=1)
    return token


def test_a_reporter_reads_nothing_and_an_exporter_speaks_of_its_own_node_and_cluster(world: World) -> None:
    world.add_zorro()
    api = world.api
    foreign = world.held("zorro-team", "zorro-east", node_uid="uid-zorro-node", witness="node")
    for scope in ({"cluster": "a"}, {"cluster": "a", "node_uid": "uid-other"}):
        token = api.token("reporter", **scope)
        answers = world.ask(token, world.foreign)
        allowed = {answer.route for answer in answers if answer.response.status_code != 403}
        assert allowed <= {"GET /api/v1/reporter", "POST /api/v1/facts"}
        assert world.leaks(answers) == []
        source = "role=node;node_uid=uid-other;node=other;epoch=e9;version=0.1.0"
        answer = api.post_facts(canonical_bytes(foreign), token=token, headers={"Slicemeter-Source": source})
        assert answer.status_code == 200
        (rejected,) = answer.json()["rejected"]
        assert rejected["reason"] == "other_cluster"
        assert "zorro" not in answer.text
    other_node = world.held("mine", "a", witness="node", pod_uid="uid-new")
    answer = api.post_facts(canonical_bytes(other_node), token=token, headers={"Slicemeter-Source": source})
    assert [one["reason"] for one in answer.json()["rejected"]] == ["other_node"]
