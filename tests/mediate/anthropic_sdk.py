"""The real ``anthropic`` SDK, reading a given stream."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx2


def final(stream: bytes) -> anthropic.types.Message:
    """Return the message that the SDK assembles from a stream."""

    def answer(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=stream)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    asked: Any = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
    with (
        anthropic.Anthropic(
            api_key="k", base_url="http://model", http_client=http, max_retries=0
        ) as client,
        client.messages.stream(**asked) as made,
    ):
        return made.get_final_message()
