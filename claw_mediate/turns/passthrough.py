"""Requests that are forwarded: where they go, with which key, and what is recorded of them.

The host (``mitm``) sends the bytes; this module decides to whom, and records the outcome.
A request that asks a model is a line of history like a mediated turn; others are events of the log.
"""

import asyncio
import dataclasses
import math
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Literal

import msgspec
from msgspec.structs import replace

from claw_contract.redaction.redactor import Redactor
from claw_mediate.agents.authenticate import Identity
from claw_mediate.agents.directory import Agent
from claw_mediate.core.api_paths import find_kept
from claw_mediate.core.cost import ReceivedAnswer
from claw_mediate.core.http import (
    Forward,
    Request,
    RunnerResponse,
    build_error_body,
    refuse,
    respond,
)
from claw_mediate.core.model_names import find_model_headers
from claw_mediate.core.model_policy import Candidate, PoolKey, Provider
from claw_mediate.core.object_ids import AnswerShape, GivenObject
from claw_mediate.core.stream_usage import ask_for_usage, has_optional_usage
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.dialects.model_only import NO_DIALECT
from claw_mediate.http.headers import CREDENTIALS, json_type, names_containing, provider_auth
from claw_mediate.http.large_bodies import compute
from claw_mediate.providers.key_answers import KeyAnswer, needs_body
from claw_mediate.providers.paths import PathTables, provider_target
from claw_mediate.providers.redactors import Redactors
from claw_mediate.providers.registry import ProviderRegistry
from claw_mediate.providers.routing import (
    NO_KEY,
    LimitedPart,
    Route,
    new_turn_id,
    replace_model,
)
from claw_mediate.turns.budgets import Admission
from claw_mediate.turns.context import RequestContext, TurnResult
from claw_mediate.turns.ports import TurnParts
from claw_state.ownership import KeptObject, ProviderObject

type Purpose = Literal["answer", "count", "side request"]


@dataclass(frozen=True, slots=True)
class PassthroughHandle:
    """All that is known of a forwarded request; the host gives it back with the outcome."""

    context: RequestContext
    provider: Provider
    key: PoolKey | None
    started: float
    is_dialect: bool
    """True for a request of a dialect.

    The codes of other paths are not believed: some refuse every ordinary key.
    """
    kept_as: KeptObject | None = None
    """The record of what the provider keeps of it, without its id; None where it keeps nothing."""
    conversation: KeptObject | None = None  # The conversation that the provider puts it into
    scope: str | None = None  # What a 429 is about (``KeyAnswer``)
    hides_usage: bool = False
    """True if we asked for the usage of the stream, and the runner did not."""
    gives: AnswerShape | None = None  # Where the answer gives ids, which are the agent's


@dataclass(frozen=True, slots=True)
class ForwardDetails:
    """The facts about a request that is forwarded, in addition to its view."""

    redactor: Redactor | None = None
    """The redactor that the request had when it came; None: that of its agent's requests now."""
    purpose: Purpose = "answer"
    """A count of tokens is no line of history; a side request is not remembered."""
    kept: KeptObject | None = None
    """The kept object that it goes on from: that provider is asked, with that key."""
    kept_as: KeptObject | None = None
    """The record of what the provider will keep of it, without its id."""
    admission: Admission | None = None
    """The reservation in its budget; None for an agent without a limit in dollars."""
    named_object: ProviderObject | None = None
    """Another object of the agent's that it names: that provider is asked, with that key."""
    gives: AnswerShape | None = None  # Where the answer gives ids, which are the agent's
    is_read: bool = True  # False if the request is decided about without its body
    is_json: bool = True  # True if the body was read as JSON
    body: bytes | None = None  # What was read of a request that has no view


_ORDINARY = ForwardDetails()
_SEND_USAGE_ANYWAY = frozenset({"api.mistral.ai", "openrouter.ai"})
"""Hosts that send the usage of every stream.

Mistral refuses ``stream_options.include_usage`` with 422.
"""


