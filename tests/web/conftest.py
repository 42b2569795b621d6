from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
from starlette.responses import JSONResponse

from tests.peers import calls, text
from tests.proxy.pod import Pod, pod_at
from tests.web.mitmweb import Mitmweb, offline

HELLO: list[Any] = [{"role": "user", "content": "Buy one, and say what is left."}]


@contextmanager
def furnished(home: Path) -> Iterator[Pod]:
    """Yield a pod whose service answers, not started."""
    with pod_at(home) as pod:
        pod.agent("analyst", *pod.balance_and_trade())
        pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 50_000})
        pod.service.routes["POST", "/trade"] = JSONResponse({"order": 7}, status_code=201)
        yield pod


def openai_turn(pod: Pod) -> None:
    """Run a turn with two hidden rounds, the second of which repeats a call that may write."""
    trade = ("desk__trade", {"symbol": "X"})
    pod.provider.says(
        calls(("c1", "desk__balance", {}), ("c2", *trade)),
        calls(("c3", *trade)),
        text("Bought. \x1b[2J 49,000 are left."),
    )
    with pod.client().chat.completions.create(model="gpt", messages=HELLO, stream=True) as stream:
        assert "Bought." in "".join(
            chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices
        )


def anthropic_turn(pod: Pod) -> None:
    pod.provider.says(calls(("t1", "desk__balance", {})), text("50,000 are left."))
    pod.claude().messages.create(model="claude", max_tokens=99, messages=HELLO)


def failed_and_resumed_turns(pod: Pod) -> None:
    """Run a turn whose provider fails after a write, and the same request again,
    which resumes it.
    """
    pod.provider.says(
        calls(("c1", "desk__trade", {"symbol": "Y"})),
        JSONResponse({"error": {"message": "no"}}, 400),
    )
    asked: list[Any] = [{"role": "user", "content": "Buy a Y."}]
    with pytest.raises(openai.BadRequestError):
        pod.client().chat.completions.create(model="gpt", messages=asked)
    pod.provider.says(text("It is bought."))
    pod.client().chat.completions.create(model="gpt", messages=asked)


def responses_turn(pod: Pod) -> None:
    pod.provider.says(calls(("c1", "desk__balance", {})), text("50,000 are there."))
    answer = pod.client().responses.create(model="gpt", input="What is there?", store=False)
    assert answer.output_text == "50,000 are there."


@dataclass
class RecordedTurns:
    """Turns in a file that mitmdump wrote, and a mitmweb that has read it."""

    pod: Pod
    file: Path
    web: Mitmweb


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedTurns]:
    with furnished(tmp_path_factory.mktemp("pod")) as pod:
        file = pod.home / "flows"
        pod.start("-w", str(file))
        openai_turn(pod)
        anthropic_turn(pod)
        failed_and_resumed_turns(pod)
        responses_turn(pod)
    web, process = offline(pod.home, file, pod.home / "context")
    yield RecordedTurns(pod, file, web)
    process.terminate()
    process.wait(timeout=20)


@dataclass
class Live:
    """A pod whose proxy is mitmweb, with one turn of each dialect in it."""

    pod: Pod
    web: Mitmweb


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    web = Mitmweb()
    columns = ("icon", "path", "status", "size", "time", "comment")
    with furnished(tmp_path_factory.mktemp("pod")) as pod:
        web.start(pod, *(part for name in columns for part in ("--set", f"web_columns={name}")))
        openai_turn(pod)
        anthropic_turn(pod)
        yield Live(pod, web)
