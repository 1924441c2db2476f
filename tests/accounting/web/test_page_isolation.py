"""Every page, asked by whom it must tell nothing: the walk of the API's routes, carried on behind `/ui`.

Pages are taken from the routers, and what they are asked with from their own parameters, so that a new page
is walked as soon as it is there; one with a parameter of a new name says in `_told` what it names.
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, quote_plus, urlencode

import httpx
import pytest
from fastapi.routing import APIRoute
from sqlalchemy import select

from accounting.access.sessions import csrf_token
from accounting.access.tokens import create_token, revoke_token
from accounting.access.viewer import COMMAND_LINE
from accounting.store.models import LedgerLine, Tenant
from accounting.web.pages.routers import ROUTERS
from tests.accounting.api.routes import DAY, MONTH, Call, Names
from tests.accounting.api.test_isolation import (
    NOBODYS,
    Answer,
    World,
    without_filter,
    world,
)
from tests.accounting.web.conftest import SESSION, Browser

if TYPE_CHECKING:
    from fastapi.dependencies.models import Dependant

__all__ = ["without_filter", "world"]

FORM = "application/x-www-form-urlencoded"
NO_SLICE = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Whose:
    """Somebody's names, and what pages name besides."""

    names: Names
    device: str
    slice_id: str


def _told(whose: Whose) -> dict[str, str]:
    """By name of a parameter, or of a field of a form: what is asked with."""
    names = whose.names
    return {
        "tenant": names.tenant, "path": names.tenant, "account": names.account, "cluster": names.cluster,
        "model": names.model, "line": str(names.line), "statement": names.statement,
        "number": names.statement, "namespace": names.namespace, "node": names.node,
        "pod": names.namespace.replace("rooms-of", "pod"), "device": whose.device, "id": whose.slice_id,
        "period": MONTH, "day": DAY, "row": str(names.row), "rule": str(names.row),
        "move": str(names.row), "priority": str(names.row),
    }  # fmt: skip


SHAPE = {
    "by": ("tenant", "slice"), "limit": ("1",), "page": ("1", "2"), "cursor": (None,), "currency": ("EUR",),
    "sku": ("gpu-slice",), "unit_price": ("1.00",), "amount": ("-1.50",), "reason": ("walked",),
    "done": ("walked",), "days": ("30",), "from": ("2026-01-01T00:00:00Z",),
}  # fmt: skip
"""Parameters that name nothing that is anybody's, with what they are asked with; None: left out."""


