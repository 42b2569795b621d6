"""A pod whose agent owns an object of each kind at its providers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from claw_mediate.agents.authenticate import Identity
from claw_mediate.core.http import Forward, Request
from claw_state.ownership import ProviderObject
from tests.mediate.turns.kept.kept_pod import KeepingApi, KeptPod
from tests.wires import Body

JSON = "application/json"
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"


@dataclass
class AccountApi(KeepingApi):
    """A provider whose account has objects, each in a list by its path: newest
    first, in pages of three.
    """

    objects: dict[str, list[Body]] = field(default_factory=dict)
    queries: list[dict[str, str]] = field(default_factory=list)

    async def answer(self, request: HttpRequest) -> Response:
        listed = self.objects.get(request.url.path)
        if self.instead is not None or request.method != "GET" or listed is None:
            return await super().answer(request)

        query = dict(request.query_params)
        self.queries.append(query)
        cursor = query.get("after") or query.get("after_id")
        ids = [each["id"] for each in listed]
        start = ids.index(cursor) + 1 if cursor else 0
        page = listed[start : start + 3]
        has_more = start + 3 < len(listed)
        return JSONResponse(
            {
                "object": "list",
                "data": page,
                "has_more": has_more,
                "last_id": page[-1]["id"] if page else None,
            }
        )


class ObjectPod(KeptPod):
    """A pod whose agent ``analyst`` owns an object of each kind, with ``own`` in its id."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.api = self.account = AccountApi()

    def providers(self) -> Body:
        anthropic = {
            "base_url": f"{self.second.url}/v1",
            "api_key": "sk-first",
            "api_format": "anthropic",
        }
        return {**super().providers(), "anthropic": anthropic}

    async def owns(
        self,
        *names: tuple[str, str],
        agent_id: str = "analyst",
        provider: str = "openai",
        key: str = "first",
    ) -> None:
        objects = [ProviderObject(kind, each, provider, key) for kind, each in names]
        # Where agents share an object, one of them may name a path, and not what stands in the
        # body.
        await self.mediator.state.ownership.save_objects(agent_id, objects, may_share=True)

    async def sends(
        self,
        method: str,
        path: str,
        body: Any = b"",
        agent_id: str = "analyst",
        host: str | None = None,
        headers: tuple[tuple[str, str], ...] = (("content-type", JSON),),
    ) -> Forward | tuple[int, Any]:
        """Return how a request is forwarded; or status and document of the answer."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = [("authorization", f"Bearer {self.token(agent_id)}"), *headers]
        head = Request(method, path, fields, b"", host)
        admitted = self.mediator.admit(head)
        if isinstance(admitted, Identity):
            if self.mediator.must_read(admitted, head):
                decision = await self.mediator.exchange(
                    admitted, Request(method, path, fields, raw, host)
                )
            else:
                decision = await self.mediator.other_paths.decide_unread(admitted, head)
        else:
            decision = admitted
        if isinstance(decision, Forward):
            return decision
        text = b"".join([chunk async for chunk in decision.chunks])
        return decision.status, json.loads(text) if text else None

    async def passes(self, *args: Any, **more: Any) -> Forward:
        decision = await self.sends(*args, **more)
        assert isinstance(decision, Forward), decision
        return decision

    async def refuses(self, *args: Any, **more: Any) -> tuple[int, str, str | None]:
        """Return status, code (of Anthropic's errors: the type) and member of a refusal."""
        decision = await self.sends(*args, **more)
        assert not isinstance(decision, Forward), decision
        status, answer = decision
        error = answer["error"]
        return status, error.get("code") or error["type"], error.get("param")


OWN = {
    "file": "file-own",
    "upload": "upload_own",
    "batch": "batch_own",
    "message_batch": "msgbatch_own",
    "vector_store": "vs_own",
    "container": "cntr_own",
    "assistant": "asst_own",
    "thread": "thread_own",
    "eval": "eval_own",
    "video": "video_own",
}


@asynccontextmanager
async def object_pod(home: Path) -> AsyncIterator[ObjectPod]:
    made = ObjectPod(home)
    made.open()
    for agent_id in ("analyst", "clerk"):
        made.agent(agent_id)  # without tools, so that requests of dialects are forwarded
    await made.owns(*((kind, each) for kind, each in OWN.items() if kind != "message_batch"))
    await made.owns(("message_batch", OWN["message_batch"]), provider="anthropic", key="")
    yield made
    await made.close()


def user(*content: Body) -> Body:
    return {"role": "user", "content": list(content)}
