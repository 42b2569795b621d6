"""A turn's model calls: which candidate is asked, with which key, and how often (spec/mediation.md section 4).

    a reply that can be read              it is the answer, and its candidate stays for the rest of the turn
    401, 402, 429                         the next key of that provider, at once; where none is left, the next candidate
    5xx, no whole response, no reply      the next candidate
    403 and any other 4xx                 passed on

Where the turn has already cost something (``again``) and nobody answered, it is asked twice more, for runners repeat a whole
turn for less: first the candidate that had answered before, then the others. A key that rests for a moment is waited for.
When all is in vain, the runner is told the last real answer.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from claw_mediate.core.model_policy import Provider
from claw_mediate.core.observer import NO_OBSERVER, RequestInfo, ResponseInfo, Subject, TurnObserver, mask_values
from claw_mediate.core.types import ModelResponse
from claw_mediate.dialects.base import UnreadableResponseError
from claw_mediate.http.headers import Headers, provider_auth
from claw_mediate.providers.client import (
    BROKE_OFF,
    TOO_LARGE,
    UNREACHABLE,
    ProviderClient,
    ProviderResponse,
    ProviderResult,
    TransportFailure,
)
from claw_mediate.providers.registry import REFUSED, THROTTLED, Registry
from claw_mediate.providers.routing import KEY_UNAVAILABLE, NO_KEY, Route, log_failover
from claw_mediate.telemetry.event_log import EventLog

TIMEOUT = "provider_timeout"
BAD_REPLY = "provider_bad_response"
_RETRIES = 2
_BACKOFF_SECONDS = 0.25
_PATIENCE_SECONDS = 5.0
"""What is waited for a key, or because a provider asks for it."""
_OK, _CLIENT_ERROR, _SERVER_ERROR, _UNAVAILABLE = 200, 400, 500, 503
_REASONS = {
    NO_KEY: KEY_UNAVAILABLE,
    UNREACHABLE: "transport_error",
    BROKE_OFF: "response_read_error",
    TOO_LARGE: "response_read_error",
    BAD_REPLY: "response_read_error",
}
"""Of a failover, where the failure's own code is not one of the original's names."""


@dataclass(frozen=True, slots=True)
class ModelBody:
    """A reply that can be read."""

    reply: ModelResponse


type ModelAnswer = ModelBody | ProviderResponse | TransportFailure


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A model call. ``read`` raises ``UnreadableResponseError``; ``again`` is asked after a failure; ``until``: loop time."""

    body: bytes
    read: Callable[[bytes], ModelResponse]
    again: Callable[[], bool]
    until: float
    round: int = 1
    onlooker: TurnObserver = NO_OBSERVER


