"""A pod whose requests are on paths of no dialect."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from claw_mediate.core.cost import ReceivedAnswer
from claw_mediate.core.http import Forward, Request, RunnerResponse
from claw_state.ownership import ProviderObject
from tests.mediate.providers.test_routing import TOKEN, Pod
from tests.turns.desk import WIRES

JSON = "application/json"


EMBEDDINGS = "/v1/embeddings"


class OtherPod(Pod):
    """A pod whose requests are of no dialect."""

    def budget(self, **budget: Any) -> None:
        file = self.home / "context" / "analyst" / "metadata.json"
        metadata = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(
            json.dumps({**metadata, "budget": {"window": "1h", **budget}}), encoding="utf-8"
        )

    async def posts(
        self,
        path: str,
        body: bytes,
        content_type: str = JSON,
        host: str | None = None,
        method: str = "POST",
    ) -> RunnerResponse | Forward:
        headers = [("authorization", f"Bearer {TOKEN}"), ("content-type", content_type)]
        head = Request(method, path, headers, b"", host)
        admitted = self.mediator.admit(head)
        if isinstance(admitted, RunnerResponse):
            return admitted
        if not self.mediator.must_read(admitted, head):
            return await self.mediator.other_paths.decide_unread(admitted, head)
        return await self.mediator.exchange(admitted, Request(method, path, headers, body, host))

    async def passes(
        self, path: str, body: bytes, content_type: str = JSON, **where: Any
    ) -> Forward:
        decision = await self.posts(path, body, content_type, **where)
        assert isinstance(decision, Forward)
        return decision

    async def refuses(
        self, path: str, body: bytes, content_type: str = JSON, **where: Any
    ) -> tuple[int, str]:
        decision = await self.posts(path, body, content_type, **where)
        assert isinstance(decision, RunnerResponse)
        error = json.loads(b"".join([chunk async for chunk in decision.chunks]))["error"]
        return decision.status, error["code"]

    def ended(self, decision: Forward, usage: dict[str, Any], body: bytes = b"{}") -> None:
        answer = ReceivedAnswer(200, usage, is_usage_final=True)
        self.mediator.passthrough.record_end(decision.handle, 200, answer, body, whole=True)  # type: ignore[arg-type]

    def history(self) -> list[dict[str, Any]]:
        file = self.home / "history" / "analyst" / "history.jsonl"
        return (
            [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            if file.exists()
            else []
        )


def key(decision: Forward) -> str:
    return decision.credential[0][1].removeprefix("Bearer ")


@asynccontextmanager
async def other_pod(tmp_path: Path) -> AsyncIterator[OtherPod]:
    made = OtherPod(tmp_path, WIRES["openai"], "openai")
    made.open()
    own = {"upload": "u_1", "eval": "e_1", "video": "v_1"}
    await made.mediator.state.ownership.save_objects(
        "analyst", [ProviderObject(*each, "openai") for each in own.items()]
    )
    yield made
    await made.mediator.close(0)
    made.provider.stop()
