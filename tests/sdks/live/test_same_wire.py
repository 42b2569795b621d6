"""The same bytes for every SDK and framework: a live turn with a hidden round, recorded once in each
protocol, has the same text, thought and end for all of them.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tests.once import make_once
from tests.peers import Provider, wire_of
from tests.sdks.hearing import ANTHROPIC, OPENAI, Heard, Job, hear, install
from tests.sdks.live.conftest import LivePod
from tests.sdks.live.model import CASES
from tests.sdks.responses.plays import IN_NODE, IN_PYTHON, SECONDS, run_plays
from tests.wires import Wire, anthropic, openai, responses

TEXT = "".join(step.words for step in CASES["two"])
THOUGHT = "".join(step.thought for step in CASES["two"])
PYTHON_RUNNERS = [
    ("openai-py", "events", "responses"),
    ("openai-py", "helper", "responses"),
    ("agents", "events", "responses"),
    ("agents", "events", "chat"),
    ("langchain", "events", "responses"),
    ("langchain", "events", "chat"),
    ("langchain", "events", "anthropic"),
    ("pydantic-ai", "events", "responses"),
    ("pydantic-ai", "events", "chat"),
    ("pydantic-ai", "events", "anthropic"),
]
NODE_RUNNERS = [
    ("openai-js", "events", "responses"),
    ("openai-js", "helper", "responses"),
    ("openai-js-7", "events", "responses"),
    ("openai-js-7", "helper", "responses"),
    ("ai-sdk", "events", "responses"),
]
SDKS = (*OPENAI, "openai-js-7 stream", *ANTHROPIC)
_LAST_ONLY = {"agents events responses"}
"""Its result is the last message of several."""
_LAST_THOUGHT = {"openai-js stream", "openai-js-7 stream"}
"""It keeps the last piece of a member that it does not know, of any stream."""
_PIECE = 64

pytestmark = [pytest.mark.long, pytest.mark.timeout(SECONDS)]

type Streams = dict[str, bytes]
"""The recorded stream of each protocol, by its path."""


@pytest.fixture(scope="module")
def recorded(live_pod: LivePod) -> Streams:
    return {wire.PATH: record(live_pod, wire) for wire in (openai, anthropic, responses)}


def record(live_pod: LivePod, wire: Wire) -> bytes:
    """Return the stream of a live turn with a hidden round, as it was on the wire."""
    body = wire.request([wire.user("case:two 0;")], ["shell"], stream=True, more={})
    headers = {"authorization": f"Bearer {live_pod.pod.token()}"}
    answer = httpx2.post(live_pod.pod.url + wire.PATH, json=body, headers=headers, timeout=60)
    assert answer.status_code == 200
    return answer.content


@pytest.fixture(scope="module")
def readings(recorded: Streams, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Heard]:
    return make_once(tmp_path_factory, "same-wire", lambda: read_all(recorded, tmp_path_factory))


def read_all(recorded: Streams, folders: pytest.TempPathFactory) -> dict[str, Heard]:
    """Return what each SDK and framework reads of the recorded streams."""

    async def replay(request: Request) -> Response:
        stream = recorded[wire_of(request.url.path).PATH]
        return StreamingResponse(pieces(stream), media_type="text/event-stream")

    install()
    install(".venv/runners/.installed")
    server = Provider(model=replay)
    server.start()
    try:
        home = folders.mktemp("same-wire")
        plays = [
            [play(each, server.url) for each in runners]
            for runners in (NODE_RUNNERS, PYTHON_RUNNERS)
        ]
        environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
        jobs = [job(sdk, server.url) for sdk in SDKS]
        with ThreadPoolExecutor(3) as pool:
            heard = pool.submit(hear, jobs)
            played = [
                pool.submit(run_plays, command, some, environment, home)
                for command, some in zip((IN_NODE, IN_PYTHON), plays, strict=True)
            ]
        found = {each.sdk: said for each, said in zip(jobs, heard.result(), strict=True)}
        for runners, results in zip((NODE_RUNNERS, PYTHON_RUNNERS), played, strict=True):
            found |= {
                " ".join(runner): said
                for runner, said in zip(runners, results.result(), strict=True)
            }
        return found
    finally:
        server.stop()


async def pieces(stream: bytes) -> AsyncIterator[bytes]:
    """Yield a stream in pieces that end anywhere."""
    for place in range(0, len(stream), _PIECE):
        yield stream[place : place + _PIECE]


def play(runner: tuple[str, str, str], url: str) -> dict[str, Any]:
    name, way, api = runner
    return {
        "runner": name,
        "way": way,
        "api": api,
        "mode": "kept",
        "base": f"{url}/v1",
        "key": "k",
        "words": ["What have I?"],
    }


def job(sdk: str, url: str) -> Job:
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "What have I?"}]}
    if sdk in ANTHROPIC:
        body["max_tokens"] = 100
    elif not sdk.startswith("ai "):
        body["stream_options"] = {"include_usage": True}
    return Job(sdk, url, "k", body)


@pytest.mark.requirement("live:same-wire")
@pytest.mark.parametrize("wire", [openai, anthropic, responses], ids=lambda wire: wire.PATH)
def test_the_strictest_reader_finds_the_whole_turn_and_nothing_of_its_hidden_call(
    recorded: Streams, wire: Wire
) -> None:
    stream = recorded[wire.PATH]
    said = wire.said(wire.assembled(stream))
    assert (said.text, said.calls) == (TEXT, ())
    assert b"desk__" not in stream


@pytest.mark.requirement("live:same-wire")
@pytest.mark.parametrize("sdk", SDKS)
def test_every_sdk_reads_the_same_turn_of_the_same_bytes(
    readings: dict[str, Heard], sdk: str
) -> None:
    heard = readings[sdk]
    assert "error" not in heard
    assert (heard["text"], heard["calls"]) == (TEXT, [])
    thought = heard["reasoning"]
    assert THOUGHT.endswith(thought) if sdk in _LAST_THOUGHT else thought == THOUGHT
    assert heard["finish"] in {"stop", "end_turn"}
    assert heard["usage"] == [10, 10]


@pytest.mark.requirement("live:same-wire")
@pytest.mark.parametrize("runner", [" ".join(each) for each in (*PYTHON_RUNNERS, *NODE_RUNNERS)])
def test_every_framework_reads_the_same_turn_of_the_same_bytes(
    readings: dict[str, Heard], runner: str
) -> None:
    heard = readings[runner]
    assert heard["errors"] == []
    expected = CASES["two"][-1].words if runner in _LAST_ONLY else TEXT
    assert heard["said"] == [expected]
