"""Edge cases of live turns, each through a whole turn (docs/spec/live.md). The numbers are those of
its section 12.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from claw_contract.secret import DOTS
from claw_mediate.core.http import RunnerResponse
from claw_mediate.settings import KeepaliveKind
from tests.turns.desk import TERMINAL_TOOL, WIRES, Desk, opened, tool
from tests.turns.retrying import until_called
from tests.turns.scripted import Thought
from tests.wires import Body, ReplyContent, anthropic, openai

NAMES = ("openai", "anthropic", "responses")


@pytest.fixture(params=NAMES)
async def live(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """Yield a desk for each dialect, whose agent's streams are live."""
    async with opened(Desk(tmp_path, WIRES[request.param], stream=True, live=True)) as desk:
        yield desk


@pytest.fixture
async def gpt(tmp_path: Path) -> AsyncIterator[Desk]:
    async with opened(Desk(tmp_path, openai, stream=True, live=True)) as desk:
        yield desk


@pytest.fixture
async def claude(tmp_path: Path) -> AsyncIterator[Desk]:
    async with opened(Desk(tmp_path, anthropic, stream=True, live=True)) as desk:
        yield desk


def name_of(desk: Desk) -> str:
    return next(name for name, wire in WIRES.items() if wire is desk.wire)


def joined(desk: Desk, *texts: str) -> str:
    """Return texts of several replies as a protocol joins them."""
    return ("\n\n" if desk.wire is openai else "").join(texts)


def without_usage(stream: bytes) -> bytes:
    """Return a stream whose provider says nothing of its usage."""
    events: list[bytes] = []
    for event in stream.split(b"\n\n")[:-1]:
        head, mark, data = event.partition(b"data: ")
        if data == b"[DONE]":
            events.append(event)
            continue

        document = json.loads(data)
        for holder in (document, document.get("message", {}), document.get("response", {})):
            holder.pop("usage", None)
        if document.get("choices") != []:
            events.append(head + mark + json.dumps(document).encode())

    return b"".join(event + b"\n\n" for event in events)


@pytest.mark.requirement("live:usage-missing")
async def test_usage_that_the_last_reply_lacks_is_that_of_the_others(live: Desk) -> None:
    def rewrite(stream: bytes) -> bytes:
        return without_usage(stream) if b"Fifty" in stream else stream

    live.model.rewrite = rewrite  # 23
    live.model_says("Let me look.", ("desk.balance", {}))
    live.model_says("Fifty.")
    await live.asks("How much?")
    assert live.shown.text == joined(live, "Let me look.", "Fifty.")
    assert live.usage == (10, 5)


@pytest.mark.requirement("live:usage-missing")
async def test_usage_that_no_reply_has_is_none_or_zeros_where_sdks_need_some(live: Desk) -> None:
    live.model.rewrite = without_usage  # 23
    live.model_says("Let me look.", ("desk.balance", {}))
    live.model_says("Fifty.")
    await live.asks("How much?")
    assert live.shown.text == joined(live, "Let me look.", "Fifty.")
    if live.wire is openai:
        assert json.loads(live.body).get("usage") is None
    else:
        assert live.usage == (0, 0)


def data_lines(stream: bytes) -> list[Any]:
    """Return the chunks of a chat stream, without its end."""
    events = [event.removeprefix(b"data: ") for event in stream.split(b"\n\n") if event]
    return [json.loads(event) for event in events if event != b"[DONE]"]


def as_stream(chunks: list[Any], *, done: bool = True) -> bytes:
    events = [json.dumps(chunk).encode() for chunk in chunks] + [b"[DONE]"] * done
    return b"".join(b"data: %b\n\n" % event for event in events)


@pytest.mark.requirement("live:chat-whole")
async def test_of_usage_in_every_chunk_only_the_last_counts(gpt: Desk) -> None:
    def rewrite(stream: bytes) -> bytes:
        chunks = data_lines(stream)
        total = chunks.pop()["usage"]
        for number, chunk in enumerate(chunks, 1):
            chunk["usage"] = total | {"completion_tokens": number}
        chunks[-1]["usage"] = total
        return as_stream(chunks)

    gpt.model.rewrite = rewrite  # 24
    gpt.model_says("Let me look.", ("desk.balance", {}))
    gpt.model_says("You have fifty of them.")
    await gpt.asks("How much?")
    assert gpt.shown.text == "Let me look.\n\nYou have fifty of them."
    assert gpt.usage == (10, 10)
    # The runner is told of it once, at the end.
    assert gpt.raw.count(b'"usage":{') == 1


