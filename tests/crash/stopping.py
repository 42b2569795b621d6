"""A model whose stream stops behind one event of one reply, in the way of a trial.

Every text names its turn, its reply and its try, so that no word that is lost or doubled can be
mistaken for another one. What the model is told is checked in every request:

    of each turn so far     its words, once           its hidden calls
    ──────────────────────  ────────────────────────  ─────────────────────────────────────────────
    with an answer          what the runner has       all, in their order
    the present one         what it has said so far   those of its rounds
    left without an answer  what the runner holds     those of whole rounds; among them each call
                                                        that a service has heard
"""

from __future__ import annotations

import itertools
import json
import traceback
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from tests.crash.peers import AppendingResponses, PlanModel, assistant_texts, orders
from tests.peers import model_response, wire_of
from tests.waiting import eventually_async
from tests.wires import Body, MadeCall, Wire, anthropic, openai, responses

type Fault = Literal["kill", "kill when shown", "leave", "cut", "end", "error"]
"""``kill``: the proxy dies at once; ``kill when shown``: once the runner has all that it may have.
``leave``: the runner closes its connection. ``cut``: the provider's connection breaks. ``end``: its
stream ends like one that is whole. ``error``: it says an error.
"""
type Point = Literal["nothing", "opening", "thinking", "text", "call", "arguments", "end", "over"]
"""The event behind which a stream stops: ``nothing`` is the head, ``end`` the last but one event,
``over`` the last one.
"""
_KINDS = {
    "message_start": "opening",
    "thinking_delta": "thinking",
    "text_delta": "text",
    "input_json_delta": "arguments",
    "response.in_progress": "opening",
    "response.reasoning_summary_text.delta": "thinking",
    "response.output_text.delta": "text",
    "response.function_call_arguments.delta": "arguments",
}


def compact(text: str) -> str:
    """Return a text without white space: a protocol may put some between two replies."""
    return "".join(text.split())


@dataclass
class Stop:
    """The place at which the stream of a reply stops, and the way, as long as it is armed."""

    reply: int
    point: Point
    fault: Fault
    act: Callable[[], None]
    """Kills the proxy, or closes the runner's connection."""
    has_heard: Callable[[str], bool]
    """Returns whether the runner has this text of the reply."""
    is_passing: bool
    """True for an error that may pass; False for a request that is refused."""
    is_once: bool
    """True for a provider that fails once; else it fails as often as the proxy asks again."""
    is_armed: bool = True
    times: int = 0
    has_acted: bool = False

    def place(self, events: Sequence[bytes]) -> int:
        """Return the number of events that are sent."""
        if self.point in {"nothing", "end", "over"}:
            return {"nothing": 0, "end": len(events) - 1, "over": len(events)}[self.point]
        places = [at for at, event in enumerate(events, 1) if event_kind(event) == self.point]
        return places[1] if self.point == "text" else places[0]


def data_of(event: bytes) -> Body:
    """Return the data of an event; {} if it has none, or no JSON object."""
    for line in event.split(b"\n"):
        if line.startswith(b"data: {"):
            data: Body = json.loads(line.removeprefix(b"data: "))
            return data
    return {}


def event_kind(event: bytes) -> str:
    """Return what an event of a provider's stream is: a point, or "" for any other event."""
    data = data_of(event)
    if "choices" in data:
        return _chunk_kind(data["choices"])
    begins = data.get("content_block") or data.get("item") or {}
    is_call = begins.get("type") in {"tool_use", "function_call"}
    if is_call and data["type"] in {"content_block_start", "response.output_item.added"}:
        return "call"
    delta = data.get("delta")
    kind = delta.get("type") if isinstance(delta, dict) else data.get("type")
    return _KINDS.get(kind or "", "")


def _chunk_kind(choices: Sequence[Body]) -> str:
    delta = choices[0]["delta"] if choices else {}
    if "role" in delta:
        return "opening"
    if "tool_calls" in delta:
        return "call" if "id" in delta["tool_calls"][0] else "arguments"
    return {"reasoning_content": "thinking", "content": "text"}.get(next(iter(delta), ""), "")


def text_of(event: bytes) -> str:
    """Return the visible text of an event."""
    if event_kind(event) != "text":
        return ""
    data = data_of(event)
    if "choices" in data:
        return str(data["choices"][0]["delta"]["content"])
    delta = data["delta"]
    return str(delta["text"] if isinstance(delta, dict) else delta)


