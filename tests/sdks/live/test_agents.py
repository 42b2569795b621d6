"""Claude Code, Codex, OpenClaw, opencode, pi and qwen-code at a pod whose answers stream live: what they show,
what they send back, and how they go on when an answer breaks off.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from pathlib import Path

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.sdks.live.agents import SECONDS, VARIANTS, run_agent
from tests.sdks.live.conftest import PLANTED, LivePod
from tests.sdks.live.model import CASES, NATIVE
from tests.waiting import eventually_async

pytestmark = [pytest.mark.long, pytest.mark.timeout(4 * SECONDS)]
_NUMBERS = itertools.count(1)
_IS_SOAK = bool(os.environ.get("CLAW_SEARCH"))
_FAST = ("claude-code", "codex", "pi", "pi-anthropic", "pi-responses")
AGENTS = tuple(VARIANTS) if _IS_SOAK else _FAST
"""A turn of the others takes 3 s, of OpenClaw 20: they are for ``make soak``."""
_EVERY_CASE = ("cut", "quietcut", "error", "quieterror")
_FAILURES = {
    "claude-code": ("cut", "quieterror"),
    "codex": ("error", "quietcut"),
    "pi": ("cut", "quieterror"),
    "pi-anthropic": ("error",),
    "pi-responses": ("cut",),
    "qwen-code": ("cut",),
}
FAILURES = [
    (agent, case)
    for agent, cases in (dict.fromkeys(VARIANTS, _EVERY_CASE) if _IS_SOAK else _FAILURES).items()
    for case in cases
]
"""Agents, and how an answer breaks off: behind finished words, which they may send back, or not.

``make soak`` has every failure of every agent, and ``make test`` one of a slow agent.
"""
_PATIENT = {
    "openclaw-anthropic",
    "opencode-anthropic",
    "pi",
    "pi-anthropic",
    "pi-responses",
    "qwen-code",
    "qwen-code-anthropic",
    "qwen-code-responses",
}
GIVES_UP = {
    (agent, case) for agent in VARIANTS for case in ("error", "quieterror") if agent in _PATIENT
}
"""Those that leave it to their user to go on. After a cut, all go on by themselves."""


@pytest.fixture
def number(live_pod: LivePod) -> int:
    """Return the number of a play, which no other has in this process."""
    live_pod.model.refused.clear()
    return next(_NUMBERS)


def assert_in_order(words: list[str], printed: str) -> None:
    place = 0
    for each in words:
        place = printed.find(each.strip(), place)
        assert place >= 0, (each, printed[-3000:])


def words_printed(agent: str) -> list[str]:
    """Return the words of the case "everything" that an agent prints."""
    words = [step.words for step in CASES["everything"]]
    if agent == "openclaw":
        return words[-1:]  # Of one text, what it takes for the answer: it begins behind a thought
    return words[-2:] if agent.startswith("openclaw") else words


def kept_by(home: Path) -> str:
    """Return what an agent keeps of its conversations, its logs of requests aside."""
    found = [*home.rglob("*.json*"), *home.rglob("*.sqlite*")]
    files = [file for file in found if file.is_file() and "log" not in file.parts]
    return "".join(file.read_text(encoding="utf-8", errors="replace") for file in files)


def hidden(body: bytes) -> list[bytes]:
    """Return the messages of a request with managed calls and their results, in their bytes."""
    names = ["messages", "input"]
    document = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    (raw,) = [document[name] for name in names if name in document]
    messages = [*map(bytes, msgspec.json.decode(raw, type=list[msgspec.Raw]))]
    calls = [each for each in messages if b"desk__" in each]
    ids = {call_id for each in calls for call_id in re.findall(rb'"(call\d+)"', each)}
    return [each for each in messages if any(b'"%b"' % call_id in each for call_id in ids)]


@pytest.mark.requirement("live:agents", "live:second-turn")
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_shows_every_word_and_its_next_turn_is_what_the_provider_said(
    live_pod: LivePod, tmp_path: Path, agent: str, number: int
) -> None:
    home = tmp_path / agent
    printed = run_agent(agent, home, live_pod.pod, f"case:everything {number};")
    assert_in_order(words_printed(agent), printed)

    seen = hidden(live_pod.model.bodies[str(number)][-1])
    said = run_agent(agent, home, live_pod.pod, f"case:again {number};", goes_on=True)
    assert len(seen) == 4, "two calls with their results"
    assert hidden(live_pod.model.bodies[str(number)][-1]) == seen
    native = next(name for name in NATIVE if f"balance, {name}, trade" in said)
    assert f"I remember: balance, {native}, trade." in said
    assert live_pod.traded(number) == 1
    shown = printed + said + kept_by(home)
    assert "Now I buy." in shown
    assert [word for word in ("desk__", PLANTED) if word in shown] == []

    if agent != "openclaw-responses":  # It drops what a provider at another address has sealed
        said = run_agent(agent, home, live_pod.other, f"case:again {number};", goes_on=True)
        assert f"I remember: {native}." in said
    assert live_pod.model.refused == []


@pytest.mark.requirement("live:agents")
def test_claude_code_shows_the_words_before_the_call_that_they_announce_is_answered(
    live_pod: LivePod, tmp_path: Path, number: int
) -> None:
    output = tmp_path / "printed"
    shown: list[str] = []

    async def balance(_request: Request) -> Response:
        await eventually_async(
            lambda: "look. " in output.read_text(encoding="utf-8"), "the words are shown"
        )
        shown.append(await asyncio.to_thread(output.read_text, encoding="utf-8"))
        return JSONResponse({"usd": PLANTED})

    routes = live_pod.pod.service.routes
    before = routes["GET", "/balance"]
    routes["GET", "/balance"] = balance
    try:
        words = f"case:look {number};"
        printed = run_agent("claude-code", tmp_path, live_pod.pod, words, output=output)
    finally:
        routes["GET", "/balance"] = before
    assert "50,000" in printed
    assert "50,000" not in shown[0]


@pytest.mark.requirement("live:agents-fail")
@pytest.mark.parametrize(("agent", "case"), FAILURES)
def test_an_agent_asks_again_when_an_answer_breaks_off_and_no_write_runs_twice(
    live_pod: LivePod, tmp_path: Path, agent: str, case: str, number: int
) -> None:
    home = tmp_path / agent
    gives_up = (agent, case) in GIVES_UP
    printed = run_agent(agent, home, live_pod.pod, f"case:{case} {number};", gives_up=gives_up)
    if gives_up:
        assert "Now you own a share." not in printed
        printed = run_agent(agent, home, live_pod.pod, "Go on.", goes_on=True)
    assert live_pod.model.failed[f"{case} {number}"] == 1
    assert "Now you own a share." in printed
    assert live_pod.traded(number) == 1
    if agent != "opencode":  # It keeps an empty message, which strict providers refuse
        said = run_agent(agent, home, live_pod.pod, f"case:again {number};", goes_on=True)
        assert "I remember: trade." in said
    assert live_pod.model.refused == []
