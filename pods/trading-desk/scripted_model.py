"""A SCRIPTED model on the protocols of OpenAI and Anthropic, so that the demo runs without a provider's key.

It is not a language model: its only model is called `scripted-model`, and each response has the header `x-scripted-model: 1`.
It knows nothing of the pod: it decides from the request's tools, tool choice and messages alone, by the table of intents.

    messages since the last user message     reply
    an intent has no fitting tool            "I have no tool for that …"
    a call failed                            the reason
    an intent has no result yet              the next call; all calls in one response if the user says "at once"
    every intent has a result                the sentence of each intent, with the numbers of its result

    SCRIPTED_MODEL_KEY=… python scripted_model.py --port 4100 [--record requests.jsonl]
"""

from __future__ import annotations

import argparse
import hmac
import json
import os
import re
import secrets
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

type Json = dict[str, Any]

MODEL = "scripted-model"


class Intent(NamedTuple):
    """Something that a user can ask for: the user's words, whose named groups are arguments; the tool's name; the reply."""

    name: str
    words: str
    tool: str
    reply: str


BALANCE = "Your balance is ${balance:,.2f}, your buying power ${buying_power:,.2f}, your positions: {positions}."
ORDER = "Order {order_id} is {status}: {side} {quantity} {symbol} at ${price:,.2f}, ${total:,.2f} in all."
QUOTE = r"\b(quote( for)?|price of|(buy|sell) \d+) (?P<symbol>[a-z]+)"
# In the order of the calls: look first, then act, write it down last.
INTENTS = (
    Intent("account balances", r"\b(balance|buying power|positions?)\b", r"market_context|balance", BALANCE),
    Intent("order history", r"\border(s| history)\b", r"order_history|orders$", "Your orders: {orders}."),
    Intent("quotes", QUOTE, r"quote|price", "{symbol} is quoted at ${price:,.2f}."),
    Intent("trading", r"\b(?P<side>buy|sell) (?P<quantity>\d+) (?P<symbol>[a-z]+)", r"trade", ORDER),
    Intent("notes", r"\bnotes?\b(: (?P<text>.+))?", r"note", "The note is written."),
)


class Reply(NamedTuple):
    """The model's text, or its calls: pairs of a tool's name and its arguments."""

    text: str | None = None
    calls: tuple[tuple[str, Json], ...] = ()


def decide(body: Json) -> Reply:
    """Return the reply to a chat completions request."""
    prompt, results = read_messages(body["messages"])
    tools = {tool["function"]["name"]: tool["function"] for tool in body.get("tools") or []}
    story = " ".join(sentence(name, result) for name, result in results)

    def call(*names: str) -> Reply:
        return Reply(calls=tuple((name, arguments(tools[name], prompt, story)) for name in names))

    choice = body.get("tool_choice", "auto")
    if isinstance(choice, dict):
        return call(choice["function"]["name"])
    asked = prompt.partition(": ")[0]
    fitting = {each.name: find_tool(each, tools) for each in INTENTS if re.search(each.words, asked, re.IGNORECASE)}
    if not fitting:
        known = ", ".join(intent.name for intent in INTENTS)
        return call(next(iter(tools))) if choice == "required" else Reply(f"I am a scripted model. I know {known}.")
    if choice == "none" or any(error_code(result) for _, result in results):
        return Reply(story or "I may not call a tool.")
    # A quote before a trade is welcome, not necessary.
    if missing := [name for name, tool in fitting.items() if tool is None and (name != "quotes" or len(fitting) == 1)]:
        return Reply(f"I have no tool for that: none of the tools that I was offered is for {missing[0]}.")
    answered = {name for name, _ in results}
    next_calls = [tool for tool in fitting.values() if tool is not None and tool not in answered]
    return call(*next_calls[: None if "at once" in prompt else 1]) if next_calls else Reply(story)


def read_messages(messages: list[Json]) -> tuple[str, list[tuple[str, Any]]]:
    """Return the last user message, and the tools that have answered since with their results."""
    prompt, results, names = "", list[tuple[str, Any]](), dict[str, str]()
    for message in messages:
        content = message.get("content") or ""
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        names |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls") or []}
        if message["role"] == "user":
            prompt, results = text, []
        if message["role"] == "tool":
            try:
                result = json.loads(text)
            except ValueError:
                result = text
            # The proxy did not run such a call; the model has to make it again.
            if error_code(result) != "managed_tools_first":
                results.append((names[message["tool_call_id"]], result))
    return prompt, results


def error_code(result: Any) -> str | None:
    is_error = isinstance(result, dict) and result.get("ok") is False
    return str(result["error"]["code"]) if is_error else None


def find_tool(intent: Intent, tools: Json) -> str | None:
    return next((name for name in tools if re.search(intent.tool, name.rpartition("__")[2])), None)


def arguments(function: Json, prompt: str, story: str) -> Json:
    """Return arguments for those of the tool's properties that the prompt has values for."""
    values: Json = {"text": story or prompt}
    for match in filter(None, (re.search(intent.words, prompt, re.IGNORECASE) for intent in INTENTS)):
        values |= {name: value for name, value in match.groupdict().items() if value}
    if "side" in values:
        values |= {"side": values["side"].lower(), "quantity": int(values["quantity"])}
    return {name: values[name] for name in function.get("parameters", {}).get("properties", {}) if name in values}


