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
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from claw_contract.base import JsonObject
from claw_contract.redaction.redactor import Redactor
from claw_mediate.agents.authenticate import Identity
from claw_mediate.agents.directory import Agent
from claw_mediate.core import json_splice
from claw_mediate.core.api_paths import ModelLocation, creates_object, find_stored, is_batch, locate_model
from claw_mediate.core.http import Forward, Request, RunnerResponse, build_error_body, refuse, respond
from claw_mediate.core.model_policy import Candidate, PoolKey, Provider
from claw_mediate.core.object_ids import AnswerShape, GivenObject, shape_of_answer
from claw_mediate.dialects.base import RunnerRequest, UnreadableRequestError
from claw_mediate.dialects.model_only import NO_DIALECT, read_other_path, view_without_model
from claw_mediate.http.headers import names_containing, provider_auth
from claw_mediate.providers.registry import RATE_LIMITED, ProviderRegistry, is_out_of_quota
from claw_mediate.providers.routing import NO_KEY, Requester, Route, Router, new_turn_id, replace_model
from claw_mediate.turns.budgets import Budgets
from claw_mediate.turns.context import RequestContext, TurnResult
from claw_mediate.turns.fetched_document import answer_with
from claw_mediate.turns.object_lists import ObjectLists
from claw_mediate.turns.ownership import Ownership
from claw_mediate.turns.provider_objects import ProviderObjects
from claw_mediate.turns.recorder import Recorder
from claw_state.ownership import OwnedObject, ProviderObject

type Purpose = Literal["answer", "count", "side request"]


@dataclass(frozen=True, slots=True)
class PassthroughHandle:
    """All that is known of a forwarded request; the host gives it back with the outcome."""

    context: RequestContext
    provider: Provider
    key: PoolKey | None
    started: float
    is_dialect: bool
    """True for a request of a dialect. A status of other paths says nothing about a key: some refuse every ordinary one."""
    kept_as: OwnedObject | None = None  # What the provider keeps of it, but for its id; None where it keeps nothing
    conversation: OwnedObject | None = None  # The conversation that the provider puts it into
    gives: AnswerShape | None = None  # Where the answer gives ids, which are the agent's


@dataclass(frozen=True, slots=True)
class ForwardDetails:
    """The facts about a request that is forwarded, beside its view."""

    redactor: Redactor | None = None
    purpose: Purpose = "answer"  # A count of tokens is no line of history; a side request is not remembered
    kept: OwnedObject | None = None  # What it goes on from: that provider is asked, with that key
    kept_as: OwnedObject | None = None  # What the provider will keep of it, without its id
    named_object: ProviderObject | None = None  # What else of the agent's it names: the same
    gives: AnswerShape | None = None  # Where the answer gives ids, which are the agent's
    read_body: bytes | None = None  # The body as it was read, where the view has none


class Owners(NamedTuple):
    """Which agent owns what providers keep."""

    ownership: Ownership
    objects: ProviderObjects


_ORDINARY = ForwardDetails()


