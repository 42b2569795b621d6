"""A pod of two agents, and a provider that keeps responses and conversations as
OpenAI's API does.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from claw_mediate.agents.authenticate import Identity
from claw_mediate.core.http import Forward, Request, RunnerResponse
from claw_mediate.mediator import Mediator
from claw_mediate.settings import SETTINGS, Settings
from claw_mediate.telemetry.event_log import EventLog
from claw_state.ownership import KeptObject
from tests.events import known
from tests.peers import Peer, Service
from tests.turns.desk import tool
from tests.wires import Body
from tests.wires.responses import function_call, message, response


@dataclass
class KeepingApi(Peer):
    """The paths of what is stored.

    A response is (its body, its input items with those of all that it goes on from).
    """

    responses: dict[str, tuple[Body, list[Body]]] = field(default_factory=dict)
    conversations: dict[str, list[Body]] = field(default_factory=dict)
    page_size: int = 100
    """The most items of a page, whatever was asked."""
    instead: Response | None = None
    """Given in place of every answer."""
    script: list[list[Body]] = field(default_factory=list)
    """The output of each response that is made, in order; its id is ``resp_N``."""

    async def answer(self, request: HttpRequest) -> Response:
        if self.instead is not None:
            return self.instead
        if request.method == "POST" and request.url.path == "/v1/responses":
            return self._make(json.loads(await request.body()))
        kind, object_id, *rest = request.url.path.removeprefix("/v1/").split("/")
        stored: dict[str, Any] = self.responses if kind == "responses" else self.conversations
        if object_id not in stored:
            return JSONResponse({"error": {"message": f"{object_id} not found", "code": None}}, 404)
        if request.method == "DELETE" and not rest:
            del stored[object_id]
            return JSONResponse(
                {"id": object_id, "object": f"{kind[:-1]}.deleted", "deleted": True}
            )
        if request.method == "GET" and rest in (["input_items"], ["items"]):
            return self._page(
                stored[object_id][1] if kind == "responses" else stored[object_id], request
            )
        return JSONResponse(
            stored[object_id][0]
            if kind == "responses"
            else {"id": object_id, "object": "conversation"}
        )

    def _make(self, asked: Body) -> Response:
        """Make a response that repeats its request, and goes on from another one
        with all that this has.
        """
        response_id = f"resp_{len(self.responses)}"
        before, items = self.responses.get(
            asked.get("previous_response_id", ""), ({"output": []}, [])
        )
        given = (
            asked["input"]
            if isinstance(asked["input"], list)
            else [{"role": "user", "content": asked["input"]}]
        )
        own = [
            {"type": "message", "id": f"in_{response_id}_{n}", **item}
            for n, item in enumerate(given)
        ]
        repeated = {
            name: asked.get(name)
            for name in ("tools", "tool_choice", "instructions", "previous_response_id")
        }
        made = response(*self.script.pop(0), **repeated, id=response_id, store=True)
        self.responses[response_id] = made, [*items, *before["output"], *own]
        return JSONResponse(made)

    def _page(self, items: list[Body], request: HttpRequest) -> Response:
        asked = request.query_params
        ordered = items if asked.get("order", "desc") == "asc" else items[::-1]
        ids = [item["id"] for item in ordered]
        start = ids.index(asked["after"]) + 1 if "after" in asked else 0
        page = ordered[start:][: min(int(asked.get("limit", "20")), self.page_size)]
        has_more = start + len(page) < len(ordered)
        last = page[-1]["id"] if page else None
        return JSONResponse({"object": "list", "data": page, "last_id": last, "has_more": has_more})


class KeptPod:
    """A mediator, whose agents ``analyst`` and ``clerk`` share the provider's account."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.api, self.second, self.service = KeepingApi(), KeepingApi(), Service()
        self.events: list[Body] = []
        self.settings = {setting.name: setting.default for setting in SETTINGS}
        self.settings["file_look_ms"] = "0"  # What a test writes counts at once
        self.settings |= {name: str(home / name) for name in ("context", "auth", "history")}

    def open(self, **settings: str) -> None:
        (self.home / "auth").mkdir()
        for peer in (self.api, self.second, self.service):
            peer.start()
        self.service.routes["GET", "/balance"] = JSONResponse({"planted": 50})
        file = {"version": 2, "providers": self.providers()}
        (self.home / "auth" / "providers.json").write_text(json.dumps(file), encoding="utf-8")
        for agent_id in ("analyst", "clerk"):
            self.agent(agent_id, self.tool())
        values = Settings.of(self.settings | settings)
        self.mediator = Mediator(values, EventLog(lambda line: self.events.append(known(line))), {})

    def providers(self) -> Body:
        """Return the providers of providers.json."""
        keys = [{"id": name, "secret": f"sk-{name}"} for name in ("first", "other")]
        own = {"base_url": f"{self.api.url}/v1", "keys": keys, "active_key_id": "first"}
        second = {
            "base_url": f"{self.second.url}/v1",
            "api_key": "sk-second",
            "api_format": "openai",
        }
        return {"openai": own, "second": second}

    async def close(self) -> None:
        await self.mediator.close(0)
        for peer in (self.api, self.second, self.service):
            peer.stop()

    def agent(self, agent_id: str, *tools: Body) -> None:
        directory = self.home / "context" / agent_id
        directory.mkdir(parents=True, exist_ok=True)
        metadata = {"service": agent_id, "pod": "p", "token": self.token(agent_id)}
        (directory / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
        (directory / "tools.json").write_text(
            json.dumps({"version": 1, "tools": tools}), encoding="utf-8"
        )

    def tool(self, **annotations: Any) -> Body:
        made = tool("balance", **annotations)
        made["execution"]["base_url"] = self.service.url
        return made

    def token(self, agent_id: str) -> str:
        return f"{agent_id}:secret-of-the-{agent_id}"

    async def keeps(self, owned: KeptObject, agent_id: str = "analyst") -> None:
        await self.mediator.state.ownership.save(agent_id, owned)

    async def decides(
        self,
        method: str,
        path: str,
        agent_id: str = "analyst",
        body: bytes = b"",
        host: str | None = None,
    ) -> RunnerResponse | Forward:
        headers = [("authorization", f"Bearer {self.token(agent_id)}"), ("x-of-the-runner", "kept")]
        request = Request(method, path, headers, body, host)
        admitted = self.mediator.admit(request)
        assert isinstance(admitted, Identity)
        assert self.mediator.must_read(admitted, request)
        return await self.mediator.exchange(admitted, request)

    async def asks(
        self, method: str, path: str, agent_id: str = "analyst", **more: Any
    ) -> tuple[int, Any]:
        """Return status and document of an answer."""
        decision = await self.decides(method, path, agent_id, **more)
        assert isinstance(decision, RunnerResponse)
        return decision.status, json.loads(b"".join([chunk async for chunk in decision.chunks]))

    @property
    def asked(self) -> list[str]:
        """Return the requests that the provider got."""
        return [f"{sent.method} {sent.path}" for sent in self.api.received]


NATIVE = {"type": "function", "name": "shell", "parameters": {}, "strict": False}
MANAGED = {
    "type": "function",
    "name": "desk__balance",
    "description": "hidden",
    "parameters": {},
    "strict": False,
}


def output(call_id: str, text: str) -> Body:
    return {
        "type": "function_call_output",
        "id": f"fco_{call_id}",
        "call_id": call_id,
        "output": text,
    }


def thought(name: str) -> Body:
    return {"type": "reasoning", "id": f"rs_{name}", "summary": []}


def user(words: str) -> Body:
    content = [{"type": "input_text", "text": words}]
    return {
        "type": "message",
        "id": f"msg_{words}",
        "role": "user",
        "status": "completed",
        "content": content,
    }


FIRST = [
    user("How much?"),
    thought("hidden"),
    function_call("call_1", "desk__balance", '{"of":"all"}'),
    output("call_1", "planted"),
]
SHOWN = [
    thought("shown"),
    function_call("call_n", "shell", "{}"),
    output("call_n", "ls"),
    message("Fifty.", "msg_fifty"),
]
SECOND = [
    function_call("call_2", "desk__old", "{}"),
    output("call_2", "planted too"),
    user("Thanks"),
]


def kept_response(response_id: str, **more: Any) -> Body:
    echo = {
        "tools": [NATIVE, MANAGED],
        "tool_choice": "auto",
        "instructions": "Be brief.\n\nFeeds",
        "previous_response_id": None,
    }
    return response(message("Fifty."), **(echo | {"id": response_id} | more))


OWN = KeptObject(
    "resp_A", "resp_A", "openai", "first", hidden_ids=("call_1",), managed_names=("desk__balance",)
)
PLAIN = KeptObject("resp_P", "resp_P", "openai", "first", is_plain=True)
TALK = KeptObject("conv_A", "conv_A", "openai", "first", hidden_ids=("call_2",))


@asynccontextmanager
async def filled_pod(home: Path) -> AsyncIterator[KeptPod]:
    """Yield a pod whose provider has four responses and a conversation, of which
    the analyst owns two responses and this.
    """
    made = KeptPod(home)
    made.open()
    made.api.responses = {
        "resp_A": (kept_response("resp_A"), FIRST),
        "resp_B": (
            kept_response("resp_B", previous_response_id="resp_A"),
            [*FIRST, *SHOWN, *SECOND],
        ),
        "resp_P": (kept_response("resp_P", tools=[NATIVE]), [user("Hi")]),
        "resp_hidden": (kept_response("resp_hidden"), FIRST[:1]),
    }
    made.api.conversations = {"conv_A": [*FIRST, *SHOWN, *SECOND]}
    for owned in (OWN, PLAIN, TALK):
        await made.keeps(owned)
    yield made
    await made.close()


def ids(items: list[Body]) -> list[str]:
    return [item["id"] for item in items]