def error_event(wire: Wire, *, is_passing: bool) -> bytes:
    """Return a provider's error in its stream."""
    message = "The model has failed."
    if wire is openai:
        kind = "server_error" if is_passing else "invalid_request_error"
        error = {"message": message, "type": kind, "param": None, "code": kind}
        return b"data: %b\n\ndata: [DONE]\n\n" % json.dumps({"error": error}).encode()
    if wire is anthropic:
        kind = "api_error" if is_passing else "invalid_request_error"
        event: Body = {"type": "error", "error": {"type": kind, "message": message}}
    else:
        code = "server_error" if is_passing else "invalid_prompt"
        event = {"type": "error", "code": code, "message": message, "param": None}
        event["sequence_number"] = 99
    return b"event: error\ndata: %b\n\n" % json.dumps(event).encode()


def outputs_of(items: Sequence[Body]) -> set[str]:
    """Return the ids of the calls whose outputs are among these items."""
    return {item["call_id"] for item in items if item.get("type") == "function_call_output"}


@dataclass
class UnheardResponses(AppendingResponses):
    """The responses that the provider keeps, without those that a dead client was sent."""

    def take_back(self, request: Body, port: int) -> None:
        super().take_back(request, port)
        name = request.get("conversation") or ""
        last = self._last.get(name)
        if last is None or last.port == port:
            return

        said = self.conversations[name][-last.items :]
        made = {item["call_id"] for item in said if item.get("type") == "function_call"}
        answered = outputs_of(request["input"])
        is_heard = made <= answered and outputs_of(last.sent).isdisjoint(answered)
        if not is_heard:
            self.conversations[name] = self.conversations[name][: -last.items]
            del self._last[name]


