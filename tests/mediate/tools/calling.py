"""Managed calls to a real service, as an agent makes them."""

from __future__ import annotations

import json
from typing import Any

from claw_contract.metadata import Metadata
from claw_mediate.agents.directory import Agent
from claw_mediate.core.observer import NO_OBSERVER
from claw_mediate.core.types import ToolResult
from claw_mediate.tools.executor import ToolExecutor
from tests.mediate.made import called, granted, limits
from tests.peers import Answer, Service

METADATA = Metadata.model_validate({"service": "analyst", "pod": "p", "token": "analyst:s"})
READ = {"readOnly": True}


async def call(
    executor: ToolExecutor,
    url: str,
    *,
    text: str = "{}",
    annotations: dict[str, Any] | None = None,
    seconds: float = 20.0,
    result_bytes: int = 16384,
    agent_id: str = "analyst",
    name: str = "desk.get",
    **execution: Any,
) -> ToolResult:
    tool = granted(name, annotations=annotations, base_url=url, **execution)
    agent = Agent(agent_id, METADATA, (tool,), limits(result_bytes=result_bytes), "d")
    return await executor.call(agent, NO_OBSERVER, called(tool, text), "turn_1.1.0", seconds)


def told(answer: ToolResult) -> dict[str, Any]:
    envelope: dict[str, Any] = json.loads(answer.content)
    return envelope


def serve(service: Service, said: Answer, method: str = "GET") -> str:
    service.routes[method, "/x"] = said
    return service.url
