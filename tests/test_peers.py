"""The scripted provider of all stages: one script, in whatever protocol a request is."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse

from tests.peers import Answer, Provider, calls, text
from tests.wires import MadeCall, Wire, anthropic, openai, responses

WIRES: tuple[Wire, ...] = (openai, anthropic, responses)
ARGUMENTS = '{"n": 1.50}'


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    made.start()
    yield made
    made.stop()


def ask(provider: Provider, wire: Wire, *, stream: bool = False) -> httpx2.Response:
    body = wire.request([wire.user("Hi")], (), stream=stream, more={})
    return httpx2.post(provider.url + wire.PATH, json=body, timeout=30)


@pytest.mark.requirement("development:one-script")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", WIRES, ids=["chat", "messages", "responses"])
def test_a_reply_is_written_in_the_protocol_and_the_form_that_a_request_asks_for(
    provider: Provider, wire: Wire, stream: bool
) -> None:
    provider.says(calls(("call_1", "desk__buy", ARGUMENTS), words="I buy."))
    answer = ask(provider, wire, stream=stream)
    assert answer.headers["content-type"].startswith("text/event-stream") == stream
    said = wire.said(wire.assembled(answer.content) if stream else answer.content)
    assert (said.text, said.calls) == ("I buy.", (MadeCall("call_1", "desk__buy", ARGUMENTS),))


@pytest.mark.requirement("development:one-script")
def test_after_its_script_a_provider_gives_what_its_model_computes_from_the_request(
    provider: Provider,
) -> None:
    async def repeat(request: Request) -> Answer:
        return text(json.loads(await request.body())["messages"][-1]["content"])

    provider.model = repeat
    provider.says(JSONResponse({"error": "busy"}, 503), text("First."))
    answers = [ask(provider, openai) for _ in range(3)]
    assert answers[0].status_code == 503
    assert [openai.said(answer.content).text for answer in answers[1:]] == ["First.", "Hi"]
    assert [sent.path for sent in provider.received] == [openai.PATH] * 3


@pytest.mark.requirement("development:one-script")
def test_a_request_behind_the_script_of_a_provider_without_a_model_is_an_error(
    provider: Provider,
) -> None:
    assert ask(provider, openai).status_code == 418
