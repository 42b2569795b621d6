"""Streams of several replies, as a live turn writes them, read by every SDK of Anthropic's API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from claw_mediate.dialects.anthropic.stream import MessageWriter
from tests.mediate.cut_message import Event
from tests.mediate.live_message import ASKED, OWN, fed, live, told
from tests.sdks.hearing import ANTHROPIC, Job, hear
from tests.wires.anthropic import message, tool_use

THINKING = {"type": "thinking", "thinking": "hm", "signature": "SIG"}
SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_result", "url": "http://u", "title": "t", "encrypted_content": "E"}
RESULT = {
    "type": "web_search_tool_result",
    "tool_use_id": "srv_1",
    "content": [FOUND | {"page_age": None}],
}
CITATION = {
    "type": "web_search_result_location",
    "url": "http://u",
    "title": "t",
    "encrypted_index": "I",
    "cited_text": "c",
}
CITED = {"type": "text", "text": "It is 5.", "citations": [CITATION]}
MANAGED = tool_use("toolu_1", "desk__get", {})
NATIVE = tool_use("toolu_2", "shell", {"command": "ls"})
PREAMBLE = message(THINKING, "Let me look.", MANAGED)
COUNTED = {"input_tokens": 77, "output_tokens": 30}


def without_usage() -> list[Event]:
    start = {"type": "message_start", "message": {**message(), "usage": None}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    return [start, end, {"type": "message_stop"}]


def with_beats() -> bytes:
    writer = MessageWriter(ASKED, OWN)
    beats = writer.beat("claw", "comment") + writer.beat("claw", "native")
    events = told(message(THINKING, "It is 5.", usage=COUNTED))
    return beats + b"".join(writer.write(event) + beats for event in events)


def two_rounds(*last: Any) -> bytes:
    return live(told(PREAMBLE), last=told(message(*last, id="msg_2", usage=COUNTED)))[1]


STREAMS: dict[str, bytes] = {
    "two rounds": two_rounds(THINKING | {"thinking": "so", "signature": "SIG2"}, "It is 5."),
    "hosted search": two_rounds(SEARCH, RESULT, CITED),
    "a call of the runner's": two_rounds("Reading.", NATIVE),
    "beats": with_beats(),
    "an empty reply": live(last=told(message(usage=COUNTED)))[1],
    "no usage": live(last=fed(without_usage()))[1],
}
HEARD: dict[str, tuple[str, str, list[str]]] = {
    "two rounds": ("Let me look.It is 5.", "hmso", []),
    "hosted search": ("Let me look.It is 5.", "hm", []),
    "a call of the runner's": ("Let me look.Reading.", "hm", ["shell"]),
    "beats": ("It is 5.", "hm", []),
    "an empty reply": ("", "", []),
    "no usage": ("", "", []),
}
"""The parts that an SDK reads of each stream: the text, the thinking, the names of calls."""


class StreamServer(ThreadingHTTPServer):
    """An HTTP server for all SDKs at once: with ``socketserver``'s backlog of five, connections
    that come together may be refused.
    """

    request_queue_size = 128


@contextmanager
def served() -> Iterator[str]:
    """Serve each stream under the path of its place in ``STREAMS``."""
    streams = [*STREAMS.values()]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            body = streams[int(self.path.split("/")[1])]
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    with StreamServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.requirement("live:anthropic-lifecycle")
def test_every_sdk_reads_what_several_replies_have_shown() -> None:
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    asked["tools"] = [{"name": "shell", "input_schema": {"type": "object"}}]
    with served() as base:
        places = [(sdk, name, place) for sdk in ANTHROPIC for place, name in enumerate(STREAMS)]
        heard = hear([Job(sdk, f"{base}/{place}", "k", asked) for sdk, _, place in places])

    for (sdk, name, _), reading in zip(places, heard, strict=True):
        assert "error" not in reading, (sdk, name, reading)
        # Vercel's SDK lists the tools that the provider runs, too.
        names = [call["name"] for call in reading["calls"] if call["name"] != "web_search"]
        said = reading["text"] or "", reading["reasoning"] or "", names
        assert said == HEARD[name], (sdk, name, reading)

        if name != "no usage":
            count = reading["usage"]
            assert count[1] == COUNTED["output_tokens"], (sdk, name, count)
            # This reading adds up as runners without the SDK's helper do: from the start, the input.
            if sdk != "anthropic-py create":
                assert count[0] == COUNTED["input_tokens"], (sdk, name, count)
