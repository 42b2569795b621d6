"""Retries and failover of a turn's model calls (docs/spec/mediation.md section 4).

    readable reply                        done; the turn keeps this candidate
    401, 403 with a code of a bad key     next key of the provider, at once; then the next candidate
    402, 429 about the account            the same
    any other 429                         the same
    5xx, no whole response, no reply      next candidate
    any other 4xx                         done; the runner gets it
    a failure, of a reply of which the    done: another reply would not begin with the same words
      runner has something (``CutReply``)

An error that the stream of a live reply tells before the runner has anything counts as a response
with the status that it means.

A runner repeats a whole turn for less than a failed request. So once a turn has cost something
(``may_retry``) and all candidates fail, they are tried twice more: first the candidate that
answered earlier, then the others. A key that rests for seconds is waited for. If everything fails,
the runner gets the last real response.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from http import HTTPStatus
from typing import Literal

import msgspec
from msgspec.structs import replace

from claw_contract.secret import Secret
from claw_mediate.core.http import Request
from claw_mediate.core.model_policy import Candidate, PoolKey, Provider
from claw_mediate.core.observer import (
    NO_OBSERVER,
    RequestInfo,
    ResponseInfo,
    Subject,
    TurnObserver,
    mask_values,
)
from claw_mediate.core.types import ModelResponse
from claw_mediate.dialects.base import FailedResponseError, UnreadableResponseError
from claw_mediate.http.headers import Headers, provider_auth
from claw_mediate.http.large_bodies import compute
from claw_mediate.providers.client import (
    BAD_REPLY,
    PROVIDER_TIMEOUT,
    TOO_LARGE,
    UNREACHABLE,
    CutReply,
    ProviderClient,
    ProviderResponse,
    ProviderResult,
    TransportFailure,
    WholeResult,
    cut_if_shown,
)
from claw_mediate.providers.key_answers import KeyAnswer
from claw_mediate.providers.live_reply import (
    BROKE_OFF,
    IDLE,
    LiveReply,
)
from claw_mediate.providers.registry import ProviderRegistry
from claw_mediate.providers.routing import KEY_UNAVAILABLE, NO_KEY, Route, log_failover
from claw_mediate.telemetry.event_log import EventLog

_MAX_RETRIES = 2
_BACKOFF_SECONDS = 0.25
_FETCH_SECONDS = 60.0
_MAX_WAIT_SECONDS = 5.0  # Longest wait for a key, or for a provider's Retry-After
_QUESTION_INTERVAL_SECONDS = 120.0
_REASONS = {
    NO_KEY: KEY_UNAVAILABLE,
    UNREACHABLE: "transport_error",
    BROKE_OFF: "response_read_error",
    TOO_LARGE: "response_read_error",
    BAD_REPLY: "response_read_error",
    IDLE: "response_read_error",
}
"""The reason of a failover event by the failure's code.

