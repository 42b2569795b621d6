"""Runners that report each piece of a live answer when it comes.

    runner = LiveRunner.start(pod, "anthropic stream", body)
    runner.hears("Let me ")                  waits until that, and no more, is all of its text
    runner.outcome()                         what its SDK put together, as the API would say it

Each has a thread of its own, those of JavaScript a process of node. A test releases the provider's
next event when the runner has reported the last one, so nothing is read ahead and no time counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import anthropic
import openai
from starlette.requests import Request

from tests.peers import Answer, GatedReply, Reply
from tests.proxy.frames import FrameRunner
from tests.proxy.pod import Pod
from tests.sdks.hearing import JAVASCRIPT, install
from tests.waiting import eventually
from tests.wires import Wire
from tests.wires import anthropic as messages_wire
from tests.wires import openai as chat_wire
from tests.wires import responses as responses_wire
from tests.wires.parts import data_of, word_of

type Body = dict[str, Any]
type Header = tuple[str, str]
type Say = Callable[[str], None]
WIRES: dict[str, Wire] = {
    "chat": chat_wire,
    "anthropic": messages_wire,
    "responses": responses_wire,
}


# The SDKs of Python


def _chat_create(pod: Pod, body: Body, say: Say) -> Body:
    chunks = []
    with pod.client().chat.completions.create(**body, stream=True) as stream:
        for chunk in stream:
            chunks.append(chunk)
            say(word_of(chunk.model_dump()))
    lines = [f"data: {chunk.model_dump_json(exclude_unset=True)}\n\n" for chunk in chunks]
    whole: Body = json.loads(chat_wire.assembled("".join([*lines, "data: [DONE]\n\n"]).encode()))
    return whole


def _chat_stream(pod: Pod, body: Body, say: Say) -> Body:
    with pod.client().chat.completions.stream(**body) as stream:
        for event in stream:
            if event.type == "content.delta":
                say(event.delta)
        return stream.get_final_completion().model_dump(exclude_unset=True, warnings=False)


def _anthropic_create(pod: Pod, body: Body, say: Say) -> Body:
    events = []
    with pod.claude().messages.create(**body, stream=True) as stream:
        for event in stream:
            events.append(event.model_dump_json(exclude_unset=True))
            say(word_of(json.loads(events[-1])))
    lines = [f"event: {json.loads(event)['type']}\ndata: {event}\n\n" for event in events]
    whole: Body = json.loads(messages_wire.assembled("".join(lines).encode()))
    return whole


def _anthropic_stream(pod: Pod, body: Body, say: Say) -> Body:
    with pod.claude().messages.stream(**body) as stream:
        for event in stream:
            if event.type == "text":
                say(event.text)
        return stream.get_final_message().model_dump(exclude_unset=True, warnings=False)


def _responses_create(pod: Pod, body: Body, say: Say) -> Body:
    last: Any = None
    with pod.client().responses.create(**body, stream=True) as stream:
        for last in stream:
            if last.type == "response.output_text.delta":
                say(last.delta)
    return last.response.model_dump(exclude_unset=True, warnings=False)  # type: ignore[no-any-return]


def _responses_stream(pod: Pod, body: Body, say: Say) -> Body:
    with pod.client().responses.stream(**body) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                say(event.delta)
        return stream.get_final_response().model_dump(exclude_unset=True, warnings=False)


async def _chat_async(pod: Pod, body: Body, say: Say) -> Body:
    async with (
        openai.AsyncOpenAI(**_options(pod, "/v1")) as client,
        client.chat.completions.stream(**body) as stream,
    ):
        async for event in stream:
            if event.type == "content.delta":
                say(event.delta)
        made = await stream.get_final_completion()
    return made.model_dump(exclude_unset=True, warnings=False)


async def _anthropic_async(pod: Pod, body: Body, say: Say) -> Body:
    async with (
        anthropic.AsyncAnthropic(**_options(pod)) as client,
        client.messages.stream(**body) as stream,
    ):
        async for event in stream:
            if event.type == "text":
                say(event.text)
        made = await stream.get_final_message()
    return made.model_dump(exclude_unset=True, warnings=False)


async def _responses_async(pod: Pod, body: Body, say: Say) -> Body:
    async with (
        openai.AsyncOpenAI(**_options(pod, "/v1")) as client,
        client.responses.stream(**body) as stream,
    ):
        async for event in stream:
            if event.type == "response.output_text.delta":
                say(event.delta)
        made = await stream.get_final_response()
    return made.model_dump(exclude_unset=True, warnings=False)


def _options(pod: Pod, path: str = "") -> dict[str, Any]:
    return {
        "base_url": pod.url + path,
        "api_key": pod.token(),
        "max_retries": 0,
        "timeout": 60,
    }


def _in_loop(run: Callable[[Pod, Body, Say], Awaitable[Body]]) -> Callable[[Pod, Body, Say], Body]:
    async def alone(pod: Pod, body: Body, say: Say) -> Body:
        return await run(pod, body, say)

    return lambda pod, body, say: asyncio.run(alone(pod, body, say))


def _in_node(sdk: str) -> Callable[[Pod, Body, Say], Body]:
    def run(pod: Pod, body: Body, say: Say) -> Body:
        job = {"sdk": sdk, "base": pod.url, "key": pod.token(), "body": body}
        with subprocess.Popen(
            ["node", JAVASCRIPT / "live.mjs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as node:
            assert node.stdin is not None
            assert node.stdout is not None
            node.stdin.write(json.dumps(job).encode())
            node.stdin.close()
            told: Body = {}
            for line in node.stdout:
                told = json.loads(line)
                say(told.get("said", ""))
        if "error" in told:
            raise RuntimeError(told["error"])
        whole: Body = told["whole"]
        return whole

    return run


_RUNS: dict[str, Callable[[Pod, Body, Say], Body]] = {
    "chat create": _chat_create,
    "chat stream": _chat_stream,
    "chat async": _in_loop(_chat_async),
    "chat js": _in_node("openai-js stream"),
    "anthropic create": _anthropic_create,
    "anthropic stream": _anthropic_stream,
    "anthropic async": _in_loop(_anthropic_async),
    "anthropic js": _in_node("anthropic-js stream"),
    "responses create": _responses_create,
    "responses stream": _responses_stream,
    "responses async": _in_loop(_responses_async),
    "responses js": _in_node("responses-js stream"),
}
RUNNERS = tuple(_RUNS)


@dataclass
class LiveRunner:
    """A runner whose answer comes."""

    wire: Wire
    text: str = ""
    """All visible text that it has so far."""
    whole: Body | None = None
    error: Exception | None = None
    _thread: threading.Thread | None = None

    @classmethod
    def start(cls, pod: Pod, name: str, body: Body) -> LiveRunner:
        """Let an SDK of ``RUNNERS`` send the request, which has no ``stream`` of its own."""
        wire, _, sdk = name.partition(" ")
        if sdk == "js":
            install()
        runner = cls(WIRES[wire])
        runner._thread = threading.Thread(
            target=runner._run, args=[_RUNS[name], pod, body], daemon=True
        )
        runner._thread.start()
        return runner

    def _run(self, run: Callable[[Pod, Body, Say], Body], pod: Pod, body: Body) -> None:
        try:
            self.whole = run(pod, body, self._say)
        except Exception as error:  # noqa: BLE001 - any error that a runner could get
            self.error = error

    def _say(self, piece: str) -> None:
        self.text += piece

    def hears(self, text: str) -> None:
        """Wait until the runner has all of this text; it must have no more."""

        def found() -> bool:
            assert self.error is None, self.error
            return len(self.text) >= len(text)

        eventually(found, f"the runner hears {text!r}, and not only {self.text!r}", pause=0.002)
        assert self.text == text

    def outcome(self) -> Body:
        """Return the whole answer, as the SDK has put it together."""
        assert self._thread is not None
        self._thread.join(timeout=60)
        assert self.error is None, self.error
        assert self.whole is not None, "the answer is over"
        return self.whole

    def failure(self) -> Exception:
        """Return the error that the SDK raised."""
        assert self._thread is not None
        self._thread.join(timeout=60)
        assert self.error is not None, self.whole
        return self.error


class RawRunner(LiveRunner):
    """A runner that keeps every byte of its answer, and how the body ended."""

    stream: bytes = b""
    status: int = 0
    headers: dict[str, str]
    ended: Literal["", "whole", "cut"] = ""
    fields: list[Header]
    """The headers of its request."""
    leave: Callable[[], None]
    """Closes the connection."""

    @classmethod
    def ask(
        cls,
        pod: Pod,
        wire: str,
        body: Body,
        version: str = "HTTP/1.1",
        *headers: Header,
        agent_id: str = "analyst",
    ) -> RawRunner:
        """Send the request, which is made one for a stream, over this version of HTTP.

        ``headers``: those besides the agent's credential.
        """
        runner = cls(WIRES[wire])
        runner.headers = {}
        runner.fields = [
            ("authorization", f"Bearer {pod.token(agent_id)}"),
            ("content-type", "application/json"),
            *headers,
        ]
        bodies = _over_http_2 if version == "HTTP/2" else _over_http_1
        parts = bodies(runner, pod, json.dumps({**body, "stream": True}).encode(), version)
        runner._thread = threading.Thread(target=runner._read, args=[parts], daemon=True)
        runner._thread.start()
        return runner

    def _read(self, parts: Iterator[bytes]) -> None:
        told = 0
        try:
            for part in parts:
                self.stream += part
                *events, _ = self.stream[told:].split(b"\n\n")
                for event in events:
                    told += len(event) + 2
                    self.text += word_of(data_of(event))
            self.ended = "whole"
        except (http.client.IncompleteRead, ConnectionError):
            self.ended = "cut"
        except Exception as error:  # noqa: BLE001 - it is raised where the test looks
            self.error = error

    def events(self) -> list[Body]:
        """Return the events so far, without keepalives that are comments."""
        found = [data_of(event) for event in self.stream.split(b"\n\n")]
        return [event for event in found if event]

    def end(self) -> str:
        """Wait for the end of the body; return how it ended."""
        assert self._thread is not None
        self._thread.join(timeout=60)
        assert self.error is None, self.error
        return self.ended


def _over_http_1(runner: RawRunner, pod: Pod, body: bytes, version: str) -> Iterator[bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", pod.port, timeout=60)
    if version == "HTTP/1.0":
        connection._http_vsn, connection._http_vsn_str = 10, version  # type: ignore[attr-defined]
    connection.request("POST", runner.wire.PATH, body, dict(runner.fields))
    assert connection.sock is not None
    runner.leave = partial(_shut, connection.sock)
    pod.clients.callback(connection.close)

    answer = connection.getresponse()
    runner.status, runner.headers = answer.status, dict(answer.getheaders())
    while part := answer.read1(1 << 16):
        yield part
    if not answer.isclosed():
        raise http.client.IncompleteRead(b"")


def _over_http_2(runner: RawRunner, pod: Pod, body: bytes, _version: str) -> Iterator[bytes]:
    host = "api.anthropic.com" if runner.wire is messages_wire else "api.openai.com"
    frames = FrameRunner(pod, host)
    pod.clients.callback(frames.peer.close)
    stream = frames.send("POST", runner.wire.PATH, runner.fields, [body])
    runner.leave = partial(_shut, frames.peer)

    def has_more(read: int) -> bool:
        return len(stream.body) > read or stream.ended or stream.reset

    read = 0
    while not (stream.ended or stream.reset):
        frames.read_until(partial(has_more, read))
        runner.status = int(stream.all(":status")[0])
        yield bytes(stream.body[read:])
        read = len(stream.body)
    if stream.reset:
        raise ConnectionResetError


def _shut(connection: socket.socket) -> None:
    """Close a connection that another thread reads."""
    with contextlib.suppress(OSError):  # it is closed already
        connection.shutdown(socket.SHUT_RDWR)


def is_opening(event: Body) -> bool:
    """Return True for the events with which a protocol opens a stream."""
    role = "role" in (event.get("choices") or [{}])[0].get("delta", {})
    return role or event.get("type") in {
        "message_start",
        "response.created",
        "response.in_progress",
    }


class BrokenReply(GatedReply):
    """A reply that goes no further than a word: its last events are ``end``, or its connection
    breaks there.

    ``word``: the last one that is said; "": no content at all.
    """

    def __init__(self, reply: Reply, word: str, *end: Body) -> None:
        super().__init__(reply, cut=not end)
        self._word = word
        self._end = end

    async def __call__(self, request: Request) -> Answer:
        answer = await super().__call__(request)
        told = [data_of(event) for event in self.events]
        if self._word:
            said = [word_of(each).strip() for each in told].index(self._word) + 1
        else:
            said = next(place for place, each in enumerate(told) if not is_opening(each))
        del self.events[said:]
        self.events += [_event(each) for each in self._end]
        return answer


def _event(document: Body) -> bytes:
    named = f"event: {document['type']}\n" if "type" in document else ""
    return f"{named}data: {json.dumps(document)}\n\n".encode()


@dataclass
class LivePlayback:
    """A scripted reply, played word by word to a runner that must have each before the next."""

    runner: LiveRunner
    glue: str = field(init=False)
    """The text between those of two replies."""

    def __post_init__(self) -> None:
        self.glue = "\n\n" if self.runner.wire is chat_wire else ""

    def words(self, gated: GatedReply) -> None:
        """Release all events of a reply, one by one; wait for each word."""
        assert gated.asked.wait(60), self.runner.error
        heard = self.runner.text
        if heard and not heard[-1].isspace():
            heard += self.glue
        for event in gated.events:
            gated.release()
            word = word_of(data_of(event))
            if word:
                heard += word
                self.runner.hears(heard)
