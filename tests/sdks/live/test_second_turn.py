"""The second turn of every SDK and framework behind a live one with a hidden round: at the proxy that
remembers the first, and at one that has lost its state.

Each is the client's own: its program sends back what its SDK kept of the answer.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import httpx2
import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests.once import make_once
from tests.peers import Peer, wire_of
from tests.sdks.hearing import ANTHROPIC, OPENAI, Heard, Job, hear, install
from tests.sdks.live.conftest import LivePod
from tests.sdks.live.model import CASES
from tests.sdks.responses.plays import IN_NODE, IN_PYTHON, SECONDS, run_plays
from tests.wires import Body, Wire, anthropic, openai, responses

type State = Literal["kept", "lost"]
STATES: tuple[State, ...] = ("kept", "lost")
TEXT = "".join(step.words for step in CASES["two"])
SDKS = (*OPENAI, "openai-js-7 stream", *ANTHROPIC)
IN_PROCESSES = {
    IN_PYTHON: (
        "openai-py events responses kept",
        "openai-py helper responses resend",
        "agents events responses kept",
        "agents events responses resend",
        "agents events chat kept",
        "langchain events responses resend",
        "langchain events chat kept",
        "pydantic-ai events responses resend",
        "pydantic-ai events chat kept",
    ),
    IN_NODE: (
        "openai-js helper responses kept",
        "openai-js events responses resend",
        "openai-js-7 events responses kept",
        "openai-js-7 helper responses resend",
        "ai-sdk events responses kept",
        "ai-sdk events responses resend",
    ),
}
"""Runners of plays: a name, its way of asking, the API, and who remembers (``MODES`` of plays)."""
CLIENTS = (*SDKS, *itertools.chain(*IN_PROCESSES.values()))
_LAST_ONLY = {"agents events responses kept", "agents events responses resend"}
"""Their result is the last message of several."""
_NUMBERS = itertools.count(1000)

pytestmark = [pytest.mark.long, pytest.mark.timeout(SECONDS)]


@dataclass(frozen=True)
class Conversation:
    """Two turns of one client, and the transcripts that the provider was sent."""

    said: list[str]
    errors: list[str]
    """Those of the client, and the rules of the provider that it broke."""
    path: str
    seen: list[bytes]
    """The messages of the first turn's last model call, in their bytes."""
    after: list[bytes]
    """Those of the second turn's."""
    read: list[Body]
    """The same, as the provider reads them: what they refer to in place of references."""


type Conversations = dict[tuple[str, State], Conversation]


class Relay(Peer):
    """A gateway that sends the second turn of a conversation to the proxy without state."""

    def __init__(self, live_pod: LivePod) -> None:
        super().__init__()
        self._pods = live_pod.pod.url, live_pod.other.url

    async def answer(self, request: Request) -> Response:
        content = await request.body()
        url = self._pods[b"case:again" in content] + request.url.path
        headers = {"authorization": request.headers["authorization"]}
        async with httpx2.AsyncClient(timeout=SECONDS) as client:
            answer = await client.post(url, content=content, headers=headers)
        return Response(
            answer.content, answer.status_code, media_type=answer.headers["content-type"]
        )


@pytest.fixture(scope="module")
def conversations(live_pod: LivePod, tmp_path_factory: pytest.TempPathFactory) -> Conversations:
    return make_once(
        tmp_path_factory, "second-turn", lambda: converse_all(live_pod, tmp_path_factory)
    )


def converse_all(live_pod: LivePod, folders: pytest.TempPathFactory) -> Conversations:
    install()
    install(".venv/runners/.installed")
    live_pod.model.refused.clear()
    relay = Relay(live_pod)
    relay.start()
    home = folders.mktemp("second-turn")
    try:
        with ThreadPoolExecutor(3) as pool:
            heard = pool.submit(hear_twice, live_pod)
            played = [
                pool.submit(play_all, live_pod, relay, command, runners, home)
                for command, runners in IN_PROCESSES.items()
            ]
        found = heard.result()
        for each in played:
            found |= each.result()
    finally:
        relay.stop()
    return found


def play_all(
    live_pod: LivePod, relay: Relay, command: Sequence[Any], runners: Sequence[str], home: Any
) -> Conversations:
    """Let each runner talk to the proxy, and by the relay to both proxies."""
    urls: dict[State, str] = {"kept": live_pod.pod.url, "lost": relay.url}
    cases = [(runner, state, next(_NUMBERS)) for runner in runners for state in STATES]
    plays = []
    for runner, state, number in cases:
        name, way, api, mode = runner.split()
        plays.append(
            {
                "runner": name,
                "way": way,
                "api": api,
                "mode": mode,
                "base": f"{urls[state]}/v1",
                "key": live_pod.pod.token(),
                "words": [f"case:two {number};", f"case:again {number};"],
            }
        )
    results = run_plays(command, plays, {"PATH": os.environ["PATH"], "HOME": str(home)}, home)
    found: Conversations = {}
    for (runner, state, number), result in zip(cases, results, strict=True):
        wire = openai if " chat " in runner else responses
        found[runner, state] = conversation(
            live_pod, wire, number, result["said"], result["errors"]
        )
    return found


