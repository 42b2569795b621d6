"""The real ``openai`` SDK, reading a given stream."""

from __future__ import annotations

import httpx2
import openai
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import ParsedResponse


def sdk(stream: bytes) -> openai.OpenAI:
    """Return the real SDK, whose every response is that stream."""

    def answer(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=stream)

    client = httpx2.Client(transport=httpx2.MockTransport(answer))
    return openai.OpenAI(api_key="k", base_url="http://model/v1", http_client=client, max_retries=0)


def chunks(stream: bytes) -> list[ChatCompletionChunk]:
    with sdk(stream) as client:
        made = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}], stream=True
        )
        return list(made)


def final(stream: bytes) -> ChatCompletion:
    with sdk(stream) as client, client.chat.completions.stream(model="m", messages=[]) as made:
        return made.get_final_completion()


def final_response(stream: bytes) -> ParsedResponse[None]:
    """Return the response that the SDK's strict helper assembles from a stream of
    the Responses API.
    """
    with sdk(stream) as client, client.responses.stream(model="m", input="x") as made:
        events = list(made)
        assert events
        return made.get_final_response()
