"""Requests that are not mediated: where they go, with which key, and what is recorded of them.

The host (``mitm``) sends the bytes; this module decides to whom, and records the outcome.
A request that asks a model is a line of history like a mediated turn; others are events of the log.

POSTs on paths of no dialect (embeddings, images, audio, …):

    names its model in its body      the model policy clamps it, the budget counts it, history has a line of it
    should name one, and the model   the same without a policy; an agent with a policy is refused
    can't be read
    asks no model                    it is forwarded

The body of an agent with a policy is always read, but that of an upload of files. Of an agent without one, JSON and forms are
read as far as ``body_size_limit`` goes, so that the model's prefix picks the provider; all else streams.
"""

import asyncio
import dataclasses
import math
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from claw_contract.redaction.redactor import Redactor
from claw_mediate.agents.authenticate import Identity
from claw_mediate.agents.directory import Agent
from claw_mediate.core import json_splice
from claw_mediate.core.api_paths import ModelLocation, creates_object, find_stored, is_batch, locate_model
from claw_mediate.core.cost import ReceivedAnswer
from claw_mediate.core.http import Forward, Request, RunnerResponse, build_error_body, refuse, respond
from claw_mediate.core.model_policy import Candidate, PoolKey, Provider
from claw_mediate.core.stream_usage import ask_for_usage, has_optional_usage
from claw_mediate.dialects.base import RunnerRequest, UnreadableRequestError
from claw_mediate.dialects.model_only import NO_DIALECT, read_other_path, view_without_model
from claw_mediate.http.headers import names_containing, provider_auth
from claw_mediate.http.large_bodies import compute
from claw_mediate.providers.key_answers import RATE_LIMITED, KeyAnswer, has_own_credential, needs_body
from claw_mediate.providers.registry import ProviderRegistry
from claw_mediate.providers.routing import NO_KEY, LimitedPart, Requester, Route, Router, new_turn_id, replace_model
from claw_mediate.turns.budgets import Admission, Budgets
from claw_mediate.turns.context import RequestContext, TurnResult
from claw_mediate.turns.ownership import Ownership
from claw_mediate.turns.recorder import Recorder
from claw_state.ownership import OwnedObject

type Purpose = Literal["answer", "count", "side request"]


@dataclass(frozen=True, slots=True)
class PassthroughHandle:
    """All that is known of a forwarded request; the host gives it back with the outcome."""

    context: RequestContext
    provider: Provider
    key: PoolKey | None
    started: float
    is_dialect: bool
    """True for a request of a dialect. The codes of other paths are not believed: some refuse every ordinary key."""
    kept_as: OwnedObject | None = None  # What the provider keeps of it, but for its id; None where it keeps nothing
    conversation: OwnedObject | None = None  # The conversation that the provider puts it into
    scope: str | None = None  # What a 429 is about (``KeyAnswer``)
    hides_usage: bool = False  # True if we asked for the usage of the stream, and the runner did not


@dataclass(frozen=True, slots=True)
class ForwardDetails:
    """The facts about a request that is forwarded, beside its view."""

    redactor: Redactor | None = None
    purpose: Purpose = "answer"  # A count of tokens is no line of history; a side request is not remembered
    kept: OwnedObject | None = None  # What it goes on from: that provider is asked, with that key
    kept_as: OwnedObject | None = None  # What the provider will keep of it, without its id
    admission: Admission | None = None  # What is reserved for it; None for an agent without a limit in dollars


_ORDINARY = ForwardDetails()
_SEND_USAGE_ANYWAY = frozenset({"api.mistral.ai", "openrouter.ai"})
"""Hosts that send the usage of every stream. Mistral refuses ``stream_options.include_usage`` with 422."""