@dataclass
class StoppingModel(PlanModel):
    """The model of all trials."""

    kept: AppendingResponses = field(default_factory=UnheardResponses)
    stops: dict[str, Stop] = field(default_factory=dict)
    """By the name of the turn."""
    thinking: set[str] = field(default_factory=set)
    """The names of turns in which the model thinks before it speaks."""
    tries: dict[str, dict[int, list[str]]] = field(default_factory=lambda: defaultdict(dict))
    """The texts of each reply, one for each time that it was asked for, by turn and number."""
    left: set[str] = field(default_factory=set)
    """The names of turns whose runner went on without their answer."""

    async def __call__(self, request: Request) -> Response:
        wire = wire_of(request.url.path)
        body = await request.json()
        said = self._said(wire, body)
        name = said[-1].partition(" ")[0]
        stop = self.stops.get(name)
        if stop is not None and stop.fault in {"leave", "kill when shown"} and stop.times:
            # Else more may be said, and the whole answer delivered, before it is acted.
            await eventually_async(lambda: stop.has_acted, f"{stop.fault} has happened")
        try:
            port = request.client.port if request.client else 0
            made, keep = self._answer(wire, body, port)
        except Exception:  # noqa: BLE001 - recorded for the test, which itself gets only an error response
            self.books.faults[name.partition(".")[0]].append(traceback.format_exc())
            return JSONResponse(wire.error("fault", "see the books"), status_code=400)

        if stop is None or not stop.is_armed or len(self.tries[name]) != stop.reply:
            keep()
            return model_response(wire, made, stream=True)

        stop.times += 1
        return StreamingResponse(
            self._stopping(stop, wire, made, keep, request), media_type="text/event-stream"
        )

    async def _stopping(
        self, stop: Stop, wire: Wire, made: bytes, keep: Callable[[], None], request: Request
    ) -> AsyncIterator[bytes]:
        events = [event + b"\n\n" for event in wire.streamed(made).split(b"\n\n")[:-1]]
        place = stop.place(events)
        if stop.point == "over":
            keep()
        for event in events[:place]:
            yield event

        if stop.is_once:
            stop.is_armed = False
        match stop.fault:
            case "cut":
                raise ConnectionResetError
            case "end":
                return
            case "error":
                yield error_event(wire, is_passing=stop.is_passing)
                return
            case "leave" | "kill when shown":
                text = "".join(map(text_of, events[:place]))
                await eventually_async(lambda: stop.has_heard(text), f"the runner has {text!r}")

        stop.is_armed = False
        stop.act()
        stop.has_acted = True
        if stop.point != "over":
            while (await request.receive())["type"] != "http.disconnect":
                pass

    def _said(self, wire: Wire, body: Body) -> list[str]:
        """Return the first line of the users' words: runners add others when they ask again."""
        return [words.partition("\n")[0] for words in super()._said(wire, body)]

    def _reply(self, wire: Wire, body: Body, said: Sequence[str]) -> bytes:
        wire.check(body, self.replies)
        transcript = body[wire.TRANSCRIPT]
        parts = wire.parts(transcript)
        rounds = parts[len(parts) - parts[::-1].index("user") :].count("assistant")
        self._check_calls(wire, transcript, said, rounds)
        self._check_words(transcript, said, rounds)

        name, plan = said[-1].split(" ", 1)
        number = rounds + 1
        wanted = json.loads(plan)
        kinds = wanted[rounds] if rounds < len(wanted) else []
        calls = [self._call(kind, f"{name}.{number}.{at}") for at, kind in enumerate(kinds)]

        tries = self.tries[name].setdefault(number, [])
        what = f"Step {number}" if calls else "The end"
        text = f"{what} of {name} in try {len(tries) + 1}{'. ' if calls else '.'}"
        tries.append(text)
        thought = f"I think about {text}" if name in self.thinking else ""
        made = self._write_with(wire, text, calls, thought, body)
        self.replies |= {call.id: made for call in calls}
        return made

    def _write_with(
        self, wire: Wire, text: str, calls: list[MadeCall], thought: str, body: Body
    ) -> bytes:
        if wire is not responses:
            return wire.reply(text, calls, {}, thought=thought)

        number = next(self._numbers)
        output = [{**responses.reasoning(thought), "id": f"rs_{number}"}] if thought else []
        output.append(responses.message(text, f"msg_{number}"))
        output += [responses.function_call(call.id, call.name, call.arguments) for call in calls]
        is_stored = body.get("store") is not False
        response = responses.response(*output, id=f"resp_{number}", store=is_stored)
        return json.dumps(response).encode()

    def _check_calls(
        self, wire: Wire, transcript: Sequence[Body], said: Sequence[str], rounds: int
    ) -> None:
        """Check that the request has every hidden call of every turn once, with the same bytes as
        before.
        """
        self._check_told(
            wire, transcript, [self.made[call_id] for call_id, _ in wire.answers(transcript)]
        )
        told = iter(self.made[call_id] for call_id, _ in wire.answers(transcript))
        by_turn = {
            turn: list(group)
            for turn, group in itertools.groupby(told, lambda order: order.rsplit(".", 2)[0])
        }
        names = [words.partition(" ")[0] for words in said]
        assert list(by_turn) == [name for name in names if name in by_turn]

        for words in said:
            name = words.partition(" ")[0]
            found = by_turn.get(name, [])
            if name in self.left:
                whole_rounds = [
                    orders(words, number)
                    for number in range(len(json.loads(words.split(" ", 1)[1])) + 1)
                ]
                heard = [order for order in orders(words) if self._was_heard(order)]
                assert found in whole_rounds, f"{found} of {words}"
                assert set(heard) <= set(found), f"{heard} was done, and told {found}"
            else:
                expected = orders(words, rounds if words == said[-1] else None)
                assert found == expected, f"{found} in place of {expected}"

    def _was_heard(self, order: str) -> bool:
        return order in self.books.writes or order in self.books.reads

    def _check_words(self, transcript: Sequence[Body], said: Sequence[str], rounds: int) -> None:
        """Check that the request has each word of earlier answers and replies once."""
        names = [words.partition(" ")[0] for words in said]
        texts = assistant_texts(transcript)[1:]
        for name, text in zip(names[:-1], texts[:-1], strict=True):
            expected = self._words_of(name)
            assert text in expected, f"{text!r}, not {expected}"

        so_far = "".join(self.tries[names[-1]][number][-1] for number in range(1, rounds + 1))
        assert texts[-1] == compact(so_far), f"{texts[-1]!r}, not {so_far!r}"

    def _words_of(self, name: str) -> list[str]:
        """Return what the request may have of the words of an earlier turn.

        Of a turn that was left a provider's conversation has the replies that were whole.
        """
        if name in self.books.answers:
            return [self.books.answers[name]]
        tries = self.tries[name]
        said = [compact(tries[number][-1]) for number in sorted(tries)]
        return [*itertools.accumulate(said, initial="")]
