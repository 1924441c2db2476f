"""Whatever is asked, by the API's own description or against it, is answered: no 5xx and no traceback."""

from __future__ import annotations

import gzip
import os
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

from contract.facts import CONTENT_TYPE, FACTS_PATH, REPORTER_PATH

if TYPE_CHECKING:
    from schemathesis import APIOperation, Case, SerializationContext

    from tests.accounting.api.conftest import Api

EXAMPLES = int(os.environ.get("SLICEMETER_REQUESTS_EACH", "4"))
"""Of each route, role and mode."""


@schemathesis.serializer(CONTENT_TYPE)
def as_batch(_context: SerializationContext, body: object) -> bytes:
    return gzip.compress(str(body).encode(errors="surrogatepass"))


def answers_to(
    api: Api, operation: APIOperation[Any, Any, Any, Any], mode: GenerationMode, token: str
) -> set[int]:
    """The statuses that requests of one operation were answered with."""
    statuses: set[int] = set()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Case[Any]) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        if operation.path == FACTS_PATH:
            headers["Content-Encoding"] = "gzip"
        response = case.call(headers=headers)
        assert response.status_code < 500, (case.as_curl_command(), response.text)
        statuses.add(response.status_code)

    ask()
    return statuses


@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_is_answered_with_5xx(closed: Api, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", closed.app)
    tokens = {
        "operator": closed.token("operator"),
        "tenant": closed.token("tenant", tenant_path="acme"),
        "reporter": closed.token("reporter", cluster="a"),
    }
    asked = set()
    for found in schema.get_all_operations():
        operation = found.ok()  # type: ignore[union-attr]  # an Err would be a description that cannot be read
        roles = ["reporter"] if operation.path in {FACTS_PATH, REPORTER_PATH} else ["operator", "tenant"]
        for role in roles:
            asked |= answers_to(closed, operation, mode, tokens[role])
    # The requests got past the door, and not only as far as the check of their form.
    assert asked >= ({200, 404} if mode is GenerationMode.POSITIVE else {200, 422})
