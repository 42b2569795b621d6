"""Pods for the SDKs: one for all answers, and one for each other kind of keepalives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.peers import Provider
from tests.proxy.pod import Pod, pod_at
from tests.sdks.cases import NATIVE, case_model
from tests.sdks.hearing import ANTHROPIC, Job
from tests.waiting import eventually_async


@dataclass
class Gate:
    """A tool that answers calls only once the test opens it."""

    waiting: int = 0
    open: threading.Event = field(default_factory=threading.Event)

    def close(self) -> None:
        self.waiting = 0
        self.open.clear()

    async def __call__(self, _request: Request) -> Response:
        self.waiting += 1
        await eventually_async(self.open.is_set, "the test opens the gate")
        return JSONResponse({"waited": True})


@dataclass
class Speakers:
    """A running pod, and requests to it."""

    pod: Pod
    gate: Gate
    asked: int = 0

    @property
    def kinds(self) -> dict[str, str]:
        """Return the kind of keepalives in each protocol's streams."""
        environment = self.pod.environment
        return {
            "openai": environment.get("CLLAMA_KEEPALIVE_OPENAI", "comment"),
            "anthropic": environment.get("CLLAMA_KEEPALIVE_ANTHROPIC", "native"),
        }

    def body(self, case: str, sdk: str) -> dict[str, Any]:
        """Return a request for a case, in the SDK's protocol.

        No two are equal, so none is the retry of another.
        """
        self.asked += 1
        messages = [{"role": "user", "content": f"case:{case}; {self.asked}"}]
        if is_anthropic(sdk):
            tools: list[Any] = [
                {"name": name, "input_schema": {"type": "object"}} for name in NATIVE
            ]
            return {
                "model": "claude-test",
                "max_tokens": 1000,
                "messages": messages,
                "tools": tools,
            }
        functions = [{"name": name, "parameters": {"type": "object"}} for name in NATIVE]
        tools = [{"type": "function", "function": function} for function in functions]
        return {"model": "gpt-test", "messages": messages, "tools": tools}

    def job(self, case: str, sdk: str, **more: Any) -> Job:
        body = {
            name: value
            for name, value in (self.body(case, sdk) | more).items()
            if value is not None
        }
        return Job(sdk, self.pod.url, self.pod.token(), body)

    def post(self, case: str, sdk: str, **more: Any) -> httpx2.Response:
        """Send such a request without an SDK."""
        path = "/v1/messages" if is_anthropic(sdk) else "/v1/chat/completions"
        headers = {"authorization": f"Bearer {self.pod.token()}"}
        return httpx2.post(
            self.pod.url + path, json=self.body(case, sdk) | more, headers=headers, timeout=60
        )


def is_anthropic(sdk: str) -> bool:
    return sdk in ANTHROPIC


def speakers(home: Path, **environment: str) -> Iterator[Speakers]:
    gate = Gate()
    with pod_at(home, Provider(model=case_model), environment=environment) as pod:
        pod.service.routes = {
            ("GET", "/balance"): JSONResponse({"usd": 50_000}),
            ("GET", "/wait"): gate,
        }
        pod.agent("analyst", pod.tool("balance"), pod.tool("wait"))
        pod.start()
        yield Speakers(pod, gate)
        gate.open.set()


@pytest.fixture(scope="session")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Speakers]:
    """Yield the pod of most tests, with the default keepalives."""
    yield from speakers(tmp_path_factory.mktemp("sdks"))


@pytest.fixture(scope="module", params=["default", "the other way round", "off"])
def kept_alive(
    request: pytest.FixtureRequest, spoken: Speakers, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """Yield a pod for each kind of keepalives: ``comment`` and ``native`` (the
    default), ``native`` and ``comment``, off.
    """
    if request.param == "default":
        spoken.gate.close()
        yield spoken
        return
    openai, anthropic = (
        ("native", "comment") if request.param == "the other way round" else ("off", "off")
    )
    environment = {"CLLAMA_KEEPALIVE_OPENAI": openai, "CLLAMA_KEEPALIVE_ANTHROPIC": anthropic}
    yield from speakers(tmp_path_factory.mktemp("sdks"), **environment)
