"""The cost of a request's head from anybody without a known credential: counted, not timed."""

from __future__ import annotations

import pytest

from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import DOTS, Secret
from claw_mediate.mitm.view.redacted_message import redact_head, shown_tokens
from tests.proxy.looking import http, tflow


class CountingRedactor(Redactor):
    searches = 0

    def _spans(self, data: bytes) -> list[tuple[int, int]]:
        self.searches += 1
        return super()._spans(data)


def of(fields: list[tuple[bytes, bytes]]) -> http.Request:
    request = tflow.tflow().request
    request.headers = http.Headers(fields)
    return request


@pytest.mark.requirement("redaction:cost")
def test_thousands_of_credentials_are_hidden_with_one_search_for_a_few_of_them() -> None:
    tokens = [b"credential-%d" % number for number in range(4000)]
    request = of(
        [*((b"x-api-key", token) for token in tokens), *((b"a", b"s3cr3t-value") for _ in tokens)]
    )
    shown = shown_tokens(request)
    assert 1 <= len(shown) <= 20
    redactor = CountingRedactor([Secret("s3cr3t-value"), *shown])
    redact_head(request, redactor)
    assert {value.decode().partition(" ")[0] for _, value in request.headers.fields} == {DOTS}
    assert redactor.searches <= 2


@pytest.mark.requirement("redaction:cost")
def test_a_megabyte_of_a_credential_is_hidden_and_looked_for_nowhere_else() -> None:
    request = of([(b"authorization", b"Bearer " + b"x" * 1_000_000), (b"cookie", b"own-cookie")])
    assert shown_tokens(request) == ["own-cookie", "own-cookie"]
    redact_head(request, Redactor(shown_tokens(request)))
    assert request.headers["authorization"] == request.headers["cookie"] == DOTS