class Passthrough:
    def __init__(self, registry: ProviderRegistry, routing: Router, recorder: Recorder, memory: Owners) -> None:
        self._registry = registry
        self._routing = routing
        self._recorder = recorder
        self._ownership, self._objects = memory

    def forward(
        self, admitted: Identity, request: Request, view: RunnerRequest | None, about: ForwardDetails = _ORDINARY
    ) -> RunnerResponse | Forward:
        """Return where the view's bytes go, with the credential swapped and the model's prefix removed, or a refusal."""
        asker = Requester(admitted.agent, new_turn_id())
        candidates = self._routing.candidates(asker, request, view, about.kept or about.named_object)
        if isinstance(candidates, RunnerResponse):
            return candidates
        ready = self._routing.first_ready(asker, candidates)
        if ready is None:
            return self._no_key(request, candidates)
        candidate, key = ready
        provider, model = candidate.provider, candidate.model
        if view is not None:
            view = replace(view, body=self._routing.body_for_model(admitted.agent, view, model))
        is_dialect = view is not None and view.bypass != NO_DIALECT
        recorded_request, recorded_view = _recorded(request, None if about.purpose == "count" else view, model)
        context = RequestContext(
            turn_id=asker.turn_id,
            agent=admitted.agent,
            request=recorded_request,
            view=recorded_view,
            redactor=about.redactor or self._redactor(admitted),
            route=Route(asker, request.path, [], [candidate]),
            is_side_request=about.purpose == "side request",
        )
        self._recorder.log_request(context)
        is_put = view is not None and view.conversation and about.purpose != "count"
        conversation = about.kept if is_put else None
        base_url, target = provider.base_url, provider.strip_base_path(request.path)
        if not is_dialect:
            base_url, target = _other_target(provider, request)
        return Forward(
            base_url=base_url,
            target=target,
            credential=provider_auth(provider, key.secret if key else None),
            write_refusal=partial(_unreached, request.path, provider.name),
            body=_body_to_send(request, about.read_body if view is None else view.body),
            dropped_headers=names_containing(request.headers, admitted.secret),
            handle=PassthroughHandle(
                context, provider, key, time.monotonic(), is_dialect, about.kept_as, conversation, about.gives
            ),
        )

    def note_id(self, handle: PassthroughHandle, object_id: str) -> None:
        """Save under its id, which has just come, what the provider keeps of a request: the runner may name it next."""
        if handle.kept_as is not None:
            key = handle.key.id if handle.key is not None else ""
            names = {"id": object_id, "provider_id": object_id, "provider": handle.provider.name, "key_label": key}
            self._ownership.save_soon(handle.context.agent, msgspec.structs.replace(handle.kept_as, **names))

    def note_objects(self, handle: PassthroughHandle, given: Sequence[GivenObject]) -> None:
        """Save that the objects which a part of the answer gives are the agent's."""
        key = handle.key.id if handle.key is not None else ""
        self._objects.save_soon(handle.context.agent, given, handle.provider.name, key)

    async def finish_noting(self) -> None:
        """Wait until the objects that were noted are saved: the runner may name them at another proxy next."""
        await self._objects.finish()

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
        self._recorder.record_forwarded(context, result, {})
        return respond(result.status, result.body, result.content_type, result.retry_after)

    def note_status(self, ticket: PassthroughHandle, status: int, retry_after: str) -> None:
        """Note the provider's status: a key that was refused or throttled is not used for the next request."""
        if ticket.key is not None and (ticket.is_dialect or status == RATE_LIMITED):
            self._registry.record_response(ticket.provider, ticket.key, status, retry_after)

    def record_end(self, ticket: PassthroughHandle, status: int, usage: JsonObject, body: bytes, *, whole: bool) -> None:
        """Record the response, which went through (``whole``) or broke off; ``body`` is the beginning of it."""
        if ticket.key is not None and is_out_of_quota(status, body):
            self._registry.record_response(ticket.provider, ticket.key, status, "", body)
        latency_ms = round((time.monotonic() - ticket.started) * 1000)
        is_ok = whole and status < 400  # noqa: PLR2004 - HTTP's errors begin there
        if is_ok and ticket.conversation is not None:
            # What was owed to it went along, and no earlier turn of it can be resumed any more.
            settled = msgspec.structs.replace(ticket.conversation, owed=b"", turn=ticket.context.turn_id)
            self._ownership.save_soon(ticket.context.agent, settled)
        result = TurnResult(status, is_ok, body, latency_ms=latency_ms)
        self._recorder.record_forwarded(ticket.context, result, usage)

    def _redactor(self, admitted: Identity) -> Redactor:
        return Redactor([*self._registry.secrets(), *admitted.agent.secrets, admitted.token, admitted.secret])

    def _no_key(self, request: Request, candidates: Sequence[Candidate]) -> RunnerResponse:
        """Return the refusal where no key is usable: keys that rest will be back, dead ones will not."""
        seconds = min(self._registry.wait(candidate.provider) for candidate in candidates)
        message = f"no key of the provider {candidates[0].provider.name!r} is usable now"
        if seconds == math.inf:
            return refuse(request.path, 502, NO_KEY, message)
        body = build_error_body(request.path, 503, NO_KEY, message)
        return respond(503, body, retry_after=str(math.ceil(seconds)))


def _recorded(request: Request, view: RunnerRequest | None, model: str) -> tuple[Request, RunnerRequest | None]:
    """Return what is recorded of a request and its view: of a form its fields, in place of its files."""
    if view is None or view.history_body is None:
        return request, view
    body = view.history_body if model == view.model else replace_model(view.history_body, model)
    return dataclasses.replace(request, body=view.history_body), replace(view, body=body)


