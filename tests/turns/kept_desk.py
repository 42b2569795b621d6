"""A provider that keeps conversations, as OpenAI's does: it appends a request's input and its
response's output by itself.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from claw_mediate.core.types import ModelResponse
from claw_mediate.providers.client import ProviderResponse
from claw_mediate.providers.failover import ModelCall, ModelResult, parse_response
from claw_state.ownership import KeptObject
from tests.turns.desk import Desk
from tests.turns.scripted import Model
from tests.waiting import eventually_async
from tests.wires import Body, responses, responses_rules


class KeepingModel(Model):
    """The scripted provider, which checks a request together with all that its
    conversation holds.
    """

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.kept: dict[str, list[Body]] = {}
        """The items of each conversation."""
        self.sent: list[Body] = []
        """Each request as it came."""
        self.checks = True
        """False if a script refuses by itself a request that breaks the provider's rules."""

    async def post(self, route: Any, call: ModelCall) -> ModelResult:
        request = json.loads(call.body_for(route.candidate.maker))
        self.sent.append(request)
        if "conversation" not in request:
            return await super().post(route, call)
        named = request["conversation"]
        kept = self.kept.setdefault(named["id"] if isinstance(named, dict) else named, [])
        new = responses_rules.items_of(request.get("input", []))
        if again := _answered(kept) & _answered(new):
            return parse_response(
                ProviderResponse(400, "application/json", _no_call(min(again))), call.read
            )
        items = [*kept, *new]
        if not self.checks:
            return parse_response(self.script.pop(0)(), call.read)
        result = await super().post(
            route, replace(call, body=json.dumps({**request, "input": items}).encode(), adapt=None)
        )
        if isinstance(result, ModelResponse):
            kept[:] = [*items, *json.loads(result.body)["output"]]
        return result


def _answered(items: list[Body]) -> set[str]:
    return {item["call_id"] for item in items if item.get("type") == "function_call_output"}


def _no_call(call_id: str) -> bytes:
    message = f"No tool call found for function call output with call_id {call_id}."
    return json.dumps(
        {
            "error": {
                "message": message,
                "type": "invalid_request_error",
                "param": "input",
                "code": None,
            }
        }
    ).encode()


def kinds(items: list[Body] | str) -> list[str]:
    """Return items in a few words each: who says what, which tool is called, and
    what came of it.
    """
    return [_kind(item) for item in responses_rules.items_of(items)]


def _kind(item: Body) -> str:
    match item.get("type", "message"):
        case "message":
            content = item["content"]
            return f"{item['role']}: {content if isinstance(content, str) else content[0]['text']}"
        case "function_call":
            return f"call {item['name']}"
        case kind if kind.endswith("_output"):
            envelope = json.loads(item["output"])
            return f"output {envelope['data'] if envelope['ok'] else envelope['error']['code']}"
        case kind:
            return str(kind)


class KeptDesk(Desk):
    """A desk whose provider keeps conversations."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, responses, stream=False)
        self.model: KeepingModel = KeepingModel(self)
        self.named: object = "conv_1"
        self.open()

    async def owns(self, conversation: str = "conv_1") -> None:
        """Let the present agent own a conversation."""
        await self.mediator.state.ownership.save(
            self.agent, KeptObject(conversation, conversation, "openai")
        )

    async def says(self, words: str, **more: Any) -> str:
        """Send a user's words to the conversation, and nothing of what was said
        before; return the picture of the turn.
        """
        self.messages = []
        return await self.asks(words, conversation=self.named, **more)

    @property
    def kept(self) -> list[str]:
        return kinds(self.model.kept["conv_1"])

    def sent(self, index: int = -1) -> list[str]:
        """Return the input of a request as it came: of the last one, or of that index."""
        return kinds(self.model.sent[index]["input"])


async def failed_behind_a_trade(desk: KeptDesk, words: str = "Buy") -> None:
    """Run a turn that trades and whose provider then fails."""
    desk.service_answers("trade", 7, 8)
    desk.model_says(("desk.trade", {}))
    desk.model_refuses(400, "invalid_request")
    await desk.says(words)
    assert desk.status == 400


async def begun(desk: KeptDesk, words: str, called: str) -> asyncio.Task[str]:
    """Begin a turn; return it when it waits for the tool."""
    desk.services.gates[called] = asyncio.Event()
    task = asyncio.ensure_future(desk.says(words))
    await eventually_async(lambda: called in desk.services.calls, f"a call of {called}")
    return task
