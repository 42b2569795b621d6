"""Requests that are not mediated: where they go, with which key, and what is recorded of them.

The host (``mitm``) sends the bytes; this module decides to whom, and records the outcome.
A request that asks a model is a line of history like a mediated turn; others are events of the log.

Requests on known paths of no dialect (embeddings, images, audio, …), by where their row says that
they name a model:

    nowhere    forwarded, unread
    optional   with a model: the policy clamps it, the budget counts it, history has a line of it;
               without: forwarded
    required   the same; where the model can't be read, an agent with a policy is refused
    hidden     counted; an agent with a policy is refused

A row may say that it is counted without a model too. Under a policy, other members that name models
are clamped like fallbacks are (``core/model_names``), and a body that can't be read is refused. Of
an agent without one, JSON and forms are read as far as ``body_size_limit`` goes, so that the
model's prefix picks the provider; all else streams. What was read for a decision is sent unpacked:
nobody can unpack another body than the one that was decided about.
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
from claw_mediate.core import json_splice
from claw_mediate.core.api_paths import creates_object, find_kept, is_batch
from claw_mediate.core.cost import ReceivedAnswer
from claw_mediate.core.http import (
    Forward,
    Request,
    RunnerResponse,
    build_error_body,
    refuse,
    respond,
)
from claw_mediate.core.json_outline import decode_request_outline
from claw_mediate.core.known_paths import KnownPath
from claw_mediate.core.model_names import find_model_headers
from claw_mediate.core.model_policy import Candidate, PoolKey, Provider
from claw_mediate.core.object_ids import AnswerShape, GivenObject, shape_of_answer
from claw_mediate.core.stream_usage import ask_for_usage, has_optional_usage
from claw_mediate.dialects.base import RunnerRequest, UnreadableRequestError
from claw_mediate.dialects.model_only import NO_DIALECT, read_other_path, view_without_model
from claw_mediate.http.headers import json_type, names_containing, provider_auth
from claw_mediate.http.large_bodies import compute
from claw_mediate.providers.key_answers import KeyAnswer, needs_body
from claw_mediate.providers.paths import BODYLESS, PathTables, provider_target
from claw_mediate.providers.registry import ProviderRegistry
from claw_mediate.providers.request_credentials import AgentRequest
from claw_mediate.providers.routing import (
    NO_KEY,
    LimitedPart,
    Requester,
    Route,
    Router,
    find_other_models,
    new_turn_id,
    replace_model,
)
from claw_mediate.turns.budgets import Admission, Budgets
from claw_mediate.turns.context import RequestContext, TurnResult
from claw_mediate.turns.kept.fetched_document import answer_with
from claw_mediate.turns.kept.object_lists import ObjectLists
from claw_mediate.turns.kept.provider_objects import RECORDED_ELSEWHERE, Owners
from claw_mediate.turns.recorder import Recorder
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
    purpose: Purpose = "answer"
    """A count of tokens is no line of history; a side request is not remembered."""
    kept: KeptObject | None = None
    """The kept object that it goes on from: that provider is asked, with that key."""
    kept_as: KeptObject | None = None
    """The record of what the provider will keep of it, without its id."""
    admission: Admission | None = None
    """What is reserved for it; None for an agent without a limit in dollars."""
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
        registry: ProviderRegistry,
        routing: Router,
        paths: PathTables,
        recorder: Recorder,
        owners: Owners,
    ) -> None:
        self._registry = registry
        self._routing = routing
        self._paths = paths
        self._recorder = recorder
        self._ownership, self._objects = owners

    async def forward(
        self,
        admitted: Identity,
        request: Request,
        view: RunnerRequest | None,
        about: ForwardDetails = _ORDINARY,
    ) -> RunnerResponse | Forward:
        """Return where the view's bytes go, with the credential swapped and the model's prefix
        removed, or a refusal.
        """
        requester = Requester(admitted.agent, new_turn_id())
        named = about.kept or about.named_object
        candidates = await self._routing.candidates(requester, request, view, named)
        if isinstance(candidates, RunnerResponse):
            return candidates

        part = _limited_part(view, about)
        ready = self._routing.first_ready(requester, candidates, part)
        if ready is None:
            return self._no_key(request, candidates, part)

        candidate, key = ready
        provider = candidate.provider
        is_dialect = view is not None and view.bypass != NO_DIALECT
        target = self._target(provider, request, is_dialect=is_dialect)
        if target is None:
            self._give_back(provider, key)
            return self._paths.refuse(admitted.agent, request)

        route = Route(requester, request.path, [], [candidate])
        hides_usage = False
        if view is not None:
            try:
                view, hides_usage = await self._adapt(request, view, route, about)
            except BaseException:  # also if the runner has left
                self._give_back(provider, key)
                raise

        redactor = about.redactor or self._redactor(admitted)
        context = self._begin(request, view, route, about, redactor)
        return Forward(
            *target,
            credential=provider_auth(provider, key.secret if key else None),
            write_refusal=partial(_unreached, request.path, provider.name),
            body=_sent_body(request, view, about),
            dropped_headers=self._dropped_headers(admitted, request),
            content_type=json_type(request.header("content-type")) if about.is_json else None,
            handle=PassthroughHandle(
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
            ),
        )

    async def _adapt(
        self, request: Request, view: RunnerRequest, route: Route, about: ForwardDetails
    ) -> tuple[RunnerRequest, bool]:
        """Return the view as its candidate takes it, and whether its stream is asked for a usage
        that the runner does not want.

        Raise ``JsonSpliceError``.
        """
        candidate, agent = route.candidate, route.requester.agent
        write_body = partial(self._routing.body_for_model, agent, view, candidate.model)
        body = await compute(len(view.body), write_body)
        if about.admission is None:
            return replace(view, body=body), False

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
            turn_id=route.requester.turn_id,
            agent=route.requester.agent,
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
        """Record that a key was not sent after all: it may be a dead one, which only this request
        would have tried.
        """
        if key is not None:
            self._registry.record_response(provider, key, KeyAnswer(0))

    def _target(
        self, provider: Provider, request: Request, *, is_dialect: bool
    ) -> tuple[str, str] | None:
        """Return base URL and path with query at a provider; None where the path is not known
        there.
        """
        match = self._paths.find_at(provider, request)
        if match is not None:
            return provider_target(provider, match, request.path)

        # A dialect's path, or that of a stored object, which were decided about as such.
        if is_dialect or find_kept(request.path) is not None:
            return provider.base_url, provider.strip_base_path(request.path)

        return None

    def refuse_by_policy(self, agent: Agent, request: Request, message: str) -> RunnerResponse:
        """Return a refusal of the agent's model policy, and log it."""
        return self._routing.refuse_by_policy(agent, request, message)

    def note_id(self, handle: PassthroughHandle, object_id: str) -> None:
        """Save what the provider keeps of a request, under its id, which has just come: the runner
        may name it next.
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
        """Wait until the objects that were noted are saved: the runner may name them at another
        proxy next.
        """
        await self._objects.finish()

    async def record_fetch(
        self, admitted: Identity, request: Request, provider: Provider, fetch: Awaitable[TurnResult]
    ) -> RunnerResponse:
        """Return the answer to a request that asks no model, and record it."""
        requester = Requester(admitted.agent, new_turn_id())
        redactor = self._redactor(admitted)
        route = Route(requester, request.path, [], [Candidate(provider, "")])
        context = RequestContext(
            turn_id=requester.turn_id,
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
        """Return the names of the headers that are not sent, in addition to those of every
        request.
        """
        holding = names_containing(request.headers, admitted.secret)
        if not has_policy(admitted.agent):
            return holding
        return (*holding, *find_model_headers(request.headers))

    def note_status(self, ticket: PassthroughHandle, status: int, retry_after: str) -> None:
        """Note the provider's status: a key that was throttled is not used for the next request."""
        if not needs_body(status):
            self._note_key(ticket, status, retry_after=retry_after)

    def record_end(
        self,
        ticket: PassthroughHandle,
        status: int,
        answer: ReceivedAnswer,
        body: bytes,
        *,
        whole: bool,
    ) -> None:
        """Record the response, which went through (``whole``) or broke off; ``body`` is the
        beginning of it.
        """
        if not whole:
            self._note_key(ticket, 0)
        elif status == HTTPStatus.TOO_MANY_REQUESTS:
            # Its head was noted; only its body says whether it is about the account.
            self._note_key(ticket, status, body, is_noted=True)
        elif needs_body(status):
            self._note_key(ticket, status, body)

        latency_ms = round((time.monotonic() - ticket.started) * 1000)
        is_ok = whole and status < HTTPStatus.BAD_REQUEST
        if is_ok and ticket.conversation is not None:
            # The results that it waited for went along, and no earlier turn of it can be resumed.
            settled = msgspec.structs.replace(
                ticket.conversation, pending_results=b"", turn=ticket.context.turn_id
            )
            self._ownership.save_soon(ticket.context.agent, settled)

        result = TurnResult(status, is_ok, body, latency_ms=latency_ms)
        self._recorder.record_forwarded(ticket.context, result, answer)

    def _note_key(
        self,
        ticket: PassthroughHandle,
        status: int,
        body: bytes = b"",
        *,
        retry_after: str = "",
        is_noted: bool = False,
    ) -> None:
        """Record what an answer says of its key.

        ``is_noted``: its status was recorded before, and only its code is new.
        """
        if ticket.key is None:
            return

        asked = ticket.context.request
        request = AgentRequest(asked.path, asked.headers, asked.body)
        scope = None if is_noted else ticket.scope
        answer = KeyAnswer(status, body, retry_after, scope, ticket.is_dialect, request)
        self._registry.record_response(ticket.provider, ticket.key, answer)

    def _redactor(self, admitted: Identity) -> Redactor:
        return Redactor(
            [*self._registry.secrets(), *admitted.agent.secrets, admitted.token, admitted.secret]
        )

    def _no_key(
        self, request: Request, candidates: Sequence[Candidate], part: LimitedPart
    ) -> RunnerResponse:
        """Return the refusal where no key is usable: keys that rest will be back, dead ones will
        not.
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
    """Return the conversation that the provider puts a request into; None where it puts it into
    none.
    """
    if view is None or not view.conversation or about.purpose == "count":
        return None
    return about.kept


def _with_usage(
    request: Request, view: RunnerRequest, body: bytes, provider: Provider
) -> bytes | None:
    """Return the body of a stream that asks for its usage; None if it has one anyway, or asks for
    it itself.
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
    """Return what is recorded of a request and its view: of a form its fields, in place of its
    files.
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


_HIDDEN = "on this path its body does not name it"
_COST = (
    "the agent has a limit in dollars, and nothing of this request tells what it costs: "
    "send its requests one by one, or take limit-usd out of the agent's budget and set max-requests"
)
_BATCH = "the requests of a batch stand in a file, and could name responses of another agent's"


class _Batch(msgspec.Struct):
    endpoint: str = ""


_batch_decoder = msgspec.json.Decoder(_Batch)


class OtherPaths:
    """The requests on known paths of no dialect."""

    def __init__(
        self,
        passthrough: Passthrough,
        paths: PathTables,
        budgets: Budgets,
        owners: Owners,
        lists: ObjectLists,
    ) -> None:
        self._passthrough = passthrough
        self._paths = paths
        self._ownership, self._objects = owners
        self._lists = lists
        self._budgets = budgets

    def must_read(self, agent: Agent, request: Request) -> bool:
        """Return whether the body must be there before the request is decided about."""
        if request.method.upper() in BODYLESS:
            return True  # that is, it must be seen that there is none
        if self._objects.must_read(request):
            return True

        place = self._row(request).model
        if place == "nowhere":
            return False
        if has_policy(agent):
            return place != "hidden"
        return _is_structured(request) or is_batch(request.path)

    async def decide(
        self, admitted: Identity, request: Request, body: bytes
    ) -> RunnerResponse | Forward:
        """Decide about a request by its body: unpacked, and without the agent's credential."""
        row = self._row(request)
        is_form = _content_type(request).lower().startswith("multipart/")
        is_json = bool(body.strip()) and not is_form
        if row.model == "nowhere":
            # What may name objects is read as JSON, or refused.
            is_json = is_json and self._objects.must_read(request)
            return await self._forward(admitted, request, None, body, is_json=is_json)

        try:
            view = await compute(len(body), partial(read_other_path, body, _content_type(request)))
            if has_policy(admitted.agent) and view is None:
                await compute(len(body), partial(check_names_none, request, body))
        except (UnreadableRequestError, json_splice.JsonSpliceError) as error:
            return await self._decide_unknown(admitted, request, row, str(error), body=body)

        if row.model == "hidden" or (row.model == "required" and view is None):
            reason = "its body names none"
            return await self._decide_unknown(admitted, request, row, reason, view, body)

        view = view or _counted(row, body)
        return await self._forward(admitted, request, view, body, is_json=is_json)

    async def decide_unread(
        self, admitted: Identity, request: Request, reason: str = ""
    ) -> RunnerResponse | Forward:
        """Decide about a request whose body is not read; ``reason``: why it is not."""
        if request.method.upper() in BODYLESS and reason:
            return self._paths.refuse_body(admitted.agent, request)

        request = self._paths.canonical(request, self._paths.find(request))
        return await self._decide_unknown(admitted, request, self._row(request), reason)

    async def _decide_unknown(
        self,
        admitted: Identity,
        request: Request,
        row: KnownPath,
        reason: str,
        view: RunnerRequest | None = None,
        body: bytes | None = None,
    ) -> RunnerResponse | Forward:
        """Decide about a request whose model is not known.

        ``reason``: why; ``view``: what its body says of it; ``body``: None where it is not there.
        """
        if row.model != "nowhere" and has_policy(admitted.agent):
            reason = _HIDDEN if row.model == "hidden" else reason
            message = (
                "the agent has a model policy, and the model of this request can't be read: "
                f"{reason}"
            )
            return self._passthrough.refuse_by_policy(admitted.agent, request, message)

        counted = _counted(row, request.body if body is None else body)
        return await self._forward(admitted, request, view or counted, body)

    async def _forward(
        self,
        admitted: Identity,
        request: Request,
        view: RunnerRequest | None,
        body: bytes | None,
        *,
        is_json: bool = False,
    ) -> RunnerResponse | Forward:
        begins_batch = self._ownership.is_checked and is_batch(request.path)
        if begins_batch and await compute(len(request.body), partial(_may_name_responses, request)):
            return refuse(request.path, 403, "batch_not_allowed", _BATCH, param="endpoint")
        if self._row(request).hides_cost and self._budgets.has_limit_usd(admitted.agent):
            return refuse(request.path, 403, "cost_not_known", _COST)

        about = await self._check_objects(admitted, request, body)
        if isinstance(about, RunnerResponse):
            return about

        admission: Admission | None = None
        if view is not None:
            found = await self._budgets.admit(admitted.agent, request, view)
            if isinstance(found, RunnerResponse):
                return found
            admission = found

        creates = creates_object(request.method, request.path)
        model = view.model if view is not None else ""
        with self._budgets.held(admitted.agent, model, admission):
            details = dataclasses.replace(
                about,
                kept_as=KeptObject("", "", "") if creates else None,
                admission=admission,
                is_read=body is not None,
                is_json=is_json,
                body=body,
            )
            return await self._passthrough.forward(admitted, request, view, details)

    async def _check_objects(
        self, admitted: Identity, request: Request, body: bytes | None
    ) -> ForwardDetails | RunnerResponse:
        """Return what is known of the objects that a request names or makes; the refusal; or the
        agent's part of a list.
        """
        named = await self._objects.check_other(admitted.agent, request, body)
        if isinstance(named, RunnerResponse):
            return named

        match = self._objects.find_path(request)
        if match is None:
            return ForwardDetails()

        is_own_list = match.row.lists is not None and match.row.lists not in RECORDED_ELSEWHERE
        if not is_own_list or not self._objects.is_checked:
            return ForwardDetails(named_object=named, gives=shape_of_answer(match))

        provider = await self._lists.find_provider(admitted, request, match)
        if isinstance(provider, RunnerResponse):
            return provider

        page = self._lists.read(admitted, request, match, provider)
        fetch = answer_with(self._objects.error_path(request), page)
        return await self._passthrough.record_fetch(admitted, request, provider, fetch)

    def _row(self, request: Request) -> KnownPath:
        match = self._paths.find(request)
        return match.row if match is not None else _UNKNOWN