class ProviderFailover:
    """The providers."""

    def __init__(
        self, registry: Registry, log: EventLog, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._registry = registry
        self._log = log
        self._sleep = sleep
        self._sender = ProviderClient()

    async def post(self, route: Route, call: ModelCall) -> ModelAnswer:
        """Ask; the caller bounds the time."""
        first, then = route.standing, route.others
        last = (then or first)[-1]
        await self._rest(route, self._first_pause(route))
        told: ModelAnswer | None = None
        for attempt in range(_RETRIES + 1):
            answer, repeat = await self._through(route, call, first, last)
            told = _better(told, answer)
            pause = self._pause(route, answer, attempt) if repeat and call.again() else None
            if pause is None or _now() + pause >= call.until:
                break
            await self._rest(route, pause)
        assert told is not None
        if _settles(told) or not then:
            return told
        answer, _ = await self._through(route, call, then, last, told)
        return _better(told, answer)

    async def close(self) -> None:
        await self._sender.close()

    async def _rest(self, route: Route, seconds: float) -> None:
        with route.stopwatch.away():
            await self._sleep(seconds)

    async def _through(
        self, route: Route, call: ModelCall, places: Sequence[int], last: int, failed: ModelAnswer | None = None
    ) -> tuple[ModelAnswer, bool]:
        """Candidate by candidate, until one settles it: (what the runner is told, whether all may be asked again)."""
        told, repeat = failed, False
        for place in places:
            if failed is not None:
                log_failover(self._log, route.asker, (route.candidate, route.candidates[place]), _reason(failed))
            route.at = place
            failed = await self._with_time(route, call, None if place == last else (call.until - _now()) / 2)
            if _settles(failed):
                route.answered = route.answered or isinstance(failed, ModelBody)
                return failed, False
            told, repeat = _better(told, failed), repeat or _repeatable(failed)
        assert told is not None
        return told, repeat

    async def _with_time(self, route: Route, call: ModelCall, seconds: float | None) -> ModelAnswer:
        """A candidate that another one stands behind may take half of the time that is left."""
        try:
            async with asyncio.timeout(seconds):
                return await self._ask(route, call)
        except TimeoutError:
            name = route.candidate.provider.name
            return TransportFailure(TIMEOUT, f"the provider {name!r} did not answer in time")

    async def _ask(self, route: Route, call: ModelCall) -> ModelAnswer:
        """One candidate, with one ready key after the other."""
        provider = route.candidate.provider
        answer: ProviderResult = self._no_key(provider)
        for key in self._registry.ready(provider):
            answer = await self._send(route, call, provider_auth(provider, key.secret if key else None))
            if isinstance(answer, TransportFailure) or key is None:
                break
            if not self._registry.spend(provider, key, answer.status, answer.retry_after, answer.body):
                break
        return understood(answer, call.read)

    async def _send(self, route: Route, call: ModelCall, credential: Headers) -> ProviderResult:
        """One request, of which whoever looks on is told."""
        provider = route.candidate.provider
        body, below = route.body(call.body), provider.strip_base_path(route.path)
        shown = [*route.headers, *mask_values(credential)]
        asked = RequestInfo("POST", provider.base_url.rstrip("/") + below, shown, body)
        with call.onlooker.observe(Subject("model", call.round, provider.name), asked) as heard:
            headers = [*route.headers, *credential]
            with route.stopwatch.asking(route.candidate) as told:
                answer = await self._sender.send(route.asker.agent.id, provider, below, headers, body)
                if isinstance(answer, ProviderResponse):
                    told(answer.status)
            if isinstance(answer, TransportFailure):
                heard.on_failure(answer.message)
            else:
                heard.on_response(ResponseInfo(answer.status, answer.content_type, answer.body))
        return answer

    def _no_key(self, provider: Provider) -> TransportFailure:
        message, wait = f"no key of the provider {provider.name!r} is usable now", self._registry.wait(provider)
        if wait == math.inf:
            return TransportFailure(NO_KEY, message)
        return TransportFailure(NO_KEY, message, _UNAVAILABLE, str(math.ceil(wait)))

    def _first_pause(self, route: Route) -> float:
        wait = self._wait(route)
        return wait if wait <= _PATIENCE_SECONDS else 0.0

    def _pause(self, route: Route, told: ModelAnswer, attempt: int) -> float | None:
        """Seconds until all is asked again; None when that is of no use."""
        wait = self._wait(route)
        if attempt == _RETRIES or wait > _PATIENCE_SECONDS:
            return None
        asked = self._registry.rest(told.retry_after) if isinstance(told, ProviderResponse) else None
        return max(wait, _BACKOFF_SECONDS * 4.0**attempt, asked if asked and asked <= _PATIENCE_SECONDS else 0.0)

    def _wait(self, route: Route) -> float:
        return min(self._registry.wait(route.candidates[place].provider) for place in route.standing)


def understood(answer: ProviderResult, read: Callable[[bytes], ModelResponse]) -> ModelAnswer:
    """A good response's reply, or what is wrong with it."""
    if isinstance(answer, TransportFailure) or answer.status != _OK:
        return answer
    try:
        return ModelBody(read(answer.body))
    except UnreadableResponseError as error:
        return TransportFailure(BAD_REPLY, str(error))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _settles(answer: ModelAnswer) -> bool:
    """Whether nobody else is asked."""
    if isinstance(answer, ProviderResponse):
        key_is_spent = answer.status in REFUSED or answer.status == THROTTLED
        return _CLIENT_ERROR <= answer.status < _SERVER_ERROR and not key_is_spent
    return isinstance(answer, ModelBody)


def _repeatable(answer: ModelAnswer) -> bool:
    """Whether the same may be answered otherwise in a moment."""
    if isinstance(answer, ProviderResponse):
        return answer.status == THROTTLED or answer.status >= _SERVER_ERROR
    return isinstance(answer, TransportFailure) and answer.code in {UNREACHABLE, BROKE_OFF, BAD_REPLY}


def _better(before: ModelAnswer | None, later: ModelAnswer) -> ModelAnswer:
    """What the runner is told: the last that a provider said, rather than that there was no key, or no connection."""
    return before if before is not None and _worth(before) > _worth(later) else later


def _worth(answer: ModelAnswer) -> Literal[0, 1, 2, 3]:
    if isinstance(answer, TransportFailure):
        return 0 if answer.code == NO_KEY else 1
    return 3 if _settles(answer) else 2


def _reason(failed: ModelAnswer) -> str:
    """The original's names."""
    match failed:
        case TransportFailure(code=code):
            return _REASONS.get(code, code)
        case ProviderResponse(status=status) if status in REFUSED or status == THROTTLED:
            return "provider_keys_exhausted"
        case ProviderResponse(status=status):
            return f"http_{status}"
        case ModelBody():
            raise AssertionError("a candidate that answered is kept")