def _names_of(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    for field in dependant.query_params:
        yield field.alias, field.field_info.is_required()
    for inner in dependant.dependencies:
        yield from _names_of(inner)


def pages() -> list[APIRoute]:
    """Every page for who is signed in."""
    return [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]


def calls_of(route: APIRoute, whose: Whose) -> Iterator[tuple[str, Call]]:
    """A page with what it must be asked with, with each thing that it may be, and with all of them."""
    told, asked = _told(whose), dict(_names_of(route.dependant))
    path = f"/ui{route.path}"
    for part in route.param_convertors:
        path = path.replace(f"{{{part}}}", quote(told[part], safe=""))
    values = {name: (told[name],) if name in told else SHAPE.get(name, (None,)) for name in asked}
    needed = [name for name, is_needed in asked.items() if is_needed]
    free = [name for name in asked if name not in needed]
    for some in ([], *([name] for name in free), free):
        for chosen in itertools.product(*(values[name] for name in (*needed, *some))):
            query = urlencode(
                [pair for pair in zip((*needed, *some), chosen, strict=True) if pair[1] is not None]
            )
            for method in sorted(route.methods or ()):
                yield f"{method} {route.path}", Call(f"{path}?{query}" if query else path)


def less_the_question(answer: Answer) -> str:
    """A page without the words that it was asked with: its links and fields carry them on."""
    text = html.unescape(answer.response.text)
    asked = {value for _, value in parse_qsl(httpx.URL(answer.call.path).query.decode())}
    for value in sorted(asked - {MONTH, DAY}, key=len, reverse=True):
        for written in {value, quote_plus(value), quote(value, safe="")}:
            text = re.sub(rf"(?<![\w/]){re.escape(written)}(?![\w/])", "…", text)
    return text


@pytest.fixture
def visitor(world: World) -> Visitor:
    return Visitor(world)


@dataclass
class Visitor:
    """Who walks."""

    world: World

    def whose(self, names: Names, device: str) -> Whose:
        with self.world.api.database.reading() as session:
            found = session.scalars(
                select(LedgerLine.resource_key)
                .join(Tenant, Tenant.id == LedgerLine.tenant_id)
                .where(Tenant.path == names.tenant, LedgerLine.kind == "usage")
            ).first()
        return Whose(names, device, str(found or NO_SLICE))

    @property
    def mine(self) -> Whose:
        return self.whose(self.world.mine, "GPU-1")

    @property
    def guest(self) -> Whose:
        return self.whose(self.world.guest, "GPU-1")

    @property
    def foreign(self) -> Whose:
        return self.whose(self.world.foreign, "GPU-zorro")

    def signed_in(self, token: str) -> Browser:
        browser = Browser(self.world.api)
        assert browser.sign_in(token).status_code == 303
        return browser

    def leaks(self, browser: Browser, whose: Whose) -> list[tuple[str, str]]:
        """Where on a page a secret stands that the question did not name itself."""
        return [
            (answer.call.path, secret)
            for answer in self.walk(browser, whose)
            for secret in self.world.secrets
            if secret in less_the_question(answer).lower() or secret in repr(answer.response.headers)
        ]

    def walk(self, browser: Browser, whose: Whose) -> list[Answer]:
        """Every page in every form; what changes is sent as a form of the browser's own session."""
        answers = []
        for route in pages():
            for name, call in calls_of(route, whose):
                if name.startswith("GET"):
                    answers.append(Answer(name, call, browser.get(call.path)))
                    continue
                fields = _told(whose) | {key: values[0] or "" for key, values in SHAPE.items()}
                fields["csrf_token"] = csrf_token(browser.cookies.get(SESSION, ""))
                sent = replace(call, content=urlencode(fields).encode())
                answers.append(Answer(name, sent, browser.post(call.path, fields)))
        return answers


def test_every_page_says_what_it_is_asked_with() -> None:
    whose = Whose(NOBODYS, "GPU-0", NO_SLICE)
    for route in pages():
        unknown = {name for name, _ in _names_of(route.dependant)} - set(_told(whose)) - set(SHAPE)
        assert not unknown, (
            f"{route.path}: nobody foreign asks with {sorted(unknown)}; say in `_told` or `SHAPE` of "
            "tests/accounting/web/test_page_isolation.py what it names"
        )
        assert list(calls_of(route, whose))


@pytest.mark.parametrize("state", [pytest.param("open", marks=pytest.mark.slow), "closed"])
def test_no_byte_of_any_page_for_a_tenant_is_anothers(visitor: Visitor, state: str) -> None:
    world = visitor.world
    world.add_zorro()
    if state == "closed":
        for account in ("zorro-corp", "zorro-platform", "acme", "platform"):
            world.close(account)
    browser = visitor.signed_in(world.api.token("tenant", tenant_path="acme/mine"))
    mine = visitor.walk(browser, visitor.mine)
    assert world.leaks(mine) == []
    shown = {answer.route for answer in mine if answer.response.status_code == 200}
    assert len(shown) > 5
    for whose in (visitor.foreign, visitor.guest):
        assert visitor.leaks(browser, whose) == []


def test_a_page_of_somebody_elses_is_one_that_does_not_exist(visitor: Visitor) -> None:
    world = visitor.world
    world.add_zorro()
    browser = visitor.signed_in(world.api.token("tenant", tenant_path="acme/mine"))
    nobody = visitor.walk(browser, Whose(NOBODYS, "GPU-0", NO_SLICE))
    foreign = visitor.walk(browser, visitor.foreign)
    for one, other in zip(foreign, nobody, strict=True):
        assert one.response.status_code == other.response.status_code, one.call.path
        assert less_the_question(one) == less_the_question(other), one.call.path


@pytest.mark.usefixtures("without_filter")
def test_with_the_applications_filter_off_postgresql_still_leaks_nothing_on_pages(visitor: Visitor) -> None:
    world = visitor.world
    world.add_zorro()
    browser = visitor.signed_in(world.api.token("tenant", tenant_path="acme/mine"))
    leaks = visitor.leaks(browser, visitor.foreign)
    if world.api.database.is_postgresql:
        assert leaks == []
        assert visitor.leaks(browser, visitor.guest) == []
        assert world.leaks(visitor.walk(browser, visitor.mine)) == []
    else:
        # SQLite has the one wall: that pages leak now shows that the walk finds what there is to find.
        assert len({path.partition("?")[0] for path, _ in leaks}) > 3


def test_who_is_not_signed_in_is_shown_no_page(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accounting.access.attempts.MAX_FAILURES", 10**6)
    world = visitor.world
    world.add_zorro()
    api = world.api
    with api.database.writing() as session:
        short, revoked = (
            create_token(session, role="operator", by=COMMAND_LINE, now_ms=api.now_ms, expires_at_ms=expires)
            for expires in (api.now_ms + 1, None)
        )
    strangers = {
        "nobody": Browser(api),
        "an invented session": Browser(api, {SESSION: "A" * 43}),
        "no session": Browser(api, {SESSION: "zorro"}),
        "a token that expired since": visitor.signed_in(short),
        "a token that was revoked since": visitor.signed_in(revoked),
    }
    with api.database.writing() as session:
        revoke_token(session, revoked, by=COMMAND_LINE, now_ms=1)
    api.now_ms += 1
    for who, browser in strangers.items():
        cookies = dict(browser.cookies)
        for name, call in first_calls(visitor.foreign):
            browser.cookies = dict(cookies)
            if name.startswith("GET"):
                answer = browser.get(call.path)
                assert answer.status_code == 303, (who, call.path)
                assert answer.headers["Location"] == f"/ui/sign-in?next={quote(call.path, safe='/')}"
                assert answer.content == b""
                assert SESSION not in browser.cookies
            else:
                fields = {"csrf_token": csrf_token(cookies.get(SESSION, ""))}
                answer = browser.post(call.path, fields)
                assert answer.status_code == 401, (who, call.path)
                assert world.leaks([Answer(name, call, answer)]) == []
    token = api.token("reporter", cluster="a")
    for name, call in first_calls(visitor.foreign):
        answer = api.request(name.partition(" ")[0], call.path, token=token)
        assert answer.status_code == 403
        assert world.leaks([Answer(name, call, answer)]) == []


def first_calls(whose: Whose) -> list[tuple[str, Call]]:
    """Each page, and each change, once: who is nobody is not asked what they want."""
    calls = [one for route in pages() for one in calls_of(route, whose)]
    return list({name: (name, call) for name, call in reversed(calls)}.values())