Only where the original system has another name for it.
"""
_REPEATABLE = frozenset({UNREACHABLE, BROKE_OFF, BAD_REPLY, IDLE})
"""Codes of failures that may be gone when all candidates are tried again."""


type ModelResult = ModelResponse | ProviderResult


class ModelCall(msgspec.Struct, frozen=True):
    """A model call.

    ``read`` parses a response, and raises ``UnreadableResponseError`` or ``FailedResponseError``.
    ``until`` is a deadline in loop time.

    ``adapt`` returns the body for a provider and model (``Candidate.maker``); None if all of them
    get ``body``.

    ``live`` takes the reply while it comes; None for a request that asks for no stream.
    """

    body: bytes
    read: Callable[[bytes], ModelResponse]
    may_retry: Callable[[], bool]  # Called after each failure of all candidates
    until: float
    round: int = 1
    observer: TurnObserver = NO_OBSERVER
    adapt: Callable[[str], bytes] | None = None
    live: LiveReply | None = None

    def body_for(self, maker: str) -> bytes:
        return self.body if self.adapt is None else self.adapt(maker)


class KeyQuestions:
    """Questions of our own about keys, asked in the background.

    There is one for each key within ``_QUESTION_INTERVAL_SECONDS``, so that agents can't make the
    proxy ask more often, whatever they send.
    """

    def __init__(self, registry: ProviderRegistry, client: ProviderClient) -> None:
        self._registry = registry
        self._client = client
        self._asked: dict[tuple[str, Secret], float] = {}  # By provider and secret, in loop time
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def ask(self, provider: Provider, key: PoolKey) -> None:
        """Begin to ask whether a key is sound, unless that was asked a moment ago."""
        now = _now()
        self._asked = {
            each: at for each, at in self._asked.items() if now - at < _QUESTION_INTERVAL_SECONDS
        }
        if (provider.name, key.secret) in self._asked or self._is_closed:
            return

        self._asked[provider.name, key.secret] = now
        task = asyncio.get_running_loop().create_task(self._ask(provider, key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, provider: Provider, key: PoolKey) -> None:
        answer = await self._client.ask_about(provider, key)
        if answer is not None:
            self._registry.record_answer_to_question(provider, key, *answer)

    async def close(self) -> None:
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class ProviderFailover:
    """Client of all providers that retries and fails over."""

    def __init__(
        self,
        registry: ProviderRegistry,
        log: EventLog,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._registry = registry
        self._log = log
        self._sleep = sleep
        self._client = ProviderClient()
        self._questions = KeyQuestions(registry, self._client)
        registry.ask = self._questions.ask

    async def post(self, route: Route, call: ModelCall) -> ModelResult:
        """Return the reply, or what the runner gets instead. The caller bounds the time."""
        active = route.active
        fallbacks = route.fallbacks
        last = (fallbacks or active)[-1]

        wait = self._initial_pause(route)
        if wait > 0:
            await self._pause(route, wait)

        best: ModelResult | None = None
        for attempt in range(_MAX_RETRIES + 1):
            result, is_repeatable = await self._try_candidates(route, call, active, last)
            best = _better(best, result)
            if not is_repeatable or not call.may_retry():
                break

            pause = self._retry_pause(route, result, attempt)
            if pause is None or _now() + pause >= call.until:
                break
            await self._pause(route, pause)

        assert best is not None
        if _is_final(best) or not fallbacks:
            return best

        result, _ = await self._try_candidates(route, call, fallbacks, last, best)
        return _better(best, result)

    async def fetch(self, agent_id: str, provider: Provider, request: RequestInfo) -> WholeResult:
        """Send a request that asks no model, once, with the provider's first ready key.

        Its URL is a path below the provider's base URL, and its headers hold no credential.
        """
        ready = self._registry.ready(provider, None)
        self._registry.check_dead_keys(provider)
        if not ready:
            return self._no_key(provider, None)

        key = ready[0]
        credential = provider_auth(provider, key.secret if key else None)
        request = request._replace(headers=[*request.headers, *credential])
        try:
            async with asyncio.timeout(_FETCH_SECONDS):
                result = await self._client.send(agent_id, provider, request)
        except TimeoutError:
            return TransportFailure(
                PROVIDER_TIMEOUT, f"the provider {provider.name!r} did not answer in time"
            )

        if key is not None and isinstance(result, ProviderResponse):
            answer = KeyAnswer(result.status, result.body, result.retry_after, is_model_call=False)
            self._registry.record_response(provider, key, answer)
        return result

    async def close(self) -> None:
        await self._questions.close()
        await self._client.close()

    async def _pause(self, route: Route, seconds: float) -> None:
        with route.stopwatch.waiting():
            await self._sleep(seconds)

    async def _try_candidates(
        self,
        route: Route,
        call: ModelCall,
        positions: Sequence[int],
        last: int,
        failure: ModelResult | None = None,
    ) -> tuple[ModelResult, bool]:
        """Try the candidates at these positions until one result is final.

        ``last`` is the position of the turn's last candidate, which may use all of the time;
        ``failure`` is the result of a candidate that was tried before these.

        Return (the best result, True if trying all again may help).
        """
        best = failure
        is_repeatable = False
        for position in positions:
            if failure is not None:
                step = (route.candidate, route.candidates[position])
                reason = _failover_reason(failure)
                log_failover(self._log, route.agent, route.turn_id, step, reason)

            route.position = position
            # Half of the time is left for the candidates after this one.
            seconds = None if position == last else (call.until - _now()) / 2
            result = await self._try_candidate(route, call, seconds)
            if _is_final(result):
                if isinstance(result, ModelResponse):
                    route.has_answered = True
                return result, False

            failure = result
            best = _better(best, failure)
            is_repeatable = is_repeatable or _is_repeatable(failure)

        assert best is not None
        return best, is_repeatable

    async def _try_candidate(
        self, route: Route, call: ModelCall, seconds: float | None
    ) -> ModelResult:
        if seconds is None:  # the caller bounds the time
            return await self._try_keys(route, call)

        try:
            async with asyncio.timeout(seconds) as limit:
                if call.live is None:
                    return await self._try_keys(route, call)

                # A model that thinks long is not failed over.
                with call.live.on_first_event(partial(lift_timeout, limit)):
                    return await self._try_keys(route, call)
        except TimeoutError:
            name = route.candidate.provider.name
            return TransportFailure(
                PROVIDER_TIMEOUT, f"the provider {name!r} did not answer in time"
            )

    async def _try_keys(self, route: Route, call: ModelCall) -> ModelResult:
        candidate = route.candidate
        result: ProviderResult | None = None
        for key in self._keys(candidate):
            route.key_label = key.id if key else ""
            result = await self._send_with(route, call, key)
            if not (isinstance(result, ProviderResponse) and result.is_about_key):
                break
        if result is None:
            return self._no_key(candidate.provider, candidate.model)

        size = len(result.body) if isinstance(result, ProviderResponse) else 0
        parsed = await compute(size, partial(parse_response, result, call.read))
        if isinstance(parsed, ModelResponse):
            return replace(parsed, maker=candidate.maker)
        if isinstance(parsed, CutReply):
            return parsed
        return cut_if_shown(call.live, parsed)

    def _keys(self, candidate: Candidate) -> Iterator[PoolKey | None]:
        """Yield the keys to try: those that are ready, then the dead ones whose trial is due.

        A dead key is claimed only when all before it have failed: it is this request's to try.
        """
        ready = self._registry.ready(candidate.provider, candidate.model)
        if ready:
            self._registry.check_dead_keys(candidate.provider)
        yield from ready

        while (key := self._registry.claim(candidate.provider)) is not None:
            yield key

    async def _send_with(
        self, route: Route, call: ModelCall, key: PoolKey | None
    ) -> ProviderResult:
        """Send a call with a key, and record what the answer says of it."""
        if key is None:
            return await self._send(route, call, [])

        provider = route.candidate.provider
        answer = KeyAnswer(0)
        try:
            result = await self._send(route, call, provider_auth(provider, key.secret))
            if isinstance(result, ProviderResponse):
                request = Request("POST", route.path, route.headers, call.body)
                answer = KeyAnswer(
                    result.status,
                    result.body,
                    result.retry_after,
                    scope=route.candidate.model,
                    request=request,
                )
        finally:
            # Also if the runner has left: the key may be a dead one, which nobody else tries until
            # this is known.
            is_about_key = self._registry.record_response(provider, key, answer)

        if is_about_key and isinstance(result, ProviderResponse):
            return replace(result, is_about_key=True)
        return result

    async def _send(self, route: Route, call: ModelCall, credential: Headers) -> ProviderResult:
        """Send a call to the current candidate, and show the exchange to the call's observer."""
        candidate = route.candidate
        provider = candidate.provider
        headers = route.provider_headers
        path = provider.strip_base_path(route.path)
        body = await compute(len(call.body), partial(route.body, call.body_for(candidate.maker)))

        def describe() -> RequestInfo:
            url = provider.base_url.rstrip("/") + path
            return RequestInfo("POST", url, [*headers, *mask_values(credential)], body)

        subject = Subject("model", call.round, provider.name)
        with call.observer.observe(subject, describe) as exchange:
            with route.stopwatch.model_call(candidate) as set_status:
                request = RequestInfo("POST", path, [*headers, *credential], body)
                result = await self._ask(route.agent.id, provider, request, call.live)
                if isinstance(result, ProviderResponse):
                    set_status(result.status)
                    route.keep_turn_state(result.headers)

            # An error that a stream told is shown as the response that it means.
            if isinstance(result, ProviderResponse):
                exchange.on_response(ResponseInfo(result.status, result.content_type, result.body))
            else:
                exchange.on_failure(result.message)
        return cut_if_shown(call.live, result)

    async def _ask(
        self, agent_id: str, provider: Provider, request: RequestInfo, live: LiveReply | None
    ) -> WholeResult:
        if live is None:
            return await self._client.send(agent_id, provider, request)
        return await self._client.stream(agent_id, provider, request, live)

    def _no_key(self, provider: Provider, scope: str | None) -> TransportFailure:
        message = f"no key of the provider {provider.name!r} is usable now"
        wait = self._registry.wait(provider, scope)
        if wait == math.inf:
            return TransportFailure(NO_KEY, message)
        return TransportFailure(
            NO_KEY, message, HTTPStatus.SERVICE_UNAVAILABLE, str(math.ceil(wait))
        )

    def _initial_pause(self, route: Route) -> float:
        """Return the seconds until a key is usable; 0 if the turn can't wait for it."""
        wait = self._wait(route)
        return wait if wait <= _MAX_WAIT_SECONDS else 0.0

    def _retry_pause(self, route: Route, result: ModelResult, attempt: int) -> float | None:
        """Return the seconds to wait before trying all again; None when that is of no use."""
        wait = self._wait(route)
        if attempt == _MAX_RETRIES or wait > _MAX_WAIT_SECONDS:
            return None

        pause = max(wait, _BACKOFF_SECONDS * 4.0**attempt)
        if isinstance(result, ProviderResponse):
            asked = self._registry.rest(result.retry_after)
            if asked is not None and asked <= _MAX_WAIT_SECONDS:
                return max(pause, asked)
        return pause

    def _wait(self, route: Route) -> float:
        """Return the seconds until a key of the active candidates is usable."""
        candidates = [route.candidates[position] for position in route.active]
        return min(
            self._registry.wait(candidate.provider, candidate.model) for candidate in candidates
        )


