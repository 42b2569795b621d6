"""Failures of a provider as the real SDKs raise them, through the real mitmdump.

All failures are in tests/failures.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic as claude
import openai as gpt
import pytest

from tests import raw
from tests.failures.provider import FAILURES, Failure
from tests.failures.table import Phase, told
from tests.peers import Provider, Service
from tests.proxy.pod import TOOL_TOKEN, Pod
from tests.waiting import free_port
from tests.wires import MadeCall, Wire, anthropic, openai

ASKED: dict[str, Any] = {"model": "m-test", "messages": [{"role": "user", "content": "Go"}]}
PREFIX = "/of-the-provider"
BY_NAME = {failure.name: failure for failure in FAILURES}
CHOSEN = [
    ("refused", Phase.FIRST, False),
    ("reset-in-headers", Phase.FIRST, True),
    ("cut-length", Phase.LATER, True),
    ("silence", Phase.FIRST, False),
    ("silence", Phase.OPEN, True),
    ("too-large", Phase.FIRST, False),
    ("status-400", Phase.FIRST, True),
    ("status-400", Phase.LATER, False),
    ("status-400", Phase.LATER, True),
    ("status-403", Phase.OPEN, True),
    ("status-422", Phase.FINAL, True),
    ("status-429", Phase.FIRST, False),
    ("status-529", Phase.FIRST, True),
    ("status-502-html", Phase.FIRST, False),
    ("status-500-empty", Phase.FIRST, False),
    ("ok-html", Phase.FIRST, True),
    ("ok-error", Phase.LATER, True),
    ("ok-event-stream", Phase.FINAL, False),
]
RAISED = {
    400: "BadRequestError",
    429: "RateLimitError",
    500: "InternalServerError",
    502: "InternalServerError",
    529: "InternalServerError",
}


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """Yield a pod that soon sends the headers of a stream."""
    with failing_pod(tmp_path_factory.mktemp("pod")) as pod:
        yield pod


@pytest.fixture(scope="module")
def unhurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """Yield a pod whose headers wait for the provider's status, which on a busy
    machine takes longer than 300 ms.
    """
    with failing_pod(tmp_path_factory.mktemp("pod"), CLLAMA_KEEPALIVE_FIRST_MS="60000") as pod:
        yield pod


@pytest.fixture
def failing(phase: Phase, request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("unhurried" if phase is Phase.FIRST else "hurried")


@contextmanager
def failing_pod(home: Path, **environment: str) -> Iterator[Pod]:
    """Yield a pod whose provider's address is free for each test's peer.

    It needs no key, so that no failure disables one.
    """
    service = Service()
    service.start()
    pod = Pod(home, Provider(port=free_port()), service)
    pod.agent("patient", pod.tool("balance"))
    pod.agent("brief", pod.tool("balance"), max_rounds=1)
    pod.agent("hasty", pod.tool("balance"), total_timeout_ms=1500)
    (pod.home / "auth").mkdir()
    entry = {"auth": "none"}
    providers = json.dumps({"version": 2, "providers": {"openai": entry, "anthropic": entry}})
    (pod.home / "auth" / "providers.json").write_text(providers, encoding="utf-8")
    base = f"{pod.provider.url}{PREFIX}/v1"
    pod.environment = {"OPENAI_BASE_URL": base, "ANTHROPIC_BASE_URL": base, **environment}
    pod.start()
    yield pod
    pod.stop()
    service.stop()


@pytest.fixture
async def peer(failing: Pod) -> AsyncIterator[raw.Peer]:
    made = raw.Peer(port=failing.provider.port, prefix=PREFIX)
    await made.start()
    yield made
    await made.stop()


@pytest.mark.requirement("failure:sdk-raises")
@pytest.mark.parametrize("dialect", [openai, anthropic], ids=["openai", "anthropic"])
@pytest.mark.parametrize(("name", "phase", "stream"), CHOSEN)
async def test_the_sdk_raises_its_own_class(
    failing: Pod, peer: raw.Peer, dialect: Wire, name: str, phase: Phase, stream: bool
) -> None:
    failure = BY_NAME[name]
    agent_id = {"time is spent": "hasty"}.get(
        failure.until, "brief" if phase is Phase.FINAL else "patient"
    )
    go = asyncio.Event()
    peer.script = script(dialect, failure, phase, go)
    if failure.until == "never listens":
        peer.refuse()
    sdk: Any = gpt if dialect is openai else claude
    before = len(failing.history(agent_id))
    with pytest.raises(sdk.APIError) as raised:
        await ask(failing, dialect, agent_id, go, stream=stream)
    expected = told(failure, phase, stream=stream)
    if expected.by == "a response":
        assert isinstance(raised.value, getattr(sdk, RAISED[expected.status]))
    else:
        assert not isinstance(raised.value, sdk.APIConnectionError)
    text = f"{raised.value} {raised.value.body}"
    assert TOOL_TOKEN not in text
    assert "127.0.0.1" not in text
    (entry,) = failing.history(agent_id)[before:]
    assert (entry["status"], entry["status_code"]) == ("error", expected.status)


def script(dialect: Wire, failure: Failure, phase: Phase, go: asyncio.Event) -> list[raw.Act]:
    asked = {Phase.FIRST: 0, Phase.OPEN: 0, Phase.LATER: 1, Phase.FINAL: 2}[phase]
    made = [
        MadeCall(f"c{number}", "desk__balance", f'{{"n": {number}}}') for number in range(asked)
    ]
    failing = failure.act(dialect)
    held = raw.held(failing, go) if phase is Phase.OPEN else failing
    return [*(raw.answers(200, dialect.reply("", [call], {})) for call in made), held]


async def ask(pod: Pod, dialect: Wire, agent_id: str, go: asyncio.Event, *, stream: bool) -> None:
    options: dict[str, Any] = {"api_key": pod.token(agent_id), "max_retries": 0, "timeout": 30}
    # No two are alike: a request that repeats one of a failed turn resumes it.
    asked = {"model": ASKED["model"], "messages": [{"role": "user", "content": uuid.uuid4().hex}]}
    client: Any
    if dialect is openai:
        async with gpt.AsyncOpenAI(base_url=f"{pod.url}/v1", **options) as client:
            answer = await client.chat.completions.create(**asked, stream=stream)
            go.set()  # the headers were sent
            assert [chunk async for chunk in answer]
    else:
        async with claude.AsyncAnthropic(base_url=pod.url, **options) as client:
            answer = await client.messages.create(**asked, max_tokens=100, stream=stream)
            go.set()
            assert [event async for event in answer]
