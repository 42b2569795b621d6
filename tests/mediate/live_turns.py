"""Turns that were streamed live, as the pieces of the mediator make, remember and find them.

``play`` plays the model's replies through a dialect, and says what the provider saw in the last
model call of the turn. ``next_request`` sends the conversation on, and says what the provider gets
of it. The test is that the second begins with the first.
"""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from claw_mediate.core import tool_result
from claw_mediate.core.json_splice import Object, element_spans
from claw_mediate.core.shown import (
    LiveRecord,
    RoundText,
    answer_anchor_of_shown,
    describe_rounds,
)
from claw_mediate.core.types import ModelResponse, Round, ToolResult, ToolUse
from claw_mediate.core.weave import change_hidden
from claw_mediate.dialects.anthropic import DIALECT as ANTHROPIC_MESSAGES
from claw_mediate.dialects.base import Dialect
from claw_mediate.dialects.openai import DIALECT as OPENAI_CHAT
from claw_mediate.dialects.responses import DIALECT as OPENAI_RESPONSES
from claw_mediate.turns.continuity import Continuity
from claw_state.continuity import Anchor
from claw_state.sqlite.connection import Database
from claw_state.sqlite.continuity import SqliteContinuityStore
from tests.mediate.made import catalog, granted

CATALOG = catalog(granted("desk.get"), native=["shell"])
MAKER = "openai/gpt"
QUESTION = "What is on my desk?"


@dataclass(frozen=True)
class ModelReply:
    """One reply of the model's."""

    text: str = ""
    thought: str = ""
    rejected: bool = False


def joined(texts: Sequence[str]) -> str:
    """Return the texts as the stream of a chat completion joins them."""
    shown = ""
    for text in texts:
        if shown and text and not shown[-1].isspace() and not text[0].isspace():
            shown += "\n\n"
        shown += text
    return shown


