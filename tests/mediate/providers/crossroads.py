"""Several real providers on loopback behind the real upstream, with a clock of the test's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from claw_contract.metadata import Metadata
from claw_contract.providers import ApiFormat
from claw_contract.secret import Secret
from claw_mediate.agents.directory import Agent
from claw_mediate.core.model_policy import Candidate
from claw_mediate.core.types import ModelResponse, TurnLimits
from claw_mediate.dialects.anthropic import DIALECT as ANTHROPIC_MESSAGES
from claw_mediate.dialects.base import Dialect
from claw_mediate.dialects.openai import DIALECT as OPENAI_CHAT
from claw_mediate.providers.client import ProviderResponse, TransportFailure
from claw_mediate.providers.failover import ModelCall, ProviderFailover
from claw_mediate.providers.routing import Route
from claw_mediate.telemetry.event_log import EventLog
from tests.events import known
from tests.mediate.made import catalog, limits
from tests.mediate.providers.auth import Auth
from tests.peers import Answer, Provider
from tests.wires import Wire, anthropic, openai

SIDES: dict[ApiFormat, tuple[Wire, Dialect]] = {
    "openai": (openai, OPENAI_CHAT),
    "anthropic": (anthropic, ANTHROPIC_MESSAGES),
}


class Crossroads:
    """Providers ``one``, ``two`` and ``three``, each with as many keys as the test says, and the
    route of one turn to them.
    """

    def __init__(self, home: Path, api_format: ApiFormat, keys: dict[str, int]) -> None:
        self.auth = Auth(home)
        self.wire, self.dialect = SIDES[api_format]
        self.peers = {name: Provider() for name in keys}
        for peer in self.peers.values():
            peer.start()
        self.body = json.dumps(
            self.wire.request([self.wire.user("Hi")], [], stream=False, more={"model": "m-one"})
        )
        self.slept: list[float] = []
        self.auth.write(
            {
                "version": 2,
                "providers": {name: self._entry(name, keys[name], api_format) for name in keys},
            }
        )
        self.open()

    def open(self) -> None:
        """(Re)start: what is in memory is lost."""
        self.registry = self.auth.registry()
        log = EventLog(lambda line: self.auth.events.append(known(line)))
        self.upstream = ProviderFailover(self.registry, log, self._sleep)
        self.adapt: Callable[[str], bytes] | None = None
        self.response: ModelResponse | None = None
        self.turn()

    def turn(self) -> None:
        """Begin a new turn."""
        providers = self.registry.all()
        candidates = [Candidate(providers[name], f"m-{name}") for name in self.peers]
        agent = Agent(
            "analyst",
            Metadata(service="a", pod="p", token=Secret("analyst:x")),
            (),
            LIMITS,
            "digest",
        )
        headers = [("content-type", "application/json"), ("x-of-the-runner", "kept")]
        self.route = Route(agent, "turn_1", f"{self.wire.PATH}?a=%2F", headers, candidates)

    async def ask(self, *, again: bool = False, seconds: float = 30.0) -> str:
        """Make one model call of the turn; return its outcome in a word or two."""
        until = asyncio.get_running_loop().time() + seconds
        call = ModelCall(self.body.encode(), self.read, lambda: again, until, adapt=self.adapt)
        match await self.upstream.post(self.route, call):
            case ModelResponse(body) as response:
                self.response = response
                return self.wire.said(body).text
            case ProviderResponse(status, _, body):
                return f"{status} {json.loads(body)['error']['message']}"
            case TransportFailure(code, _, status):
                return f"{status} {code}"

    def asked(self) -> dict[str, list[str]]:
        """Return the model and the key of each request so far, by provider."""
        return {
            name: [
                (
                    f"{sent.json['model']} "
                    f"{sent.headers.get('authorization', sent.headers.get('x-api-key', '-'))}"
                )
                for sent in peer.received
            ]
            for name, peer in self.peers.items()
        }

    def questions(self) -> list[str]:
        """Return method, path and key of each question that the proxy asked by itself."""
        asked = [sent for peer in self.peers.values() for sent in peer.questions]
        return [
            (
                f"{sent.method} {sent.path} "
                f"{sent.headers.get('authorization', sent.headers.get('x-api-key'))}"
            )
            for sent in asked
        ]

    def times(self) -> list[int]:
        """Return the number of requests that each provider got."""
        return [len(peer.received) for peer in self.peers.values()]

    def moves(self) -> list[str]:
        return [
            f"{event['from_model']} → {event['to_model']}: {event['reason']}"
            for event in self.auth.said("failover")
        ]

    def reply(self, text: str) -> Response:
        return Response(self.wire.reply(text, [], {}), media_type="application/json")

    async def close(self) -> None:
        await self.upstream.close()
        for peer in self.peers.values():
            peer.stop()

    async def _sleep(self, seconds: float) -> None:
        if seconds:
            self.slept.append(seconds)
            self.auth.clock += seconds
        await asyncio.sleep(0)

    def read(self, body: bytes) -> ModelResponse:
        return self.dialect.read_response(body, catalog())

    def _entry(self, name: str, keys: int, api_format: ApiFormat) -> dict[str, Any]:
        auth = "x-api-key" if api_format == "anthropic" else "bearer"
        pool = [{"id": f"k{number}", "secret": f"sk-{name}-{number}"} for number in range(keys)]
        url = f"{self.peers[name].url}/{name}/v1"
        return {
            "base_url": url,
            "auth": auth if keys else "none",
            "api_format": api_format,
            "keys": pool,
        }


def error(status: int, message: str = "no", **more: Any) -> JSONResponse:
    """Return a provider's error, in either protocol."""
    headers = {name.replace("_", "-"): value for name, value in more.items()}
    return JSONResponse(
        {"type": "error", "error": {"type": "api_error", "message": message}}, status, headers
    )


def no_money() -> JSONResponse:
    """Return the refusal of an account without money, in both protocols' codes."""
    codes = {"type": "billing_error", "code": "insufficient_quota", "message": "no money"}
    return JSONResponse({"type": "error", "error": codes}, 402)


async def cut(_request: Request) -> Response:
    """Return a response that ends before it is complete."""

    async def half() -> AsyncIterator[bytes]:
        yield b'{"id": '

    return StreamingResponse(half(), headers={"content-length": "1000"})


async def silence(_request: Request) -> Response:
    """Never answer, as long as somebody waits."""
    await asyncio.Event().wait()
    raise AssertionError("nobody waits any more")


LIMITS: TurnLimits = limits()
WORDLESS: dict[str, Answer] = {
    "cut": cut,
    "html": Response("<html>busy</html>"),
    "huge": Response(b"x" * (17 << 20)),
}
"""Responses with a good status and no readable reply."""