def hear_twice(live_pod: LivePod) -> Conversations:
    """Let a program of each SDK send back what its SDK made of the first answer."""
    cases = [(sdk, state, next(_NUMBERS)) for sdk in SDKS for state in STATES]
    key = live_pod.pod.token()
    bodies = [body_of(sdk, f"case:two {number};") for sdk, _, number in cases]
    jobs = [
        Job(sdk, live_pod.pod.url, key, body)
        for (sdk, _, _), body in zip(cases, bodies, strict=True)
    ]
    first = hear(jobs)

    urls: dict[State, str] = {"kept": live_pod.pod.url, "lost": live_pod.other.url}
    again = []
    for (sdk, state, number), body, heard in zip(cases, bodies, first, strict=True):
        asks = {"role": "user", "content": f"case:again {number};"}
        messages = [*body["messages"], *kept_by(sdk, heard), asks]
        again.append(Job(sdk, urls[state], key, {**body, "messages": messages}))
    second = hear(again)

    found: Conversations = {}
    for (sdk, state, number), *turns in zip(cases, first, second, strict=True):
        wire = anthropic if sdk in ANTHROPIC else openai
        said = [heard["text"] for heard in turns if "error" not in heard]
        errors = [str(heard["error"]) for heard in turns if "error" in heard]
        found[sdk, state] = conversation(live_pod, wire, number, said, errors)
    return found


def body_of(sdk: str, words: str) -> Body:
    body: Body = {"model": "m", "messages": [{"role": "user", "content": words}]}
    if sdk in ANTHROPIC:
        body["max_tokens"] = 100
    elif not sdk.startswith("ai "):
        body["stream_options"] = {"include_usage": True}
    return body


def kept_by(sdk: str, heard: Heard) -> list[Body]:
    """Return the messages that a program keeps of an answer."""
    if sdk.startswith("ai "):
        return list(heard["whole"])
    if sdk in ANTHROPIC:
        blocks = [told(block) for block in heard["whole"]["content"]]
        return [{"role": "assistant", "content": blocks}]
    if "whole" not in heard or heard["whole"] is None:  # it was added up by hand
        return [{"role": "assistant", "content": heard["text"]}]
    message = told(heard["whole"]["choices"][0]["message"])
    message.pop("parsed", None)
    return [message]


def told(document: Body) -> Body:
    """Return the members that have a value: SDKs send no others."""
    return {name: value for name, value in document.items() if value is not None}


def conversation(
    live_pod: LivePod, wire: Wire, number: int, said: list[str], errors: list[str]
) -> Conversation:
    bodies = live_pod.model.bodies[str(number)]
    transcripts = [messages_of(body, wire.TRANSCRIPT) for body in bodies]
    refused = [each for each in live_pod.model.refused if each.startswith(f"{number}: ")]
    first = [each for body, each in zip(bodies, transcripts, strict=True) if b"again" not in body]
    after = transcripts[-1]
    read = [live_pod.model.resolved(json.loads(message)) for message in after]
    return Conversation(said, errors + refused, wire.PATH, first[-1], after, read)


def messages_of(body: bytes, name: str) -> list[bytes]:
    """Return the messages of a request in their own bytes."""
    document = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return [*map(bytes, msgspec.json.decode(document[name], type=list[msgspec.Raw]))]


@pytest.mark.requirement("live:second-turn")
@pytest.mark.parametrize("client", CLIENTS)
def test_the_second_turn_is_sent_behind_the_bytes_that_the_provider_saw_in_the_first(
    conversations: Conversations, client: str
) -> None:
    found = conversations[client, "kept"]
    assert found.errors == []
    answer = CASES["two"][-1].words if client in _LAST_ONLY else TEXT
    assert found.said == [answer, "I remember: balance."]
    assert found.after[: len(found.seen)] == found.seen
    assert_is_the_last_answer(found)


@pytest.mark.requirement("live:second-turn")
@pytest.mark.parametrize("client", CLIENTS)
def test_the_second_turn_of_a_proxy_that_lost_its_state_is_no_error(
    conversations: Conversations, client: str
) -> None:
    found = conversations[client, "lost"]
    assert found.errors == []
    assert found.said[1] == "I remember: ."
    read = json.dumps(found.read)
    assert [step.words for step in CASES["two"] if step.words.strip() not in read] == []


def assert_is_the_last_answer(found: Conversation) -> None:
    """Check that behind what the provider saw come its answer and the new words."""
    wire = wire_of(found.path)
    *answer, asks = found.read[len(found.seen) :]
    assert set(wire.parts(answer)) == {"assistant"}
    told = json.dumps(answer)
    first, last = (step.words.strip() for step in CASES["two"])
    assert last in told
    assert first not in told
    assert "case:again" in json.dumps(asks)
