"""Keepalives of every kind while a tool runs: every SDK waits, and reads the answer
as if there had been no wait.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.sdks.conftest import Speakers, is_anthropic
from tests.sdks.hearing import ANTHROPIC, OPENAI, Heard, hear, install
from tests.waiting import eventually

SDKS = (*OPENAI, *ANTHROPIC)
CASES = ("slow", "slow and then a call", "fails after a slow tool")


class Listener:
    """A stream that is read line by line, without an SDK."""

    def __init__(self, spoken: Speakers, sdk: str) -> None:
        self.lines: list[str] = []
        self._url = spoken.pod.url + (
            "/v1/messages" if is_anthropic(sdk) else "/v1/chat/completions"
        )
        self._headers = {"authorization": f"Bearer {spoken.pod.token()}"}
        self._body = spoken.body("slow", sdk) | {"stream": True}

    def listen(self) -> None:
        with httpx2.stream(
            "POST", self._url, json=self._body, headers=self._headers, timeout=60
        ) as answer:
            for line in answer.iter_lines():
                self.lines.append(line)

    @property
    def keepalives(self) -> list[str]:
        empty = '"delta":{},"finish_reason":null'
        return [
            line
            for line in self.lines
            if line.startswith(":") or line == "event: ping" or empty in line
        ]


@pytest.fixture(scope="module")
def waited(kept_alive: Speakers) -> tuple[dict[tuple[str, str], Heard], dict[str, list[str]]]:
    """Return the SDKs' readings, by case and SDK, and the keepalives of each protocol.

    All waited for the same tool.
    """
    install()  # else the runners that have started would wait in vain for those that can't
    pairs = [(case, sdk) for case in CASES for sdk in SDKS]
    listeners = {
        "openai": Listener(kept_alive, OPENAI[0]),
        "anthropic": Listener(kept_alive, ANTHROPIC[0]),
    }
    with ThreadPoolExecutor(3) as pool:
        heard = pool.submit(hear, [kept_alive.job(case, sdk) for case, sdk in pairs])
        read = [pool.submit(listener.listen) for listener in listeners.values()]
        try:
            all_wait(kept_alive, len(pairs) + len(listeners), listeners)
        finally:
            kept_alive.gate.open.set()
        for each in read:
            each.result()
        return (
            dict(zip(pairs, heard.result(), strict=True)),
            {name: listener.keepalives for name, listener in listeners.items()},
        )


def all_wait(kept_alive: Speakers, runners: int, listeners: dict[str, Listener]) -> None:
    """Wait until every runner's tool is called, and then for some more keepalives
    in each stream.
    """
    eventually(lambda: kept_alive.gate.waiting == runners, "every runner waits for the tool")
    so_far = {name: len(listener.keepalives) for name, listener in listeners.items()}
    if "off" not in kept_alive.kinds.values():
        eventually(
            lambda: all(
                len(listener.keepalives) > so_far[name] + 2 for name, listener in listeners.items()
            ),
            "every stream was kept alive",
        )


@pytest.mark.requirement("stream:keepalive", "stream:keepalive-kinds")
def test_what_keeps_a_stream_alive_is_as_it_was_set(kept_alive: Speakers, waited: Any) -> None:
    for name, lines in waited[1].items():
        match name, kept_alive.kinds[name]:
            case _, "off":
                assert lines == []
            case _, "comment":
                assert {line.split("waiting=")[1] for line in lines if "waiting=" in line} >= {
                    "desk.wait"
                }
                assert all(line.startswith(":") for line in lines)
            case "anthropic", "native":
                assert set(lines) == {"event: ping"}
            case _:
                assert all(
                    json.loads(line.removeprefix("data: "))["choices"][0]["delta"] == {}
                    for line in lines
                )


@pytest.mark.requirement("stream:keepalive", "stream:sdks-hear-the-same")
@pytest.mark.parametrize("sdk", SDKS)
def test_every_sdk_waits_for_a_slow_tool_and_hears_the_answer(
    kept_alive: Speakers, waited: Any, sdk: str
) -> None:
    heard = waited[0]["slow", sdk]
    assert (heard.get("error"), heard["text"], heard["calls"]) == (None, "Done.", [])
    called = waited[0]["slow and then a call", sdk]
    assert [(call["name"], json.loads(call["arguments"])) for call in called["calls"]] == [
        ("shell", {"cmd": "ls"})
    ]
    assert called["text"] == "I go on."
    if not sdk.startswith("ai "):
        assert heard["role"] == "assistant"
        own_id = r"chatcmpl[a-z0-9]{32}" if kept_alive.kinds["openai"] == "native" else "chatcmpl-1"
        assert re.fullmatch("msg_1" if is_anthropic(sdk) else own_id, heard["id"])


@pytest.mark.requirement("stream:keepalive", "stream:errors-in-sdks")
@pytest.mark.parametrize("sdk", SDKS)
def test_every_sdk_raises_an_error_that_comes_after_the_wait(waited: Any, sdk: str) -> None:
    assert "that is too long" in waited[0]["fails after a slow tool", sdk]["error"]["message"]