@pytest.mark.requirement("live:chat-whole")
async def test_a_chat_stream_without_its_done_is_whole(gpt: Desk) -> None:
    gpt.model.rewrite = lambda stream: as_stream(data_lines(stream), done=False)  # 25
    gpt.model_says("Let me look.", ("desk.balance", {}))
    gpt.model_says("Fifty.")
    await gpt.asks("How much?")
    assert gpt.status == 200
    assert gpt.shown.text == "Let me look.\n\nFifty."
    assert gpt.raw.endswith(b"data: [DONE]\n\n")


@pytest.mark.requirement("live:chat-whole")
async def test_content_behind_a_finish_reason_belongs_to_the_reply(gpt: Desk) -> None:
    def rewrite(stream: bytes) -> bytes:
        chunks = data_lines(stream)
        place = next(at for at, each in enumerate(chunks) if each["choices"][0]["finish_reason"])
        last = chunks.pop(place)
        chunks.insert(2, last)  # Behind the first word
        return as_stream(chunks)

    gpt.model.rewrite = rewrite  # 26
    gpt.model_says("Let me look.", ("desk.balance", {}))
    gpt.model_says("You have fifty.")
    await gpt.asks("How much?")
    assert gpt.shown.text == "Let me look.\n\nYou have fifty."
    assert gpt.services.calls == ["desk.balance"]


@pytest.mark.requirement("live:left-at-tool")
@pytest.mark.parametrize("name", ["trade", "balance"])
async def test_a_runner_that_leaves_at_a_tool_finds_its_preamble_and_goes_on(
    live: Desk, name: str
) -> None:
    live.service_answers(name, {"n": 1}, {"n": 2})
    gate = live.services.gates[f"desk.{name}"] = asyncio.Event()
    live.model_says(Thought("Hm."), "Let me see.", (f"desk.{name}", {}))
    live.messages = [live.wire.user("Go")]
    exchange = await live.mediator.exchange(live.admitted(), live.request())
    assert isinstance(exchange, RunnerResponse)
    chunks = exchange.chunks
    shown = b""
    while b"see." not in shown:
        shown += await anext(chunks)
    await until_called(live, f"desk.{name}")

    leaving = asyncio.ensure_future(chunks.aclose())  # 32
    await asyncio.sleep(0)
    gate.set()
    await leaving
    live.model_says("Done so.")
    await live.turn()  # 33
    assert live.shown.text == joined(live, "Let me see.", "Done so.")
    # A read is dropped, and made again; a write was finished, and is not.
    runs = 1 if name == "trade" else 2
    assert live.services.calls == [f"desk.{name}"] * runs
    assert [
        json.loads(content)["data"] for _, content in live.wire.answers(live.model.messages())
    ] == [{"n": 1}]


SECRET = 'open "sesame" & go/ön!!??!'
BEFORE = "The key is "


def in_sixes(text: str) -> list[str]:
    """Return a text as it comes: no event ends within the first three characters of the secret."""
    start = len(BEFORE) + 6
    parts = [text[:start], *(text[at : at + 6] for at in range(start, len(text), 6))]
    return [part for part in parts if part]


FORMS = {
    "plain": SECRET,
    "URL-encoded": quote(SECRET, safe=""),
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "JSON-escaped": json.dumps(SECRET)[1:-1],
}


@pytest.mark.requirement("live:secrets-in-turns")
@pytest.mark.parametrize("form", FORMS)
async def test_a_tools_secret_in_the_models_words_is_never_shown(
    live: Desk, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"tests.wires.{name_of(live)}.in_words", in_sixes)
    secured = tool("balance")
    secured["execution"]["auth"] = {"type": "bearer", "token": SECRET}
    live.grant(secured)
    text = f"{BEFORE}{FORMS[form]}, they say."  # 29
    live.model_says(text, ("desk.balance", {}))
    live.model_says(Thought(text), text)
    live.shows_preambles = False
    await live.asks("Go")
    clear = f"{BEFORE}{DOTS}, they say."
    assert live.shown == ReplyContent(joined(live, clear, clear), (), clear)
    recorded = json.dumps(live.history()[-1]["response"]["json"]).encode()
    assert live.wire.said(recorded) == live.shown
    everything = live.raw.decode() + json.dumps(live.history())
    assert FORMS[form] not in everything