def dump(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


class Chat:
    """Chat completions. ``mark``: of the ids of one turn."""

    dialect: Dialect = OPENAI_CHAT

    def __init__(self, mark: str = "") -> None:
        self.mark = mark

    def asked(self, prefill: str = "") -> list[Any]:
        assert not prefill, "chat completions have no answer that the runner begins"
        return [{"role": "user", "content": QUESTION}]

    def user(self, text: str) -> Any:
        return {"role": "user", "content": text}

    def request(self, messages: Sequence[Any]) -> bytes:
        return dump({"model": "m", "messages": messages})

    def reply(self, said: ModelReply, number: int, *, calls: bool) -> bytes:
        message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
        if said.thought:
            message["reasoning_content"] = said.thought
        if calls:
            function = {"name": "desk__get", "arguments": "{}"}
            message["tool_calls"] = [
                {"id": f"call_{self.mark}{number}", "type": "function", "function": function}
            ]
        return json.dumps({"id": "c", "choices": [{"index": 0, "message": message}]}).encode()

    def whole(self, saids: Sequence[ModelReply]) -> bytes:
        said = ModelReply(joined([said.text for said in saids]))
        return self.reply(said, 0, calls=False)

    def answer(self, saids: Sequence[ModelReply], prefill: str = "") -> list[Any]:
        del prefill
        message: dict[str, Any] = {
            "role": "assistant",
            "content": joined([said.text for said in saids]),
        }
        if thoughts := "".join(said.thought for said in saids):
            message["reasoning_content"] = thoughts
        return [message]

    def last(self, said: ModelReply) -> list[Any]:
        """Return what must be left of the answer."""
        message = {"role": "assistant", "content": said.text}
        if said.thought:
            message["reasoning_content"] = said.thought
        return [message] if said.text.strip() else []


class Anthropic(Chat):
    """Anthropic messages."""

    dialect: Dialect = ANTHROPIC_MESSAGES

    def asked(self, prefill: str = "") -> list[Any]:
        began = [{"role": "assistant", "content": prefill}] if prefill else []
        return [{"role": "user", "content": QUESTION}, *began]

    def request(self, messages: Sequence[Any]) -> bytes:
        return dump({"model": "m", "max_tokens": 9, "messages": messages})

    def _blocks(self, said: ModelReply) -> list[Any]:
        blocks: list[Any] = []
        if said.thought:
            blocks.append(
                {"type": "thinking", "thinking": said.thought, "signature": f"S:{said.thought}"}
            )
        if said.text:
            blocks.append({"type": "text", "text": said.text})
        return blocks

    def reply(self, said: ModelReply, number: int, *, calls: bool) -> bytes:
        blocks = self._blocks(said)
        if calls:
            call = {
                "type": "tool_use",
                "id": f"toolu_{self.mark}{number}",
                "name": "desk__get",
                "input": {},
            }
            blocks.append(call)
        return json.dumps({"id": "m", "role": "assistant", "content": blocks}).encode()

    def whole(self, saids: Sequence[ModelReply]) -> bytes:
        blocks = [block for said in saids for block in self._blocks(said)]
        return dump({"id": "m", "role": "assistant", "content": blocks})

    def answer(self, saids: Sequence[ModelReply], prefill: str = "") -> list[Any]:
        began = [{"type": "text", "text": prefill}] if prefill else []
        blocks = [block for said in saids for block in self._blocks(said)]
        return [{"role": "assistant", "content": [*began, *blocks]}]

    def last(self, said: ModelReply) -> list[Any]:
        blocks = self._blocks(said)
        return [{"role": "assistant", "content": blocks}] if blocks else []


class Responses(Chat):
    """OpenAI Responses."""

    dialect: Dialect = OPENAI_RESPONSES

    def request(self, messages: Sequence[Any]) -> bytes:
        return dump({"model": "m", "store": False, "input": messages})

    def _items(self, said: ModelReply, number: int) -> list[Any]:
        items: list[Any] = []
        if said.thought:
            items.append(
                {
                    "type": "reasoning",
                    "id": f"rs_{self.mark}{number}",
                    "summary": [],
                    "encrypted_content": f"E:{self.mark}{number}:{said.thought}",
                }
            )
        if said.text:
            part = {"type": "output_text", "text": said.text, "annotations": []}
            items.append(
                {
                    "type": "message",
                    "id": f"msg_{self.mark}{number}",
                    "role": "assistant",
                    "status": "completed",
                    "content": [part],
                }
            )
        return items

    def reply(self, said: ModelReply, number: int, *, calls: bool) -> bytes:
        items = self._items(said, number)
        if calls:
            call = {
                "type": "function_call",
                "id": f"fc_{self.mark}{number}",
                "call_id": f"call_{self.mark}{number}",
            }
            items.append({**call, "name": "desk__get", "arguments": "{}"})
        return json.dumps({"id": f"resp_{number}", "status": "completed", "output": items}).encode()

    def whole(self, saids: Sequence[ModelReply]) -> bytes:
        items = [item for number, said in enumerate(saids, 1) for item in self._items(said, number)]
        return dump({"id": "resp_1", "status": "completed", "output": items})

    def answer(self, saids: Sequence[ModelReply], prefill: str = "") -> list[Any]:
        del prefill
        return [item for number, said in enumerate(saids, 1) for item in self._items(said, number)]


@dataclass
class PlayedTurn:
    """A live turn that has ended, and the store that remembers it."""

    wire: Chat
    seen: list[bytes]
    """The transcript of the last model call, without rounds that were rejected."""
    record: LiveRecord
    anchor: Anchor
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        database = Database("")
        self.store = SqliteContinuityStore(database)
        weakref.finalize(self, database.close)

    @property
    def _continuity(self) -> Continuity:
        def event(kind: str, *_: Any, **members: Any) -> None:
            self.events.append((kind, members))

        return Continuity(self.store, SimpleNamespace(event=event))

    def remember(self) -> None:
        context = SimpleNamespace(
            session="", dialect=self.wire.dialect, agent=SimpleNamespace(id="a")
        )
        asyncio.run(self._continuity.remember_live(context, self.anchor, self.record))

    def next_body(self, messages: Sequence[Any]) -> bytes:
        """Return the request of the next turn, as its provider gets it."""
        dialect = self.wire.dialect
        view = dialect.read_request(self.wire.request(messages))
        incoming = SimpleNamespace(
            agent=SimpleNamespace(id="a"), dialect=dialect, view=view, covered=frozenset()
        )
        weaves = asyncio.run(self._continuity.find_hidden_rounds(incoming, "", None)).weaves
        adapted = change_hidden(
            weaves, lambda messages: dialect.replay_rules.adapt(messages, MAKER)
        )
        write = dialect.build_request(view, CATALOG, adapted)
        return b"".join(write(ToolUse.AS_REQUESTED))

    def next_request(self, messages: Sequence[Any]) -> list[bytes]:
        """Return the transcript of that request. It is the same bytes every time."""
        body = self.next_body(messages)
        assert self.next_body(messages) == body
        return transcript(self.wire, body)


def transcript(wire: Chat, body: bytes) -> list[bytes]:
    array = Object(body).value(wire.dialect.transcript) or b"[]"
    json.loads(body)
    return [array[start:end] for start, end in element_spans(array)]


def play(
    wire: Chat, rounds: Sequence[ModelReply], last: ModelReply, prefill: str = ""
) -> PlayedTurn:
    """Play a turn of these rounds, which ends with the last reply, and remember it."""
    dialect = wire.dialect
    request = dialect.read_request(wire.request(wire.asked(prefill)))
    write = dialect.build_request(request, CATALOG)

    hidden: list[bytes] = []
    texts = [RoundText(0, prefill)] if prefill else []
    for number, said in enumerate(rounds, 1):
        response = read(wire, wire.reply(said, number, calls=True))
        past = Round(number, response, tuple(map(_result(said), response.calls)))
        if not said.rejected:
            hidden += dialect.write_hidden_rounds([past], replayed=False)
        stored = dialect.write_hidden_rounds([past], replayed=True)
        assert bool(stored) is not said.rejected
        texts.append(
            RoundText(
                number,
                said.text,
                stored,
                said.thought if wire.dialect is OPENAI_CHAT else "",
                pieces=1 if said.text else 0,
                signatures=dialect.split_rules.signatures(response.message),
            )
        )

    seen = transcript(wire, b"".join(write(ToolUse.AS_REQUESTED, hidden)))
    record = describe_rounds(texts, last.text, is_joined=dialect.split_rules.joins_text)

    whole = read(wire, wire.whole([*rounds, last]))
    final = read(wire, wire.reply(last, len(rounds) + 1, calls=False))
    anchor = answer_anchor_of_shown(
        dialect.response_anchor(whole, request, terminal=False),
        dialect.response_anchor(final, request, terminal=False),
    )
    played = PlayedTurn(wire, seen, record, anchor)
    played.remember()
    return played


def read(wire: Chat, body: bytes) -> ModelResponse:
    response: ModelResponse = wire.dialect.read_response(body, CATALOG)
    return response


def _result(said: ModelReply) -> Callable[[Any], ToolResult]:
    if said.rejected:
        return tool_result.managed_tools_first
    return lambda call: ToolResult(call, b'{"ok":true,"data":1}', ok=True)
