"""The messages of the bench: the runner's requests, the model's replies, the service's answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

AGENT_SECRET = "bench-agent-secret-0001"
MARK = b"turn-00000000"
"""A placeholder for the request's number: no two turns are equal, and no two belong
to one conversation.
"""
TEXT = (
    "Nothing in the order book argues against it; the position stays as it is until the close. " * 6
)
DONE = TEXT[:40].encode()
"""The text that every good answer contains, streamed or not."""
_TOOLS = 12
AGENT = b"agent-XXX"
"""A placeholder for the agent of a request, of which a load makes one of its agents."""
CHAT = "/v1/chat/completions"


def question(rounds: int, *, stream: bool, padding: int = 0) -> bytes:
    """Return a runner's request of about 4 kB, for which the model makes so many
    managed calls one after the other.
    """
    said = (
        "What does the desk hold in ACME, what is the margin left, and which limit "
        "applies to the next order? "
    ) * 3
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are the analyst of a trading desk. " * 12}
    ]
    for turn in range(4):
        answer = {"role": "assistant", "content": f"{MARK.decode()}: {TEXT}"}
        messages += [{"role": "user", "content": f"{turn}: {said}"}, answer]
    messages.append({"role": "user", "content": f"{MARK.decode()} {said}" + "x" * padding})
    body = {
        "model": f"rounds-{rounds}",
        "stream": stream,
        "temperature": 0.2,
        "messages": messages,
        "tools": [_native()],
    }
    return json.dumps(body).encode()


def provider_request(rounds: int, done: int, padding: int = 0) -> bytes:
    """Return the request that the proxy sends to the provider after so many rounds,
    for doing its work directly.
    """
    body = json.loads(question(rounds, stream=False, padding=padding))
    body["tools"] += [_function(tool) for tool in manifest("http://127.0.0.1")["tools"]]
    for number in range(done):
        message = json.loads(call(number))["choices"][0]["message"]
        answer = json.dumps({"ok": True, "data": json.loads(result(number))})
        tool = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": answer}
        body["messages"] += [message, tool]
    return (
        json.dumps(body).encode().replace(b'"role": "tool"', b'"role":"tool"')
    )  # as the proxy spells it


def direct(
    ports: dict[str, int], agent: str, rounds: int, *, padding: int = 0, mcp: bool = False
) -> list[tuple[int, str]]:
    """Return port and request of all that a turn asks of its peers, in their order."""
    steps: list[tuple[int, str]] = []
    for done in range(rounds):
        call = (
            http("POST", "/mcp", agent, mcp_call(done))
            if mcp
            else http("GET", f"/position/ACME?page={done}", agent)
        )
        steps.append(
            (ports["provider"], http("POST", CHAT, agent, provider_request(rounds, done, padding)))
        )
        steps.append((ports["service"], call))
    return [
        *steps,
        (ports["provider"], http("POST", CHAT, agent, provider_request(rounds, rounds, padding))),
    ]


def agent(number: int) -> str:
    """Return the name of one of the agents of a load."""
    return f"{AGENT.decode()[:-3]}{number:03}"


def completion(text: str | None, calls: list[dict[str, Any]] | None = None) -> bytes:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": text,
        "refusal": None,
        "annotations": [],
    }
    if calls:
        message["tool_calls"] = calls
    reason = "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": 1200, "completion_tokens": 80, "total_tokens": 1280}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    head = {"id": "chatcmpl-bench", "object": "chat.completion", "created": 1, "model": "bench"}
    return json.dumps(
        {**head, "choices": [choice], "usage": usage, "system_fingerprint": "fp_1"}
    ).encode()


def conversation(kind: str, system: str, questions: Sequence[int]) -> bytes:
    """Return the last question of a conversation, after the earlier ones with their
    answers; ``kind``: reads or writes.
    """
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}]
    for number in questions:
        said = {
            "role": "user",
            "content": f"{number}: what does the desk hold in ACME, and what is the margin left? "
            * 3,
        }
        messages += [said, {"role": "assistant", "content": answer(number)}]
    return json.dumps(
        {"model": f"{kind}-{questions[-1]}", "messages": messages[:-1], "tools": [_native()]}
    ).encode()


def answer(number: int) -> str:
    return f"{number}: {TEXT}"


def call(number: int, tool: str = "desk__position") -> bytes:
    """Return the model's reply that calls a managed tool; no two calls of a turn are alike."""
    function = {"name": tool, "arguments": json.dumps({"symbol": "ACME", "page": number})}
    return completion(
        None, [{"id": f"call_{number:024}", "type": "function", "function": function}]
    )


