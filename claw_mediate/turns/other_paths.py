"""Requests on known paths of no dialect: embeddings, images, audio and the like.

They are forwarded (``passthrough``) or refused, by where the row of their path says that they name
a model (``core/known_paths.py``):

    nowhere    forwarded, unread
    optional   with a model: the policy clamps it, the budget counts it, history has a line of it;
               without: forwarded
    required   the same; where the model can't be read, an agent with a policy is refused
    hidden     counted; an agent with a policy is refused

A row may say that it is counted without a model too. Under a policy, other members that name models
are clamped like fallbacks are (``core/model_names``), and a body that can't be read is refused. Of
an agent without one, JSON and forms are read as far as ``body_size_limit`` goes, so that the
model's prefix picks the provider; all else streams.

What was read for a decision is sent unpacked: two programs that unpack a body may find two bodies
in it, and only one was decided about.
"""

import dataclasses
from functools import partial

import msgspec

from claw_mediate.agents.authenticate import Identity
from claw_mediate.agents.directory import Agent
from claw_mediate.core import json_splice
from claw_mediate.core.api_paths import creates_object, find_kept, is_batch
from claw_mediate.core.http import Forward, Request, RunnerResponse, refuse
from claw_mediate.core.json_outline import decode_request_outline
from claw_mediate.core.known_paths import KnownPath
from claw_mediate.core.object_ids import shape_of_answer
from claw_mediate.dialects.base import RunnerRequest, UnreadableRequestError
from claw_mediate.dialects.model_only import read_other_path, view_without_model
from claw_mediate.http.large_bodies import compute
from claw_mediate.providers.paths import BODYLESS, PathTables
from claw_mediate.providers.routing import find_other_models
from claw_mediate.turns.budgets import Admission, Budgets
from claw_mediate.turns.kept.fetched_document import answer_with
from claw_mediate.turns.kept.object_lists import ObjectLists
from claw_mediate.turns.kept.provider_objects import RECORDED_ELSEWHERE, Owners
from claw_mediate.turns.passthrough import ForwardDetails, Passthrough, has_policy
from claw_state.ownership import KeptObject

_HIDDEN = "on this path its body does not name it"
_COST = (
    "the agent has a limit in dollars, and nothing of this request tells what it costs: "
    "send its requests one by one, or take limit-usd out of the agent's budget and set max-requests"
)
_BATCH = "the requests of a batch stand in a file, and could name responses of another agent's"

_UNKNOWN = KnownPath((), "", "hidden", is_counted=True)
"""The row of a path that is in no table. ``Mediator.admit`` refuses such a path before."""


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
            return True  # it must be seen that there is none
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
        """Decide about a request whose body is not read; ``reason`` says why it is not."""
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

        ``reason`` says why it is not. ``view`` is what the body says of it; ``body`` is None where
        the body is not there.
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
        """Return what is known of the objects that a request names or makes.

        Return a response instead: the refusal, or the agent's own part of a list.
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


def _content_type(request: Request) -> str:
    """Return the content type; where it is named twice, one that is no form's."""
    values = request.header("content-type")
    return values[0] if len(values) == 1 else ", ".join(values)


def _is_structured(request: Request) -> bool:
    content_type = _content_type(request).lower()
    return "json" in content_type or content_type.startswith("multipart/form-data")
