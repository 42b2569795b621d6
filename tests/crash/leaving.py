"""A runner that reads a stream event by event, may leave in the middle of it, and keeps what it has
of an answer that broke off.
"""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import suppress
from typing import Literal, NamedTuple

from tests.crash.stopping import data_of, text_of
from tests.proxy.pod import Pod
from tests.wires import Body, Wire, anthropic, openai, responses

type Outcome = Literal["whole", "cut", "error", "status"]
_SECONDS = 60.0


class Answer(NamedTuple):
    """The part of an answer that its runner has."""

    wire: Wire
    outcome: Outcome
    stream: bytes
    """All of it, or the body of a response that is none."""

    @property
    def text(self) -> str:
        return "".join(map(text_of, self.stream.split(b"\n\n")))

    @property
    def body(self) -> bytes:
        """Return the response that a strict client makes of a whole stream."""
        return self.wire.assembled(self.stream)

    def pieces(self, *, finished: bool) -> list[Body]:
        """Return the blocks or items of an answer that broke off, as a client has them.

        ``finished``: only those whose end it has seen. An unfinished thought has no signature, and
        no runner keeps it.
        """
        pieces: dict[int, Body] = {}
        ended: set[int] = set()
        for event in self.stream.split(b"\n\n"):
            data = data_of(event)
            index = data.get("index", data.get("output_index", 0))
            kind = data.get("type", "").removeprefix("response.")
            if kind in {"content_block_start", "output_item.added"}:
                pieces[index] = data.get("content_block") or data["item"]
            elif kind == "output_item.done":
                pieces[index] = data["item"]
                ended.add(index)
            elif kind == "content_block_stop":
                ended.add(index)
            elif kind == "content_block_delta":
                _grow(pieces[index], data["delta"])
            elif kind == "output_text.delta":
                _grow_item(pieces[index], data["delta"])
        return [
            piece
            for index, piece in pieces.items()
            if index in ended or (not finished and has_text(piece))
        ]


def _grow(block: Body, delta: Body) -> None:
    for name in ("text", "thinking", "signature"):
        if name in delta:
            block[name] = block.get(name, "") + delta[name]


def _grow_item(item: Body, text: str) -> None:
    if not item["content"]:
        item["content"] = [{"type": "output_text", "text": "", "annotations": []}]
    item["content"][0]["text"] += text


def has_text(piece: Body) -> bool:
    """Return whether a block or item has visible text."""
    if piece["type"] == "message":
        return any(part.get("text", "").strip() for part in piece["content"])
    return bool(piece["type"] == "text" and piece["text"].strip())


class LeavingRunner:
    """A runner, whose requests go to one proxy."""

    def __init__(self, pod: Pod, wire: Wire, session: str) -> None:
        self._pod = pod
        self._wire = wire
        self._headers = {"content-type": "application/json"}
        if wire is anthropic:
            self._headers |= {"x-api-key": pod.token(), "anthropic-version": "2023-06-01"}
        else:
            self._headers["authorization"] = f"Bearer {pod.token()}"
        if session:
            self._headers["x-session-id"] = session
        self._socket: socket.socket | None = None
        self.heard = ""
        """The text of the stream so far."""

    def ask(self, body: Body) -> Answer:
        """Send a request, and read the answer as far as it comes."""
        self.heard = ""
        connection = http.client.HTTPConnection("127.0.0.1", self._pod.port, timeout=_SECONDS)
        stream = b""
        try:
            connection.connect()
            self._socket = connection.sock
            connection.request("POST", self._wire.PATH, json.dumps(body).encode(), self._headers)
            response = connection.getresponse()
            is_stream = response.headers.get("content-type") == "text/event-stream"
            while chunk := response.read1(1 << 16):
                read = stream.rpartition(b"\n\n")[0]
                stream += chunk
                new = stream.rpartition(b"\n\n")[0][len(read) :]
                self.heard += "".join(map(text_of, new.split(b"\n\n")))
        except (OSError, http.client.HTTPException):
            return Answer(self._wire, "cut", stream)
        finally:
            self._socket = None
            connection.close()

        if not is_stream:
            return Answer(self._wire, "status", stream)
        return Answer(self._wire, "error" if self._wire.stream_error(stream) else "whole", stream)

    def has_heard(self, text: str) -> bool:
        """Return whether this text is the last one that the runner has."""
        return self.heard.endswith(text)

    def leave(self) -> None:
        """Close the connection of the answer that is being read."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def message(wire: Wire, text: str) -> Body:
    """Return an assistant's message with this text."""
    if wire is responses:
        return {"items": [{"role": "assistant", "content": text}]}
    return {"role": "assistant", "content": text}


def partial_message(answer: Answer, *, finished: bool) -> Body | None:
    """Return what a runner makes of an answer that broke off; None if it has nothing of it."""
    if answer.outcome == "status":
        return None
    if answer.wire is openai:
        return message(openai, answer.text) if answer.text.strip() else None
    pieces = answer.pieces(finished=finished)
    if not any(map(has_text, pieces)):
        return None
    return (
        {"items": pieces} if answer.wire is responses else {"role": "assistant", "content": pieces}
    )
