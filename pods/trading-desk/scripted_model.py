"""A SCRIPTED model on the protocols of OpenAI (both) and Anthropic, so that the
demo runs without a provider's key.

It is not a language model: its only model is called `scripted-model`, and each response has the
header `x-scripted-model: 1`. It is a part of the demo, which users run without the tests, so it
writes the protocols by itself. It decides from the request's tools and messages alone, by the table
of intents.

    messages since the last user message     reply
    an intent has no fitting tool            "I have no tool for that …"
    an intent has no result yet              the next call; all calls in one response if the user
                                             says "at once"
    every intent has a result                the sentence of each result, with its numbers, or with
                                             the reason of its failure

Where the user says "say what you do", a sentence comes before the calls, and the words of a stream
come slowly, as a model writes them.

    SCRIPTED_MODEL_KEY=… SCRIPTED_MODEL_RECORD=requests.jsonl \\
        uvicorn --factory scripted_model:application --port 4100
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import model_streams
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

type Json = dict[str, Any]
type Calls = list[tuple[str, Json]]
"""Tools' names and arguments."""

MODEL = "scripted-model"
_TALKATIVE = "say what you do"
_EVENT_SECONDS = 0.08  # Between the events of a stream whose words come slowly


class Intent(NamedTuple):
    """Something that a user can ask for: the user's words, whose named groups are
    arguments; the tool's name; the reply.
    """

    name: str
    words: str
    tool: str
    reply: str


BALANCE = (
    "Your balance is ${balance:,.2f}, your buying power ${buying_power:,.2f}, your positions: "
    "{positions}."
)
ORDER = (
    "Order {order_id} is {status}: {side} {quantity} {symbol} at ${price:,.2f}, ${total:,.2f} "
    "in all."
)
QUOTE = r"\b(quote( for)?|price of|(buy|sell) \d+) (?P<symbol>[a-z]+)"
# In the order of the calls: look first, then act, write it down last.
INTENTS = (
    Intent(
        "account balances", r"\b(balance|buying power|positions?)\b", "get_market_context", BALANCE
    ),
    Intent(
        "order history", r"\border(s| history)\b", "get_order_history", "Your orders: {orders}."
    ),
    Intent(
        "the journal",
        r"\bjournal about (?P<word>[a-z]+)",
        "find_entries",
        "The journal says: {entries}",
    ),
    Intent("quotes", QUOTE, "get_quote", "{symbol} is quoted at ${price:,.2f}."),
    Intent(
        "trading",
        r"\b(?P<side>buy|sell) (?P<quantity>\d+) (?P<symbol>[a-z]+)",
        "execute_trade",
        ORDER,
    ),
    Intent(
        "writing the journal",
        r"\bto the journal: (?P<entry>.+)",
        "add_entry",
        "{author} wrote: {entry}",
    ),
    Intent("notes", r"\bnotes?\b", "write_note", "The note is written."),
)


def decide(body: Json) -> tuple[str | None, Calls]:
    """Return the model's text and its calls, for a request of any protocol."""
    prompt, results = read_messages(body.get("messages") or body["input"])
    matches = [
        (intent, match)
        for intent in INTENTS
        if (match := re.search(intent.words, prompt, re.IGNORECASE))
    ]
    if not matches:
        return f"I am a scripted model. I know {', '.join(intent.name for intent in INTENTS)}.", []
    functions = [tool.get("function", tool) for tool in body.get("tools") or []]
    tools = {function["name"].rpartition("__")[2]: function for function in functions}
    for intent, _ in matches:
        if intent.tool not in tools:
            return (
                (
                    "I have no tool for that: none of the tools that I was offered is for "
                    f"{intent.name}."
                ),
                [],
            )
    sentences = [
        sentence(intent, results[intent.tool]) for intent, _ in matches if intent.tool in results
    ]
    values: Json = {"text": " ".join(sentences) or prompt}
    for _, match in matches:
        values |= match.groupdict()
    calls = [
        call(tools[intent.tool], values) for intent, _ in matches if intent.tool not in results
    ]
    if not calls:
        return values["text"], []
    is_talkative = _TALKATIVE in prompt.lower()
    pending = [intent.name for intent, _ in matches if intent.tool not in results]
    preamble = f"Before I answer, I look at the {pending[0]} of today." if is_talkative else None
    return preamble, calls if "at once" in prompt else calls[:1]


def read_messages(messages: list[Json]) -> tuple[str, dict[str, str]]:
    """Return the last prompt, and each tool that has answered since with its
    result; in any protocol.
    """
    prompt, results, names = "", dict[str, str](), dict[str, str]()
    for message in messages:
        blocks = message["content"] if isinstance(message.get("content"), list) else []
        for part in [message, *(message.get("tool_calls") or []), *blocks]:
            match part:
                case {"role": "user", "content": str(text)}:
                    prompt, results = text, {}
                case (
                    {"id": call_id, "function": {"name": name}}
                    | {"type": "tool_use", "id": call_id, "name": name}
                    | {"type": "function_call", "call_id": call_id, "name": name}
                ):
                    names[call_id] = name.rpartition("__")[2]
                case (
                    {"tool_call_id": call_id, "content": result}
                    | {"tool_use_id": call_id, "content": result}
                    | {"type": "function_call_output", "call_id": call_id, "output": result}
                ):
                    results[names[call_id]] = result
    return prompt, results