class Passthrough:
    def __init__(self, registry: ProviderRegistry, routing: Router, recorder: Recorder, ownership: Ownership) -> None:
        self._registry = registry
        self._routing = routing
        self._recorder = recorder
        self._ownership = ownership

    async def forward(
        self, admitted: Identity, request: Request, view: RunnerRequest | None, about: ForwardDetails = _ORDINARY
    ) -> RunnerResponse | Forward:
        """Return where the view's bytes go, with the credential swapped and the model's prefix removed, or a refusal."""
        asker = Requester(admitted.agent, new_turn_id())
        candidates = self._routing.candidates(asker, request, view, about.kept)
        if isinstance(candidates, RunnerResponse):
            return candidates
        is_dialect = view is not None and view.bypass != NO_DIALECT
        part = _limited_part(view, about)
        ready = self._routing.first_ready(asker, candidates, part)
        if ready is None:
            return self._no_key(request, candidates, part)
        candidate, key = ready
        provider, model = candidate.provider, candidate.model
        hides_usage = False
        if view is not None:
            write_body = partial(self._routing.body_for_model, admitted.agent, view, model)
            try:
                body = await compute(len(view.body), write_body)
                with_usage = _with_usage(request, view, body, provider) if about.admission is not None else None
            except BaseException:  # also if the runner has left
                if key is not None:  # it may be a dead one, which only this request tries
                    self._registry.record_response(provider, key, KeyAnswer(0))
                raise
            hides_usage = with_usage is not None
            view = replace(view, body=with_usage or body)
        route = Route(asker, request.path, [], [candidate])
        context = self._begin(request, view, route, about, about.redactor or self._redactor(admitted))
        base_url, target = provider.base_url, provider.strip_base_path(request.path)
        if not is_dialect:
            base_url, target = _other_target(provider, request)
        return Forward(
            base_url=base_url,
            target=target,
            credential=provider_auth(provider, key.secret if key else None),
            write_refusal=partial(_unreached, request.path, provider.name),
            body=None if view is None or (view.body is request.body and not _may_be_misread(request, view)) else view.body,
            dropped_headers=names_containing(request.headers, admitted.secret),
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
            ),
        )

    def _begin(
        self, request: Request, view: RunnerRequest | None, route: Route, about: ForwardDetails, redactor: Redactor
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

    def note_id(self, handle: PassthroughHandle, object_id: str) -> None:
        """Save under its id, which has just come, what the provider keeps of a request: the runner may name it next."""
        if handle.kept_as is not None:
            key = handle.key.id if handle.key is not None else ""
            names = {"id": object_id, "provider_id": object_id, "provider": handle.provider.name, "key_label": key}
            self._ownership.save_soon(handle.context.agent, msgspec.structs.replace(handle.kept_as, **names))

    async def record_fetch(
        self, admitted: Identity, request: Request, provider: Provider, fetch: Awaitable[TurnResult]
    ) -> RunnerResponse:
        """Return the answer to a request that asks no model, and record it."""
        asker, redactor = Requester(admitted.agent, new_turn_id()), self._redactor(admitted)
        route = Route(asker, request.path, [], [Candidate(provider, "")])
        context = RequestContext(
            turn_id=asker.turn_id, agent=admitted.agent, request=request, view=None, redactor=redactor, route=route
        )
        self._recorder.log_request(context)
        started = time.monotonic()
        result = await fetch
        body = await asyncio.to_thread(redactor.document, result.body)  # A list may be long: other requests go on meanwhile
        result = replace(result, latency_ms=round((time.monotonic() - started) * 1000), body=body)
        self._recorder.record_forwarded(context, result, ReceivedAnswer(result.status, {}))
        return respond(result.status, result.body, result.content_type, result.retry_after)

    def note_status(self, ticket: PassthroughHandle, status: int, retry_after: str) -> None:
        """Note the provider's status: a key that was throttled is not used for the next request."""
        if not needs_body(status):
            self._note_key(ticket, KeyAnswer(status, b"", retry_after))

    def record_end(self, ticket: PassthroughHandle, status: int, answer: ReceivedAnswer, body: bytes, *, whole: bool) -> None:
        """Record the response, which went through (``whole``) or broke off; ``body`` is the beginning of it."""
        if not whole:
            self._note_key(ticket, KeyAnswer(0))
        elif status == RATE_LIMITED:  # its head was noted, but whether it is about the account stands in its body
            self._note_key(ticket, KeyAnswer(status, body), is_noted=True)
        elif needs_body(status):
            self._note_key(ticket, KeyAnswer(status, body))
        latency_ms = round((time.monotonic() - ticket.started) * 1000)
        is_ok = whole and status < 400  # noqa: PLR2004 - HTTP's errors begin there
        if is_ok and ticket.conversation is not None:
            # What was owed to it went along, and no earlier turn of it can be resumed any more.
            settled = msgspec.structs.replace(ticket.conversation, owed=b"", turn=ticket.context.turn_id)
            self._ownership.save_soon(ticket.context.agent, settled)
        result = TurnResult(status, is_ok, body, latency_ms=latency_ms)
        self._recorder.record_forwarded(ticket.context, result, answer)

    def _note_key(self, ticket: PassthroughHandle, answer: KeyAnswer, *, is_noted: bool = False) -> None:
        """Record what an answer says of its key; ``is_noted``: its status was, and only its code is new."""
        if ticket.key is None:
            return
        is_model_call = ticket.is_dialect and not has_own_credential(ticket.context.request.path)
        scope = None if is_noted else ticket.scope
        answer = answer._replace(scope=scope, is_model_call=is_model_call)
        self._registry.record_response(ticket.provider, ticket.key, answer)

    def _redactor(self, admitted: Identity) -> Redactor:
        return Redactor([*self._registry.secrets(), *admitted.agent.secrets, admitted.token, admitted.secret])

    def _no_key(self, request: Request, candidates: Sequence[Candidate], part: LimitedPart) -> RunnerResponse:
        """Return the refusal where no key is usable: keys that rest will be back, dead ones will not."""
        seconds = min(self._registry.wait(candidate.provider, part.scope(candidate)) for candidate in candidates)
        message = f"no key of the provider {candidates[0].provider.name!r} is usable now"
        if seconds == math.inf:
            return refuse(request.path, 502, NO_KEY, message)
        body = build_error_body(request.path, 503, NO_KEY, message)
        return respond(503, body, retry_after=str(math.ceil(seconds)))


def _conversation(view: RunnerRequest | None, about: ForwardDetails) -> OwnedObject | None:
    """Return the conversation that the provider puts a request into; None where it puts it into none."""
    return about.kept if view is not None and view.conversation and about.purpose != "count" else None


def _with_usage(request: Request, view: RunnerRequest, body: bytes, provider: Provider) -> bytes | None:
    """Return the body of a stream that asks for its usage; None if it has one anyway, or asks for it itself."""
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


def _recorded(request: Request, view: RunnerRequest | None, model: str) -> tuple[Request, RunnerRequest | None]:
    """Return what is recorded of a request and its view: of a form its fields, in place of its files."""
    if view is None or view.history_body is None:
        return request, view
    body = view.history_body if model == view.model else replace_model(view.history_body, model)
    return dataclasses.replace(request, body=view.history_body), replace(view, body=body)


def _may_be_misread(request: Request, view: RunnerRequest) -> bool:
    """Return whether the provider could unpack another body, which names other ids than the one that was read."""
    return view.go_on_from is not None and bool(request.header("content-encoding"))


def _unreached(path: str, provider: str) -> bytes:
    return build_error_body(path, 502, "provider_unreachable", f"the provider {provider!r} gave no response")


def _other_target(provider: Provider, request: Request) -> tuple[str, str]:
    """Return base URL and path of a request of no dialect.

    Claude Code asks its host for ``/api/…`` too: a runner that names a host, or such a path, means it from the root,
    wherever the API begins there.
    """
    below = provider.strip_base_path(request.path)
    from_the_root = request.host is not None or request.path.startswith("/api/")
    if below == request.path and from_the_root:
        return urlsplit(provider.base_url)._replace(path="").geturl(), request.path
    return provider.base_url, below


_HIDDEN = "on this path its body does not name it"
_BATCH = "the requests of a batch stand in a file, and could name responses of another agent's"


class _Batch(msgspec.Struct):
    endpoint: str = ""


_batch_decoder = msgspec.json.Decoder(_Batch)


class OtherPaths:
    def __init__(self, passthrough: Passthrough, budgets: Budgets, ownership: Ownership) -> None:
        self._passthrough = passthrough
        self._ownership = ownership
        self._budgets = budgets

    def must_read(self, agent: Agent, request: Request) -> bool:
        """Return whether the body must be there before the request is decided about."""
        place = _place(request)
        if place == "nowhere":
            return False
        return place != "hidden" if _has_policy(agent) else _is_structured(request) or is_batch(request.path)

    async def decide(self, admitted: Identity, request: Request, body: bytes) -> RunnerResponse | Forward:
        """Decide about a request by its body: unpacked, and without the agent's credential."""
        try:
            view = await compute(len(body), partial(read_other_path, body, _content_type(request)))
        except UnreadableRequestError as error:
            return await self.decide_unread(admitted, request, str(error))
        place = _place(request)
        if place == "hidden" or (place == "required" and view is None):
            return await self.decide_unread(admitted, request, "its body names none", view)
        return await self._forward(admitted, request, view)

    async def decide_unread(
        self, admitted: Identity, request: Request, reason: str = "", view: RunnerRequest | None = None
    ) -> RunnerResponse | Forward:
        """Decide about a request whose model is not known. ``reason``: why it is not; ``view``: what its body says of it."""
        place = _place(request)
        if place != "nowhere" and _has_policy(admitted.agent):
            reason = _HIDDEN if place == "hidden" else reason
            message = f"the agent has a model policy, and the model of this request can't be read: {reason}"
            return refuse(request.path, 403, "model_not_allowed", message)
        if place in {"required", "hidden"}:
            view = view or view_without_model(request.body)
        return await self._forward(admitted, request, view)

    async def _forward(self, admitted: Identity, request: Request, view: RunnerRequest | None) -> RunnerResponse | Forward:
        if self._ownership.is_checked and is_batch(request.path) and _may_name_responses(request):
            return refuse(request.path, 403, "batch_not_allowed", _BATCH, param="endpoint")
        admission: Admission | None = None
        if view is not None:
            found = await self._budgets.admit(admitted.agent, request, view)
            if isinstance(found, RunnerResponse):
                return found
            admission = found
        kept_as = OwnedObject("", "", "") if creates_object(request.method, request.path) else None
        with self._budgets.held(admitted.agent, view.model if view is not None else "", admission):
            about = ForwardDetails(kept_as=kept_as, admission=admission)
            return await self._passthrough.forward(admitted, request, view, about)


def _may_name_responses(request: Request) -> bool:
    """Return whether a request begins a batch of the Responses protocol, or can be read as one."""
    if request.method.upper() != "POST":
        return False
    if request.header("content-encoding"):
        return True
    try:
        json_splice.check_utf8(request.body)
        endpoint = _batch_decoder.decode(request.body).endpoint
        json_splice.find_members(request.body, ["endpoint"])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, json_splice.JsonSpliceError):
        return True
    return find_stored("/" + endpoint) is not None


def _place(request: Request) -> ModelLocation:
    return locate_model(request.path) if request.method.upper() == "POST" else "nowhere"


def _has_policy(agent: Agent) -> bool:
    policy = agent.metadata.model_policy
    return policy is not None and bool(policy.allowed)


def _content_type(request: Request) -> str:
    """Return the content type; where it is named twice, one that is no form's."""
    values = request.header("content-type")
    return values[0] if len(values) == 1 else ", ".join(values)


def _is_structured(request: Request) -> bool:
    content_type = _content_type(request).lower()
    return "json" in content_type or content_type.startswith("multipart/form-data")