USAGES: dict[str, tuple[Body, Body, Body]] = {
    "openai": (
        {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        {"prompt_tokens": 30, "completion_tokens": 7, "total_tokens": 37},
        {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42},
    ),
    "anthropic": (
        {"input_tokens": 10, "cache_read_input_tokens": 3, "output_tokens": 5},
        {"input_tokens": 30, "cache_read_input_tokens": 8, "output_tokens": 7},
        {"input_tokens": 30, "cache_read_input_tokens": 8, "output_tokens": 12},
    ),
    "responses": (
        {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        {"input_tokens": 30, "output_tokens": 7, "total_tokens": 37},
        {"input_tokens": 30, "output_tokens": 12, "total_tokens": 42},
    ),
}
"""The usage of two replies, and that of their turn."""


@pytest.mark.requirement("live:usage-of-turn")
async def test_the_usage_is_the_input_of_the_last_reply_and_the_output_of_all(live: Desk) -> None:
    first, last, both = USAGES[name_of(live)]
    live.model_says("Let me look.", ("desk.balance", {}), usage=first)
    live.model_says("Fifty.", usage=last)
    await live.asks("How much?")
    usage = json.loads(live.body)["usage"]
    assert {name: usage[name] for name in both} == both


@pytest.mark.requirement("live:last-replys-end")
async def test_a_turn_ends_as_its_last_reply_does(live: Desk) -> None:
    live.model_says("Let me look.", ("desk.balance", {}))
    live.model_says("You have", cut=True)
    await live.asks("How much?")
    assert live.wire.ended(live.body) in {"length", "max_tokens", "max_output_tokens"}
    assert live.shown.text == joined(live, "Let me look.", "You have")


@pytest.mark.requirement("live:last-replys-end")
async def test_a_turn_that_a_tool_ended_ends_as_an_answer_does(live: Desk) -> None:
    live.grant(tool("trade", write=True, **TERMINAL_TOOL))
    live.model_says("Let me buy.", ("desk.trade", {}))
    await live.asks("Buy")
    assert live.shown == ReplyContent("Let me buy.")
    assert live.wire.ended(live.body) in {"stop", "end_turn", "completed"}


@pytest.mark.requirement("live:behind-a-call")
@pytest.mark.parametrize("name", ["desk__balance", "shell"])
async def test_text_behind_a_call_is_sent_or_dropped_with_it(claude: Desk, name: str) -> None:
    blocks = [
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}},
        {"type": "text", "text": "And then?"},
    ]
    reply = json.loads(anthropic.reply("", (), {})) | {"content": blocks}
    claude.model_answers(json.dumps(reply | {"stop_reason": "tool_use"}).encode())  # 11
    claude.model_says("Fifty.")
    claude.shows_preambles = False
    await claude.asks("How much?", native=["shell"])
    if name == "shell":
        assert [block["type"] for block in json.loads(claude.body)["content"]] == [
            block["type"] for block in blocks
        ]
    else:
        assert claude.shown == ReplyContent("Let me look.Fifty.")
        assert b"And then?" not in claude.raw


@pytest.mark.requirement("live:hidden-thinking-and-pause")
async def test_hidden_thinking_is_shown_whole_and_a_paused_turn_is_the_answer(
    claude: Desk,
) -> None:
    first, last = [{"type": "redacted_thinking", "data": f"EmwKAhgB{part}"} for part in "ab"]
    call = {"type": "tool_use", "id": "toolu_1", "name": "desk__balance", "input": {}}
    begins = [first, {"type": "text", "text": "Let me look."}]
    ends = [last, {"type": "text", "text": "I go on."}]
    for blocks, reason in (([*begins, call], "tool_use"), (ends, "pause_turn")):  # 13, 14
        reply = json.loads(anthropic.reply("", (), {})) | {"content": blocks}
        claude.model_answers(json.dumps(reply | {"stop_reason": reason}).encode())
    await claude.asks("How much?")
    body = json.loads(claude.body)
    assert body["content"] == [*begins, *ends]
    assert body["stop_reason"] == "pause_turn"

    before = claude.model.messages()
    claude.model_says("Yes.")
    await claude.asks("Sure?")
    after = claude.model.messages()
    assert after[: len(before)] == before
    assert after[len(before)]["content"] == ends


@pytest.mark.requirement("live:keepalive-in-text")
@pytest.mark.parametrize("kind", ["comment", "native"])
async def test_a_stream_is_kept_alive_while_a_provider_is_silent_within_a_text(
    live: Desk, kind: KeepaliveKind
) -> None:
    live.settings = replace(
        live.settings,
        keepalive=0.01,
        keepalive_openai=kind,
        keepalive_anthropic=kind,
        keepalive_responses=kind,
    )
    live.open()
    goes_on = asyncio.Event()
    live.model.pause = b"have ", goes_on
    live.model_says("You have fifty.")
    live.messages = [live.wire.user("How much?")]
    exchange = await live.mediator.exchange(live.admitted(), live.request())
    assert isinstance(exchange, RunnerResponse)

    stream = b""
    beats: list[bytes] = []
    async for chunk in exchange.chunks:
        if b"have " in stream and not goes_on.is_set():
            beats.append(chunk)
            if len(beats) == 2:
                goes_on.set()
        stream += chunk
    assert all(b"fifty" not in beat for beat in beats)
    assert all(beat.startswith(b":") for beat in beats) == (kind == "comment")
    assert live.wire.said(live.wire.assembled(stream)) == ReplyContent("You have fifty.")