def call(function: Json, values: Json) -> tuple[str, Json]:
    """Return a call of the tool, with those of the values that it has properties for."""
    properties = (function.get("parameters") or function["input_schema"])["properties"]
    arguments = {name: values[name] for name in properties if name in values}
    if "side" in arguments:
        arguments |= {"side": arguments["side"].lower(), "quantity": int(arguments["quantity"])}
    return function["name"], arguments


def sentence(intent: Intent, result: str) -> str:
    """Return the intent's reply with the result's numbers, or the reason of an error."""
    content = json.loads(result) if result.startswith("{") else {}
    if "error" in content:
        return f"{intent.tool} failed: {content['error']['message']}."
    values = {
        key: listed(value) if isinstance(value, list) else value
        for key, value in content.get("data", {}).items()
    }
    return intent.reply.format(**values)


def listed(rows: list[Json]) -> str:
    """Return positions, orders or entries as a list of their members: "buy 10 NVDA filled"."""
    members = ("side", "quantity", "symbol", "status", "author", "entry")
    return (
        "; ".join(" ".join(str(row[member]) for member in members if member in row) for row in rows)
        or "none"
    )


def openai_completion(text: str | None, calls: Calls) -> Json:
    tool_calls = [
        {
            "id": _id("call_"),
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for name, arguments in calls
    ]
    message = {"role": "assistant", "content": text, "refusal": None} | (
        {"tool_calls": tool_calls} if calls else {}
    )
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": "tool_calls" if calls else "stop",
    }
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    head = {"id": _id("chatcmpl-"), "object": "chat.completion", "created": 0, "model": MODEL}
    return head | {"choices": [choice], "usage": usage}


def openai_response(text: str | None, calls: Calls) -> Json:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {
        "id": _id("msg_"),
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }
    output: list[Json] = [] if text is None else [message]
    output += [
        {
            "id": _id("fc_"),
            "type": "function_call",
            "call_id": _id("call_"),
            "name": name,
            "arguments": json.dumps(values),
        }
        for name, values in calls
    ]
    head = {
        "id": _id("resp_"),
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": MODEL,
    }
    counts = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    details = {
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    return head | {
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "usage": counts | details,
    }


def anthropic_message(text: str | None, calls: Calls) -> Json:
    content: list[Json] = [{"type": "text", "text": text}] if text else []
    content += [
        {"type": "tool_use", "id": _id("toolu_"), "name": name, "input": values}
        for name, values in calls
    ]
    head = {
        "id": _id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": content,
    }
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    return head | stop | {"usage": {"input_tokens": 0, "output_tokens": 0}}


def _id(prefix: str) -> str:
    return prefix + secrets.token_hex(12)


async def answer(request: Request) -> Response:
    body = await request.body()
    record(request, body)
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
    credential, key = request.headers.get("x-api-key", bearer), os.environ["SCRIPTED_MODEL_KEY"]
    if not hmac.compare_digest(credential.encode(), key.encode()):
        error = {
            "message": "Incorrect API key provided.",
            "type": "invalid_request_error",
            "code": "invalid_api_key",
        }
        return JSONResponse({"error": error}, 401, {"x-scripted-model": "1"})
    asked = json.loads(body)
    response = _WRITERS[request.url.path](*decide(asked))
    if "output" in response:
        response["tools"] = asked["tools"]  # As the real API does, which repeats its request
    if not asked.get("stream"):
        return JSONResponse(response, headers={"x-scripted-model": "1"})

    prompt, _ = read_messages(asked.get("messages") or asked["input"])
    seconds = _EVENT_SECONDS if _TALKATIVE in prompt.lower() else 0.0
    events = paced(_STREAMS[request.url.path](response, asked), seconds)
    headers = {"x-scripted-model": "1"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def paced(events: Iterator[bytes], seconds: float) -> AsyncIterator[bytes]:
    """Yield events, each after a pause."""
    for event in events:
        await asyncio.sleep(seconds)
        yield event


def record(request: Request, body: bytes) -> None:
    """Append a request, headers and body, to the file SCRIPTED_MODEL_RECORD as one JSON line."""
    with Path(os.environ["SCRIPTED_MODEL_RECORD"]).open("a", encoding="utf-8") as file:
        file.write(
            json.dumps({"headers": dict(request.headers), "body": body.decode(errors="replace")})
            + "\n"
        )


_WRITERS = {
    "/v1/chat/completions": openai_completion,
    "/v1/responses": openai_response,
    "/v1/messages": anthropic_message,
}
_STREAMS = {
    "/v1/chat/completions": model_streams.completion_events,
    "/v1/responses": model_streams.response_events,
    "/v1/messages": model_streams.message_events,
}


def application() -> Starlette:
    routes = [Route(path, answer, methods=["POST"]) for path in _WRITERS]
    return Starlette(routes=[*routes, Route("/health", lambda _: JSONResponse({"ok": True}))])