_UNKNOWN = KnownPath((), "", "hidden", is_counted=True)
"""The row of a path that is in no table. ``Mediator.admit`` refuses such a path before."""


def _counted(row: KnownPath, body: bytes) -> RunnerRequest | None:
    """Return the view of a request whose model is not known, where budgets count it."""
    return view_without_model(body) if row.is_counted else None


def check_names_none(request: Request, body: bytes) -> None:
    """Raise ``UnreadableRequestError`` for a request that names models, though not by ``model``."""
    is_object = body.lstrip(b" \t\r\n").startswith(b"{")
    if body.strip() and not is_object:
        raise UnreadableRequestError("the body is not one JSON object")

    view = view_without_model(body) if is_object else None
    named = find_other_models(request, view)
    if named:
        raise UnreadableRequestError(f"{named[0].member!r} names one, and 'model' does not")


def _may_name_responses(request: Request) -> bool:
    """Return whether a request begins a batch of the Responses protocol, or can be read as one."""
    if request.method.upper() != "POST":
        return False
    if request.header("content-encoding"):
        return True

    try:
        json_splice.check_utf8(request.body)
        endpoint = decode_request_outline(_batch_decoder, request.body).endpoint
        json_splice.find_members(request.body, ["endpoint"])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, json_splice.JsonSpliceError):
        return True
    return find_kept("/" + endpoint) is not None


def has_policy(agent: Agent) -> bool:
    """Return whether a model policy says which models an agent may ask."""
    policy = agent.metadata.model_policy
    return policy is not None and bool(policy.allowed)


def _content_type(request: Request) -> str:
    """Return the content type; where it is named twice, one that is no form's."""
    values = request.header("content-type")
    return values[0] if len(values) == 1 else ", ".join(values)


def _is_structured(request: Request) -> bool:
    content_type = _content_type(request).lower()
    return "json" in content_type or content_type.startswith("multipart/form-data")