class Passthrough:
    """The requests that are forwarded, and their records."""

    def __init__(
        self,
        parts: TurnParts,
        registry: ProviderRegistry,
        paths: PathTables,
        redactors: Redactors,
    ) -> None:
        self._registry = registry
        self._routing = parts.routing
        self._paths = paths
        self._redactors = redactors
        self._recorder = parts.recorder
        self._ownership, self._objects = parts.owners

    async def forward(
        self,
        admitted: Identity,
        request: Request,
        view: RunnerRequest | None,
        about: ForwardDetails = _ORDINARY,
    ) -> RunnerResponse | Forward:
        """Return where the view's bytes go, or a refusal.

        The credential is swapped, and the prefix of the model is removed.
        """
        agent, turn_id = admitted.agent, new_turn_id()
        named = about.kept or about.named_object
        candidates = await self._routing.candidates(agent, turn_id, request, view, named)
        if isinstance(candidates, RunnerResponse):
            return candidates

        part = _limited_part(view, about)
        ready = self._routing.first_ready(agent, turn_id, candidates, part)
        if ready is None:
            return self._no_key(request, candidates, part)

        candidate, key = ready
        provider = candidate.provider
        is_dialect = view is not None and view.bypass != NO_DIALECT
        target = self._target(provider, request, is_dialect=is_dialect)
        if target is None:
            self._give_back(provider, key)
            return self._paths.refuse(admitted.agent, request)

        # The body as this provider and model take it.
        route = Route(agent, turn_id, request.path, [], [candidate])
        hides_usage = False
        if view is not None:
            try:
                view, hides_usage = await self._adapt(request, view, route, about)
            except BaseException:  # also if the runner has left
                self._give_back(provider, key)
                raise

        known = about.redactor or self._redactors.of_request(admitted)
        redactor = self._routing.protect_keys(candidates, known)
        context = self._begin(request, view, route, about, redactor)
        handle = PassthroughHandle(
            context=context,
            provider=provider,
            key=key,
            started=time.monotonic(),
            is_dialect=is_dialect,
            kept_as=about.kept_as,
            conversation=_conversation(view, about),
            scope=part.scope(candidate),
            hides_usage=hides_usage,
            gives=about.gives,
        )

        secret = key.secret if key else None
        content_type = json_type(request.header("content-type")) if about.is_json else None
        return Forward(
            *target,
            credential=provider_auth(provider, secret),
            write_refusal=partial(_unreached, request.path, provider.name),
            body=_sent_body(request, view, about),
            dropped_headers=self._dropped_headers(admitted, request),
            content_type=content_type,
            handle=handle,
        )

    async def _adapt(
        self, request: Request, view: RunnerRequest, route: Route, about: ForwardDetails
    ) -> tuple[RunnerRequest, bool]:
        """Return the view as its candidate takes it.

        Return also whether its stream is asked for a usage that the runner does not want. Raise
        ``JsonSpliceError``.
        """
        candidate = route.candidate
        agent = route.agent
        write_body = partial(self._routing.body_for_model, agent, view, candidate.model)
        body = await compute(len(view.body), write_body)
        if about.admission is None:
            return replace(view, body=body), False

        # Only its usage tells what a stream cost an agent with a limit in dollars.
        write_usage = partial(_with_usage, request, view, body, candidate.provider)
        with_usage = await compute(len(body), write_usage)
        return replace(view, body=with_usage or body), with_usage is not None

    def _begin(
        self,
        request: Request,
        view: RunnerRequest | None,
        route: Route,
        about: ForwardDetails,
        redactor: Redactor,
    ) -> RequestContext:
        """Log that a request goes to its provider, and return all that is recorded of it."""
        counted = None if about.purpose == "count" else view
        recorded_request, recorded_view = _recorded(request, counted, route.candidate.model)
        context = RequestContext(
            turn_id=route.turn_id,
            agent=route.agent,
            request=recorded_request,
            view=recorded_view,
            redactor=redactor,
            route=route,
            is_side_request=about.purpose == "side request",
            admission=about.admission,
        )
        self._recorder.log_request(context)
        if about.admission is not None:
            about.admission.is_under_way = True
        return context

    def _give_back(self, provider: Provider, key: PoolKey | None) -> None:
        """Record that a key was not sent after all.

        It may be a dead one, which only this request would have tried.
        """
        if key is not None:
            self._registry.record_response(provider, key, KeyAnswer(0))

    def _target(
        self, provider: Provider, request: Request, *, is_dialect: bool
    ) -> tuple[str, str] | None:
        """Return base URL and path with query at a provider; None for a path unknown there."""
        match = self._paths.find_at(provider, request)
        if match is not None:
            return provider_target(provider, match, request.path)

        # A dialect's path, or that of a kept object, which were decided about as such.
        if is_dialect or find_kept(request.path) is not None:
            return provider.base_url, provider.strip_base_path(request.path)

        return None

    def refuse_by_policy(self, agent: Agent, request: Request, message: str) -> RunnerResponse:
        """Return a refusal of the agent's model policy, and log it."""
        return self._routing.refuse_by_policy(agent, request, message)

    def note_id(self, handle: PassthroughHandle, object_id: str) -> None:
        """Save the record of what the provider keeps of a request, under its id.

        The id has just come, and the runner may name it next.
        """
        if handle.kept_as is None:
            return

        record = msgspec.structs.replace(
            handle.kept_as,
            id=object_id,
            provider_id=object_id,
            provider=handle.provider.name,
            key_label=handle.key.id if handle.key is not None else "",
        )
        self._ownership.save_soon(handle.context.agent, record)

    def note_objects(self, handle: PassthroughHandle, given: Sequence[GivenObject]) -> None:
        """Save that the objects which a part of the answer gives are the agent's."""
        key = handle.key.id if handle.key is not None else ""
        self._objects.save_soon(handle.context.agent, given, handle.provider.name, key)

    async def finish_noting(self) -> None:
        """Wait until the objects that were noted are saved.

        The runner may name them at another proxy next.
        """
        await self._objects.finish()

    async def record_fetch(
        self, admitted: Identity, request: Request, provider: Provider, fetch: Awaitable[TurnResult]
    ) -> RunnerResponse:
        """Return the answer to a request that asks no model, and record it."""
        agent, turn_id = admitted.agent, new_turn_id()
        route = Route(agent, turn_id, request.path, [], [Candidate(provider, "")])
        known = self._redactors.of_request(admitted)
        redactor = self._routing.protect_keys(route.candidates, known)
        context = RequestContext(
            turn_id=turn_id,
            agent=admitted.agent,
            request=request,
            view=None,
            redactor=redactor,
            route=route,
        )
        self._recorder.log_request(context)

        started = time.monotonic()
        result = await fetch
        # A list may be long: other requests go on meanwhile.
        body = await asyncio.to_thread(redactor.document, result.body)
        latency_ms = round((time.monotonic() - started) * 1000)

        result = replace(result, latency_ms=latency_ms, body=body)
        self._recorder.record_forwarded(context, result, ReceivedAnswer(result.status, {}))
        return respond(result.status, result.body, result.content_type, result.retry_after)

    def _dropped_headers(self, admitted: Identity, request: Request) -> tuple[str, ...]:
        """Return the headers that are not sent, in addition to those that never are."""
        # One that carries the token as it should is never sent, and need not be searched.
        others = [
            (name, value)
            for name, value in request.headers
            if name.lower() not in CREDENTIALS or not name.isascii()
        ]
        holding = names_containing(others, admitted.secret)
        if not has_policy(admitted.agent):
            return holding
        return (*holding, *find_model_headers(request.headers))

    def note_status(self, handle: PassthroughHandle, status: int, retry_after: str) -> None:
        """Note the provider's status: a key that was throttled is not used for the next request."""
        if not needs_body(status):
            self._note_key(handle, status, retry_after=retry_after)

    def record_end(
        self,
        handle: PassthroughHandle,
        status: int,
        answer: ReceivedAnswer,
        body: bytes,
        *,
        whole: bool,
    ) -> None:
        """Record the response, which went through (``whole``) or broke off.

        ``body`` is the beginning of it.
        """
        if not whole:
            self._note_key(handle, 0)
        elif status == HTTPStatus.TOO_MANY_REQUESTS:
            # Its head was noted; only its body says whether it is about the account.
            self._note_key(handle, status, body, is_noted=True)
        elif needs_body(status):
            self._note_key(handle, status, body)

        latency_ms = round((time.monotonic() - handle.started) * 1000)
        is_ok = whole and status < HTTPStatus.BAD_REQUEST
        if is_ok and handle.conversation is not None:
            # The request brought the results that the conversation waited for. Its turn is the
            # latest now, so no earlier one is resumed.
            settled = msgspec.structs.replace(
                handle.conversation, pending_results=b"", turn=handle.context.turn_id
            )
            self._ownership.save_soon(handle.context.agent, settled)

        result = TurnResult(status, is_ok, body, latency_ms=latency_ms)
        self._recorder.record_forwarded(handle.context, result, answer)

    def _note_key(
        self,
        handle: PassthroughHandle,
        status: int,
        body: bytes = b"",
        *,
        retry_after: str = "",
        is_noted: bool = False,
    ) -> None:
        """Record what an answer says of its key.

        ``is_noted``: its status was recorded before, and only its code is new.
        """
        if handle.key is None:
            return

        request = handle.context.request
        scope = None if is_noted else handle.scope
        answer = KeyAnswer(status, body, retry_after, scope, handle.is_dialect, request)
        self._registry.record_response(handle.provider, handle.key, answer)

    def _no_key(
        self, request: Request, candidates: Sequence[Candidate], part: LimitedPart
    ) -> RunnerResponse:
        """Return the refusal where no key is usable.

        Keys that rest will be back (503 with a time); dead ones will not (502).
        """
        seconds = min(
            self._registry.wait(candidate.provider, part.scope(candidate))
            for candidate in candidates
        )
        message = f"no key of the provider {candidates[0].provider.name!r} is usable now"
        if seconds == math.inf:
            return refuse(request.path, 502, NO_KEY, message)

        body = build_error_body(request.path, 503, NO_KEY, message)
        return respond(503, body, retry_after=str(math.ceil(seconds)))


