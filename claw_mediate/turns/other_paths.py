"""POSTs on paths of no dialect (OpenAI's Responses, embeddings, images, audio, …), until these dialects are built.

    names its model in its body      the model policy clamps it, the budget counts it, history has a line of it
    should name one, and the model   the same without a policy; an agent with a policy is refused
    can't be read
    asks no model                    it is forwarded

The body of an agent with a policy is always read, but that of an upload of files. Of an agent without one, JSON and forms are
read as far as ``body_size_limit`` goes, so that the model's prefix picks the provider; all else streams.
"""

from __future__ import annotations

from claw_mediate.agents.authenticate import Identity
from claw_mediate.agents.directory import Agent
from claw_mediate.core.api_paths import ModelLocation, locate_model
from claw_mediate.core.http import Forward, Request, RunnerResponse, refuse
from claw_mediate.dialects.base import RunnerRequest, UnreadableRequestError
from claw_mediate.dialects.model_only import read_other_path, view_without_model
from claw_mediate.turns.budgets import Budgets
from claw_mediate.turns.passthrough import Passthrough

_HIDDEN = "on this path its body does not name it"


class OtherPaths:
    def __init__(self, passthrough: Passthrough, budgets: Budgets) -> None:
        self._passthrough = passthrough
        self._budgets = budgets

    def must_read(self, agent: Agent, request: Request) -> bool:
        """Return whether the body must be there before the request is decided about."""
        place = _place(request)
        if place == "nowhere":
            return False
        return place != "hidden" if _has_policy(agent) else _is_structured(request)

    async def decide(self, admitted: Identity, request: Request, body: bytes) -> RunnerResponse | Forward:
        """Decide about a request by its body: unpacked, and without the agent's credential."""
        try:
            view = read_other_path(body, _content_type(request))
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

    async def _forward(
        self, admitted: Identity, request: Request, view: RunnerRequest | None
    ) -> RunnerResponse | Forward:
        if view is not None:
            refusal = await self._budgets.admit(admitted.agent, request, view.model)
            if refusal is not None:
                return refusal
        return self._passthrough.forward(admitted, request, view)


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
    """Return whether the body says that it is JSON or a form."""
    content_type = _content_type(request).lower()
    return "json" in content_type or content_type.startswith("multipart/form-data")
