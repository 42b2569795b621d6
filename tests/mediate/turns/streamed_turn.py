"""Turns of scripted replies, for the tests of what is shown of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_contract.sse import SseReader
from claw_mediate.core.tool_catalog import ToolCatalog
from claw_mediate.core.types import Round
from claw_mediate.dialects.base import Dialect
from claw_mediate.dialects.streams import OwnOpening
from claw_mediate.turns.answer_stream import AnswerStream
from claw_mediate.turns.shown_answer import ShownAnswer
from tests.mediate.any_reply import DIALECTS
from tests.wires import MadeCall, Wire, anthropic, openai, responses

WIRES: dict[str, Wire] = {"openai": openai, "anthropic": anthropic, "responses": responses}
CATALOG = ToolCatalog.build((), (), 100)
CALL = (MadeCall("call_1", "desk__balance", '{"of": "me"}'),)


class StreamedTurn:
    """An answer's stream of one dialect, fed with the replies of a test."""

    def __init__(self, name: str, *, shows: bool = True, secrets: tuple[str, ...] = ()) -> None:
        self.wire: Wire = WIRES[name]
        self.dialect: Dialect = DIALECTS[name]
        asked = self.wire.request([self.wire.user("Go")], (), stream=True, more={})
        view = replace(self.dialect.read_request(json.dumps(asked).encode()), is_live=True)
        own = OwnOpening("own-id", "asked-for", 7)
        clock: Iterator[int] = itertools.count()
        self.redactor = Redactor([Secret(each) for each in secrets])
        self.stream = AnswerStream(
            ShownAnswer(self.dialect, view, own),
            self.redactor,
            lambda: float(next(clock)),
            shows=shows,
        )
        self.view = view
        self.rounds: tuple[Round, ...] = ()

    async def comes(self, text: str, calls: tuple[MadeCall, ...] = ()) -> bytes:
        """Let a reply come from the provider; return its body."""
        body = self.wire.reply(text, calls, {})
        assembler = self.stream.begin()
        for event in SseReader(1 << 20).feed(self.wire.streamed(body)):
            self.stream.show(assembler.feed(event))
            await self.stream.wait_for_runner()
        return self.redactor.document(assembler.body())

    async def is_hidden(self, text: str) -> None:
        """Let a reply with a managed call come, which the proxy answers."""
        response = self.dialect.read_response(await self.comes(text, CALL), CATALOG)
        self.rounds = (*self.rounds, Round(len(self.rounds) + 1, response, ()))
        self.stream.drop(self.rounds)

    async def answers(self, text: str, calls: tuple[MadeCall, ...] = ()) -> bytes:
        """Let the answer come; return its body with all that was shown."""
        response = self.dialect.read_response(await self.comes(text, calls), CATALOG)
        body = self.dialect.write_response(response, self.view, response.usage, terminal=False)
        self.stream.release(body, terminal=False)
        self.stream.finish()
        return self.stream.shown.answer(body)


class TimedTurn(StreamedTurn):
    """The same with a clock that the test sets; an attempt's events come one by one."""

    def __init__(self, name: str, *, shows: bool = True) -> None:
        super().__init__(name, shows=shows)
        self.now = 0.0
        self.first_call: float | None = None
        form = ShownAnswer(self.dialect, self.view, OwnOpening("own-id", "asked-for", 7))
        self.stream = AnswerStream(form, self.redactor, lambda: self.now, shows=shows)

    async def begins(self, text: str, calls: tuple[MadeCall, ...] = ()) -> bytes:
        """Let each event of a reply come a second after the last one; return its body."""
        self.stream.note_asked()
        assembler = self.stream.begin()
        stream = self.wire.streamed(self.wire.reply(text, calls, {}))
        for event in SseReader(1 << 20).feed(stream):
            told = assembler.feed(event)
            self.now += 1
            if any(each.kind == "call" for each in told) and self.first_call is None:
                self.first_call = self.now
            self.stream.show(told)
        return assembler.body()


def said(turn: StreamedTurn, stream: bytes) -> Any:
    return turn.wire.said(turn.wire.assembled(stream))