def _conversation(view: RunnerRequest | None, about: ForwardDetails) -> KeptObject | None:
    """Return the conversation that the provider puts a request into; None without one."""
    if view is None or not view.conversation or about.purpose == "count":
        return None
    return about.kept


def _with_usage(
    request: Request, view: RunnerRequest, body: bytes, provider: Provider
) -> bytes | None:
    """Return the body of a stream that asks for its usage.

    Return None if the stream has one anyway, or its runner asks for it.
    """
    if not view.stream or view.model_span is not None or provider.host in _SEND_USAGE_ANYWAY:
        return None
    return ask_for_usage(body) if has_optional_usage(request.path) else None


def _limited_part(view: RunnerRequest | None, about: ForwardDetails) -> LimitedPart:
    """Return the part of the provider's API whose limits a request is under."""
    if view is None:
        return LimitedPart.NO_MODEL
    if view.bypass == NO_DIALECT:
        return LimitedPart.OTHER_PATHS
    return LimitedPart.COUNTS if about.purpose == "count" else LimitedPart.ANSWERS


def _recorded(
    request: Request, view: RunnerRequest | None, model: str
) -> tuple[Request, RunnerRequest | None]:
    """Return what is recorded of a request and its view.

    Of a form, that is its fields in place of its files.
    """
    if view is None or view.history_body is None:
        return request, view

    body = view.history_body if model == view.model else replace_model(view.history_body, model)
    return dataclasses.replace(request, body=view.history_body), replace(view, body=body)


def _sent_body(request: Request, view: RunnerRequest | None, about: ForwardDetails) -> bytes | None:
    """Return the body that is sent in place of the runner's; None where that goes as it came.

    A packed body that was read goes unpacked: two that unpack it could find two bodies in it.
    """
    body = about.body if view is None else view.body
    if body is None or not about.is_read:
        return None
    is_packed = bool(request.header("content-encoding"))
    return body if is_packed or body is not request.body else None


def _unreached(path: str, provider: str) -> bytes:
    message = f"the provider {provider!r} gave no response"
    return build_error_body(path, 502, "provider_unreachable", message)


def has_policy(agent: Agent) -> bool:
    """Return whether a model policy says which models an agent may ask."""
    policy = agent.metadata.model_policy
    return policy is not None and bool(policy.allowed)