def result(number: int) -> bytes:
    rows = [
        {"symbol": "ACME", "lot": lot, "quantity": "120.50", "price": "41.07"} for lot in range(5)
    ]
    return json.dumps({"page": number, "rows": rows, "next": None}).encode()


def events() -> list[bytes]:
    """Return the answer as a provider streams it: a word or two an event."""
    head = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "bench",
    }
    deltas: list[dict[str, Any]] = [
        {"index": 0, "delta": {"content": piece}, "finish_reason": None} for piece in pieces()
    ]
    deltas.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    return [
        *(
            b"data: " + json.dumps({**head, "choices": [delta]}).encode() + b"\n\n"
            for delta in deltas
        ),
        b"data: [DONE]\n\n",
    ]


def pieces() -> list[str]:
    """Return the text of a streamed answer, event by event."""
    words = TEXT.split(" ")
    return [
        DONE.decode(),
        *(" ".join(words[place : place + 2]) + " " for place in range(2, len(words), 2)),
    ]


def manifest(service_url: str, *, mcp: bool = False) -> dict[str, Any]:
    """Return a manifest of twelve tools of ordinary size; the model calls the
    first, or the last, which writes.
    """
    names = ["position", *(f"report_{number}" for number in range(1, _TOOLS - 1)), "order"]
    tools = [_managed(name, service_url) for name in names]
    for name, tool in zip(names, tools, strict=True):
        if mcp:
            auth = tool["execution"]["auth"]
            tool["execution"] = {
                "transport": "mcp",
                "service": "desk",
                "base_url": service_url,
                "tool_name": name,
                "auth": auth,
            }
    return {"version": 1, "tools": tools, "policy": {}}


def mcp_call(done: int) -> bytes:
    """Return a call over MCP, as the proxy sends it."""
    arguments = {"symbol": "ACME", "page": done}
    params = {"name": "position", "arguments": arguments}
    return (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}' % json.dumps(params).encode()
    )


def mcp_result(number: int) -> bytes:
    """Return the result of a call over MCP: the same data as over HTTP."""
    return b'{"content":[],"structuredContent":%b}' % result(number)


def http(method: str, path: str, agent: str, body: bytes = b"") -> str:
    """Return a whole HTTP/1.1 request."""
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer "
        f"{agent}:{AGENT_SECRET}\r\n"
    )
    return (
        f"{head}content-type: application/json\r\ncontent-length: "
        f"{len(body)}\r\n\r\n{body.decode()}"
    )


def _native() -> dict[str, Any]:
    schema = {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}
    return {
        "type": "function",
        "function": {"name": "shell", "description": "Runs a command.", "parameters": schema},
    }


def _function(tool: dict[str, Any]) -> dict[str, Any]:
    about = {
        "name": tool["name"],
        "description": tool["description"],
        "parameters": tool["inputSchema"],
    }
    return {"type": "function", "function": about}


def _managed(name: str, service_url: str) -> dict[str, Any]:
    texts = {
        f"filter_{letter}": {"type": "string", "description": f"Keep rows whose {letter} is this."}
        for letter in "abc"
    }
    properties = {
        "symbol": {
            "type": "string",
            "description": "The ticker symbol.",
            "minLength": 1,
            "maxLength": 12,
        },
        "page": {"type": "integer", "minimum": 0, "description": "Which page of the rows, from 0."},
        **texts,
    }
    return {
        "name": f"desk.{name}",
        "description": (
            f"The {name.replace('_', ' ')} of the desk: one row for each lot, newest first, "
            "with exact prices."
        ),
        "inputSchema": {
            "type": "object",
            "properties": properties,
            "required": ["symbol"],
            "additionalProperties": False,
        },
        "annotations": {"readOnly": name != "order"},
        "execution": {
            "transport": "http",
            "service": "desk",
            "base_url": service_url,
            "method": "POST" if name == "order" else "GET",
            "path": f"/{name}/{{symbol}}",
            "auth": {"type": "bearer", "token": "bench-tool-token-0002"},
        },
    }


MCP_OPENED = json.dumps(
    {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "bench", "version": "1"},
    }
).encode()
MCP_TOOLS = json.dumps(
    {
        "tools": [
            {"name": tool["name"].partition(".")[2], "inputSchema": tool["inputSchema"]}
            for tool in manifest("http://127.0.0.1")["tools"]
        ]
    }
).encode()