def _body_to_send(request: Request, body: bytes | None) -> bytes | None:
    """Return the body in whose place what the runner sent is no longer sent; None where that goes on as it came.

    A packed one is sent as it was read: the provider could unpack another body, which names other ids.
    """
    is_as_it_came = body is request.body and not request.header("content-encoding")
    return None if is_as_it_came else body


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
    def __init__(self, passthrough: Passthrough, budgets: Budgets, owners: Owners, lists: ObjectLists) -> None:
        self._passthrough = passthrough
        self._ownership, self._objects = owners
        self._lists = lists
        self._budgets = budgets

    def must_read(self, agent: Agent, request: Request) -> bool:
        """Return whether the body must be there before the request is decided about."""
        if self._objects.must_read(request):
            return True
        place = _place(request)
        if place == "nowhere":
            return False
        return place != "hidden" if _has_policy(agent) else _is_structured(request) or is_batch(request.path)

    async def decide(self, admitted: Identity, request: Request, body: bytes) -> RunnerResponse | Forward:
        """Decide about a request by its body: unpacked, and without the agent's credential."""
        try:
            view = read_other_path(body, _content_type(request))
        except UnreadableRequestError as error:
            return await self.decide_unread(admitted, request, str(error))
        decision = await self._check_path(admitted, request)
        if isinstance(decision, RunnerResponse):
            return decision
        in_body = await self._objects.check_body(admitted.agent, request, body)
        if isinstance(in_body, RunnerResponse):
            return in_body
        if decision.named_object is not None and in_body is not None and in_body.provider != decision.named_object.provider:
            return self._objects.refuse_elsewhere(admitted.agent, request, in_body, decision.named_object.id)
        about = dataclasses.replace(decision, named_object=decision.named_object or in_body, read_body=body)
        place = _place(request)
        if place == "hidden" or (place == "required" and view is None):
            return await self._decide_unread(admitted, request, "its body names none", view, about)
        return await self._forward(admitted, request, view, about)

    async def _check_path(self, admitted: Identity, request: Request) -> ForwardDetails | RunnerResponse:
        """Return what is known of a request by its path; the refusal; or the agent's own part of a list."""
        match = self._objects.find_path(request)
        named = await self._objects.check_path(admitted.agent, request)
        if isinstance(named, RunnerResponse):
            return named
        if match is not None and match.row.lists is not None and self._objects.is_checked:
            provider = self._lists.find_provider(admitted, request, match)
            if isinstance(provider, RunnerResponse):
                return provider
            fetch = answer_with(self._objects.error_path(request), self._lists.read(admitted, request, match, provider))
            return await self._passthrough.record_fetch(admitted, request, provider, fetch)
        return ForwardDetails(named_object=named, gives=None if match is None else shape_of_answer(match))

    async def decide_unread(self, admitted: Identity, request: Request, reason: str = "") -> RunnerResponse | Forward:
        """Decide about a request whose body is not read. ``reason``: why it is not."""
        decision = await self._check_path(admitted, request)
        if isinstance(decision, RunnerResponse):
            return decision
        if self._objects.must_read(request):
            message = f"whose the ids in this request are can't be told: {reason}"
            return refuse(self._objects.error_path(request), 400, "invalid_request", message)
        return await self._decide_unread(admitted, request, reason, None, decision)

    async def _decide_unread(
        self, admitted: Identity, request: Request, reason: str, view: RunnerRequest | None, about: ForwardDetails
    ) -> RunnerResponse | Forward:
        """Decide about a request whose model is not known. ``reason``: why it is not; ``view``: what its body says of it."""
        place = _place(request)
        if place != "nowhere" and _has_policy(admitted.agent):
            reason = _HIDDEN if place == "hidden" else reason
            message = f"the agent has a model policy, and the model of this request can't be read: {reason}"
            return refuse(request.path, 403, "model_not_allowed", message)
        if place in {"required", "hidden"}:
            view = view or view_without_model(request.body)
        return await self._forward(admitted, request, view, about)

    async def _forward(
        self, admitted: Identity, request: Request, view: RunnerRequest | None, about: ForwardDetails
    ) -> RunnerResponse | Forward:
        if self._ownership.is_checked and is_batch(request.path) and _may_name_responses(request):
            return refuse(request.path, 403, "batch_not_allowed", _BATCH, param="endpoint")
        if view is not None:
            refusal = await self._budgets.admit(admitted.agent, request, view.model)
            if refusal is not None:
                return refusal
        kept_as = OwnedObject("", "", "") if creates_object(request.method, request.path) else None
        return self._passthrough.forward(admitted, request, view, dataclasses.replace(about, kept_as=kept_as))


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
