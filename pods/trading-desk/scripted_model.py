"""A SCRIPTED model behind the real wires of OpenAI and Anthropic, so that the demo runs without any provider's key.

It is no language model and says so: its one model is called `scripted-model`, every response carries the header
`x-scripted-model: 1`. What it decides it decides from the request alone (scripted_intents.py): the offered tools, the
choice, the messages.

    SCRIPTED_MODEL_KEY=… python scripted_model.py --port 4100 [--record requests.jsonl]

`GET /_seen` tells what it was sent, and `--record` keeps every request whole, headers too, for a leak check.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import os
import re
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from scripted_anthropic import as_chat, message
from scripted_intents import Reply, decide
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

type Json = dict[str, Any]

MODEL = "scripted-model"
HEADERS = {"x-scripted-model": "1"}


def refusal(status_code: int, code: str, message: str) -> Response:
    kind = "authentication_error" if status_code == 401 else "invalid_request_error"
    error = {"message": message, "type": kind, "param": None, "code": code}
    return JSONResponse({"error": error}, status_code=status_code, headers=HEADERS)


def credential(request: Request) -> str:
    """A bearer's token, or Anthropic's key."""
    return request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")


def seen(request: Request, body: Json) -> Json:
    """What one request offered; of its credential only the digest."""
    token = credential(request)
    messages = body.get("messages", [])
    return {
        "model": body.get("model"),
        "stream": bool(body.get("stream")),
        "tools": [tool.get("function", {}).get("name", tool.get("type")) for tool in body.get("tools") or []],
        "tool_choice": body.get("tool_choice"),
        "messages": len(messages),
        "roles": [message.get("role") for message in messages],
        "authorization_sha256": hashlib.sha256(token.encode()).hexdigest(),
    }


def usage(body: Json, reply: Reply) -> Json:
    """Counts at four characters a token: plausible, and the same for the same request."""
    prompt = max(1, len(json.dumps([body.get("messages"), body.get("tools")])) // 4)
    made = sum(len(call.name) + len(json.dumps(call.arguments)) for call in reply.calls) + len(reply.text or "")
    completion = max(1, made // 4)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def tool_calls(reply: Reply) -> list[Json]:
    return [
        {
            "id": f"call_{secrets.token_hex(12)}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for call in reply.calls
    ]


def envelope(kind: str) -> Json:
    return {"id": f"chatcmpl-{secrets.token_hex(12)}", "object": kind, "created": int(time.time()), "model": MODEL}


def completion(body: Json, reply: Reply) -> Json:
    message: Json = {"role": "assistant", "content": reply.text, "refusal": None}
    if reply.calls:
        message["tool_calls"] = tool_calls(reply)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}
    return envelope("chat.completion") | {"choices": [choice], "usage": usage(body, reply)}


def chunks(body: Json, reply: Reply) -> Iterator[str]:
    """The stream of a completion: role first, text by words, calls in parts, then the reason, and the usage if asked for."""
    frame = envelope("chat.completion.chunk")
    wants_usage = bool((body.get("stream_options") or {}).get("include_usage"))

    def event(delta: Json, finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _event(frame | {"choices": [choice]} | ({"usage": None} if wants_usage else {}))

    yield event({"role": "assistant", "content": None if reply.calls else ""})
    for word in re.findall(r"\s*\S+\s*$|\s*\S+", reply.text or ""):
        yield event({"content": word})
    for index, call in enumerate(tool_calls(reply)):
        function = call["function"]
        yield event({"tool_calls": [{"index": index, **call, "function": {"name": function["name"], "arguments": ""}}]})
        for start in range(0, len(function["arguments"]), 16):
            part = {"index": index, "function": {"arguments": function["arguments"][start : start + 16]}}
            yield event({"tool_calls": [part]})
    yield event({}, _finish(reply))
    if wants_usage:
        yield _event(frame | {"choices": [], "usage": usage(body, reply)})
    yield "data: [DONE]\n\n"


def _event(data: Json) -> str:
    return f"data: {json.dumps(data)}\n\n"


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


type Handler = Callable[[Request], Awaitable[Response]]


class ScriptedModel:
    """The handlers, and what they were sent."""

    def __init__(self, record: Path | None) -> None:
        self._record = record
        self._seen: list[Json] = []

    async def chat_completions(self, request: Request) -> Response:
        decided = await self._decided(request, lambda body: body)
        if isinstance(decided, Response):
            return decided
        body, reply = decided
        if body.get("stream"):
            return StreamingResponse(chunks(body, reply), media_type="text/event-stream", headers=HEADERS)
        return JSONResponse(completion(body, reply), headers=HEADERS)

    async def messages(self, request: Request) -> Response:
        """Anthropic's wire; whole answers only, which is all that the proxy asks for."""
        decided = await self._decided(request, as_chat)
        if isinstance(decided, Response):
            return decided
        body, reply = decided
        if body.get("stream"):
            return refusal(400, "not_scripted", "The scripted model does not stream Anthropic messages.")
        return JSONResponse(message(reply, usage(body, reply), MODEL), headers=HEADERS)

    async def _decided(self, request: Request, read: Callable[[Json], Json]) -> tuple[Json, Reply] | Response:
        raw = await request.body()
        if self._record is not None:
            line = {"headers": request.headers.items(), "body": raw.decode(errors="replace")}
            with self._record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        try:
            body = read(json.loads(raw))
            self._seen.append(seen(request, body))
            return body, decide(body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return refusal(400, "invalid_request", f"This is no request of a model: {type(error).__name__}")

    async def models(self, _request: Request) -> Response:
        model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "clawdapus-demo"}
        return JSONResponse({"object": "list", "data": [model]}, headers=HEADERS)

    async def what_was_seen(self, _request: Request) -> Response:
        return JSONResponse(self._seen, headers=HEADERS)


def application(key: str, record: Path | None) -> Starlette:
    model = ScriptedModel(record)

    def guarded(handler: Handler) -> Handler:
        async def admit(request: Request) -> Response:
            if hmac.compare_digest(credential(request).encode(), key.encode()):
                return await handler(request)
            return refusal(401, "invalid_api_key", "Incorrect API key provided.")

        return admit

    async def health(_request: Request) -> Response:
        return JSONResponse({"ok": True}, headers=HEADERS)

    return Starlette(
        routes=[
            Route("/v1/chat/completions", guarded(model.chat_completions), methods=["POST"]),
            Route("/v1/messages", guarded(model.messages), methods=["POST"]),
            Route("/v1/models", guarded(model.models)),
            Route("/_seen", guarded(model.what_was_seen)),
            Route("/health", health),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted model on the OpenAI chat completions wire.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=4100)
    parser.add_argument("--record", type=Path, help="append every request to this file, headers and body")
    options = parser.parse_args()
    key = os.environ.get("SCRIPTED_MODEL_KEY")
    if not key:
        sys.exit("scripted_model: SCRIPTED_MODEL_KEY must be set")
    uvicorn.run(application(key, options.record), host=options.host, port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