def sentence(tool: str, result: Any) -> str:
    """Return the intent's reply with the result's numbers, or the reason of an error."""
    name = tool.rpartition("__")[2]
    match result:
        case {"ok": False, "error": {"message": message, **error}}:
            # The details hold the service's own response, whose message says more than the status.
            match error.get("details"):
                case {"error": {"message": reason}} | {"body": {"error": {"message": reason}}}:
                    message = reason
            return f"{name.replace('_', ' ').capitalize()} failed: {message} ({error_code(result)})."
        case {"ok": True, "data": data}:
            result = data
    values = result if isinstance(result, dict) else {}
    values = {key: listed(value) if isinstance(value, list) else value for key, value in values.items()}
    try:
        return next(intent.reply for intent in INTENTS if re.search(intent.tool, name)).format(**values)
    except (StopIteration, KeyError, ValueError):  # No intent, or a result of another shape.
        return f"{name.replace('_', ' ').capitalize()}: {json.dumps(result)}."


def listed(rows: list[Json]) -> str:
    """Return positions or orders as a list of their members: "buy 10 NVDA, filled"."""
    members = ("side", "quantity", "symbol", "status")
    return "; ".join(" ".join(str(row[member]) for member in members if member in row) for row in rows) or "none"


def openai_completion(reply: Reply, tokens: tuple[int, int]) -> Json:
    message: Json = {"role": "assistant", "content": reply.text, "refusal": None}
    if reply.calls:
        functions = [{"name": name, "arguments": json.dumps(values)} for name, values in reply.calls]
        message["tool_calls"] = [{"id": _id("call_"), "type": "function", "function": each} for each in functions]
    reason = "tool_calls" if reply.calls else "stop"
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    head = {"id": _id("chatcmpl-"), "object": "chat.completion", "created": 0, "model": MODEL}
    return head | {"choices": [choice], "usage": usage}


def from_anthropic(body: Json) -> Json:
    """Return an Anthropic request as a chat completions request."""
    functions = [{**tool, "parameters": tool["input_schema"]} for tool in body.get("tools") or []]
    choice = (body.get("tool_choice") or {}).get("type", "auto")
    return {
        "messages": [message for each in body["messages"] for message in _chat_messages(each)],
        "tools": [{"type": "function", "function": function} for function in functions],
        "tool_choice": {"any": "required"}.get(choice, choice),
    }


def _chat_messages(message: Json) -> Iterator[Json]:
    content = message["content"]
    text, calls = "", []
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        match block:
            case {"type": "text", "text": part}:
                text += part
            case {"type": "tool_use", "id": call_id, "name": name}:
                calls.append({"id": call_id, "function": {"name": name}})
            case {"type": "tool_result", "tool_use_id": call_id, "content": result}:
                yield {"role": "tool", "tool_call_id": call_id, "content": result}
    if text or calls:
        yield {"role": message["role"], "content": text, "tool_calls": calls}


def anthropic_message(reply: Reply, tokens: tuple[int, int]) -> Json:
    content: list[Json] = [{"type": "text", "text": reply.text}] if reply.text else []
    content += [{"type": "tool_use", "id": _id("toolu_"), "name": name, "input": values} for name, values in reply.calls]
    head = {"id": _id("msg_"), "type": "message", "role": "assistant", "model": MODEL, "content": content}
    stop = {"stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None}
    return head | stop | {"usage": {"input_tokens": tokens[0], "output_tokens": tokens[1]}}


def _id(prefix: str) -> str:
    return prefix + secrets.token_hex(12)


def refusal(status_code: int, code: str, message: str) -> Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return JSONResponse({"error": error}, status_code=status_code)


def application(key: str, record: Path | None) -> Starlette:
    """Return the HTTP application; `record` receives each request, headers and body, as one JSON line."""

    async def answer(request: Request) -> Response:
        raw = await request.body()
        if record is not None:
            line = {"headers": dict(request.headers), "body": raw.decode(errors="replace")}
            with record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        is_anthropic = request.url.path == "/v1/messages"
        try:
            body = json.loads(raw)
            reply = decide(from_anthropic(body) if is_anthropic else body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return refusal(400, "invalid_request", f"The request is not valid: {type(error).__name__}")
        # Four characters are about one token.
        tokens = len(json.dumps(body["messages"])) // 4, len(json.dumps(reply)) // 4
        if body.get("stream"):  # The proxy asks for whole answers only.
            return refusal(400, "not_scripted", "The scripted model does not stream.")
        return JSONResponse(anthropic_message(reply, tokens) if is_anthropic else openai_completion(reply, tokens))

    async def check_key(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        credential = request.headers.get("x-api-key", bearer).encode()
        if request.url.path == "/health" or hmac.compare_digest(credential, key.encode()):
            response = await call_next(request)
        else:
            response = refusal(401, "invalid_api_key", "Incorrect API key provided.")
        response.headers["x-scripted-model"] = "1"
        return response

    routes = [Route(f"/v1/{path}", answer, methods=["POST"]) for path in ("chat/completions", "messages")]
    routes.append(Route("/health", lambda _: JSONResponse({"ok": True})))
    return Starlette(routes=routes, middleware=[Middleware(BaseHTTPMiddleware, dispatch=check_key)])


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted model on the protocols of OpenAI and Anthropic.")
    parser.add_argument("--port", type=int, default=4100)
    parser.add_argument("--record", type=Path, help="append every request to this file, headers and body")
    options = parser.parse_args()
    key = os.environ.get("SCRIPTED_MODEL_KEY")
    if not key:
        sys.exit("scripted_model: SCRIPTED_MODEL_KEY must be set")
    uvicorn.run(application(key, options.record), port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
