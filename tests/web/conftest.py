from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
from starlette.responses import JSONResponse

from tests.peers import Provider, Service, calls, text
from tests.proxy.pod import Pod
from tests.web.mitmweb import MITMWEB, Mitmweb, offline
from tests.wires import anthropic, responses

SYMBOL = {"type": "object", "properties": {"symbol": {"type": "string"}}}
HELLO: list[Any] = [{"role": "user", "content": "Buy one, and say what is left."}]


def granted(pod: Pod) -> list[dict[str, Any]]:
    return [pod.tool("balance"), pod.tool("trade", "POST", schema=SYMBOL)]


def furnished(home: Path) -> Pod:
    """Return a pod whose service answers, not started."""
    provider, service = Provider(), Service()
    provider.start()
    service.start()
    pod = Pod(home, provider, service)
    pod.agent("analyst", *granted(pod))
    service.routes["GET", "/balance"] = JSONResponse({"usd": 50_000})
    service.routes["POST", "/trade"] = JSONResponse({"order": 7}, status_code=201)
    return pod


def closed(pod: Pod) -> None:
    pod.stop()
    pod.provider.stop()
    pod.service.stop()


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
    asks = anthropic.message(anthropic.tool_use("t1", "desk__balance", {}))
    pod.provider.says(JSONResponse(asks), JSONResponse(anthropic.message("50,000 are left.")))
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
    asks = responses.response(responses.function_call("c1", "desk__balance", "{}"))
    pod.provider.says(
        JSONResponse(asks), JSONResponse(responses.response(responses.message("50,000 are there.")))
    )
    answer = pod.client().responses.create(model="gpt", input="What is there?", store=False)
    assert answer.output_text == "50,000 are there."


@dataclass
class Recorded:
    """Turns in a file that mitmdump wrote, and a mitmweb that has read it."""

    pod: Pod
    file: Path
    web: Mitmweb


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    pod = furnished(tmp_path_factory.mktemp("pod"))
    file = pod.home / "flows"
    pod.start("-w", str(file))
    openai_turn(pod)
    anthropic_turn(pod)
    failed_and_resumed_turns(pod)
    responses_turn(pod)
    closed(pod)
    web, process = offline(pod.home, file, pod.home / "context")
    yield Recorded(pod, file, web)
    process.terminate()
    process.wait(timeout=20)


@dataclass
class Live:
    """A pod whose proxy is mitmweb, with one turn of each dialect in it."""

    pod: Pod
    web: Mitmweb


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    pod, web = furnished(tmp_path_factory.mktemp("pod")), Mitmweb()
    pod.program = MITMWEB
    columns = ("icon", "path", "status", "size", "time", "comment")
    pod.start(
        *web.arguments, *(part for name in columns for part in ("--set", f"web_columns={name}"))
    )
    openai_turn(pod)
    anthropic_turn(pod)
    yield Live(pod, web)
    closed(pod)