def lift_timeout(timeout: asyncio.Timeout) -> None:
    """Make a timeout end nothing any more."""
    if not timeout.expired():
        timeout.reschedule(None)


def parse_response(result: ProviderResult, read: Callable[[bytes], ModelResponse]) -> ModelResult:
    """Return the reply of a response with status 200, or the failure."""
    if not isinstance(result, ProviderResponse) or result.status != HTTPStatus.OK:
        return result

    try:
        return replace(read(result.body), headers=result.headers)
    except UnreadableResponseError as error:
        return TransportFailure(BAD_REPLY, str(error))
    except FailedResponseError as error:
        return ProviderResponse(
            error.status, result.content_type, error.body, result.retry_after, result.headers
        )


def _now() -> float:
    return asyncio.get_running_loop().time()


def _is_final(result: ModelResult) -> bool:
    """Return True for a result that no other key or candidate can better."""
    if isinstance(result, ProviderResponse):
        is_about_key = result.is_about_key or result.status == HTTPStatus.TOO_MANY_REQUESTS
        is_client_error = HTTPStatus.BAD_REQUEST <= result.status < HTTPStatus.INTERNAL_SERVER_ERROR
        return is_client_error and not is_about_key
    return isinstance(result, ModelResponse | CutReply)


def _is_repeatable(result: ModelResult) -> bool:
    """Return True if the same candidate may answer when it is tried again."""
    if isinstance(result, ProviderResponse):
        is_limited = result.status == HTTPStatus.TOO_MANY_REQUESTS
        return is_limited or result.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return isinstance(result, TransportFailure) and result.code in _REPEATABLE


def _better(before: ModelResult | None, later: ModelResult) -> ModelResult:
    """Return the one for the runner: rather a provider's response than a missing key or connection.

    Of two equal ones it is the later one.
    """
    if before is not None and _rank(before) > _rank(later):
        return before
    return later


def _rank(result: ModelResult) -> Literal[0, 1, 2, 3]:
    if isinstance(result, TransportFailure):
        return 0 if result.code == NO_KEY else 1
    return 3 if _is_final(result) else 2


def _failover_reason(failure: ModelResult) -> str:
    match failure:
        case TransportFailure(code=code):
            return _REASONS.get(code, code)
        case ProviderResponse(status=status, is_about_key=is_about_key):
            if is_about_key or status == HTTPStatus.TOO_MANY_REQUESTS:
                return "provider_keys_exhausted"
            return f"http_{status}"
        case ModelResponse() | CutReply():
            raise AssertionError("a candidate that answered is kept")
