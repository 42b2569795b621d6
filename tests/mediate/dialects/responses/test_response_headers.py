"""The headers of a provider's replies that the runner gets (docs/spec/responses.md section 6)."""

from __future__ import annotations

import json

import pytest

from tests.mediate.items import BALANCE
from tests.turns.desk import Desk
from tests.wires.responses import message, response


@pytest.mark.requirement("responses:headers")
async def test_the_runner_gets_the_headers_of_the_last_reply_that_it_can_use(codex: Desk) -> None:
    passing = {
        "x-request-id": "req_2",
        "openai-processing-ms": "7",
        "x-codex-primary-used-percent": "3",
    }
    codex.model_answers(json.dumps(response(BALANCE)).encode(), (("x-request-id", "req_1"),))
    codex.model_answers(json.dumps(response(message("Hi."))).encode(), tuple(passing.items()))
    await codex.asks("Hi")
    got = {name: codex.answered_with.get(name) for name in passing}
    assert got["x-request-id"] in ({"req_1", "req_2"} if codex.stream else {"req_2"}), (
        "a stream may begin earlier"
    )
    assert codex.stream or got == passing


@pytest.mark.requirement("responses:headers")
async def test_the_runner_gets_the_headers_of_an_error_too(codex: Desk) -> None:
    error = json.dumps(codex.wire.error("rate_limit_exceeded", "slow down")).encode()
    codex.model.answers(429, error, (("x-codex-primary-used-percent", "100"),))
    await codex.asks("Hi")
    assert (codex.status, codex.answered_with.get("x-codex-primary-used-percent")) == (429, "100")
