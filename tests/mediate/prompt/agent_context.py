"""An agent's context, from a real service on loopback, with a clock that the test sets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from claw_contract.context_files import ContextBlock, Feed, Memory
from claw_contract.metadata import Metadata
from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_mediate.agents.directory import Agent
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.prompt.build import ContextSources, PromptContext
from claw_mediate.prompt.feeds import FeedLimits, FeedReader
from claw_mediate.prompt.fetch import ContextClient
from claw_mediate.prompt.memory import MemoryClient
from claw_mediate.telemetry.event_log import EventLog
from tests.events import known
from tests.mediate.made import limits
from tests.peers import Service

TOKEN = "feed-token-planted"
VIEW = RunnerRequest(
    b"{}", "m", False, False, (), user_texts=("I live in Paris.", "What should I buy?")
)


class AgentContext:
    """The context of one agent."""

    def __init__(
        self, service: Service, secrets: Path, *, time_line: bool = False, **bounds: Any
    ) -> None:
        self.service = service
        self.now = 1000.0
        self.wall = datetime(2026, 1, 2, 15, 4, 5, tzinfo=UTC)
        self.events: list[dict[str, Any]] = []
        log = self.log = EventLog(lambda line: self.events.append(known(line)))
        self.client = ContextClient()
        bound = FeedLimits(
            **({"feed_bytes": 32768, "total_bytes": 65536, "seconds": 20.0} | bounds)
        )
        self.feeds = FeedReader(self.client, secrets, bound, log, lambda: self.now)
        self.memories = MemoryClient(self.client, secrets, log)
        self.prompt = PromptContext(
            ContextSources(self.client, self.feeds, self.memories),
            log,
            time_line=time_line,
            now=lambda: self.wall,
        )
        self.agent = analyst()

    def has(
        self, *feeds: Mapping[str, Any], memory: Any = None, blocks: Any = (), **metadata: Any
    ) -> None:
        """Set the content of the agent's files from now on."""
        self.agent = analyst(*feeds, memory=memory, blocks=blocks, **metadata)

    def feed(self, name: str = "prices", **more: Any) -> dict[str, Any]:
        path = f"/{name}"
        return {
            "name": name,
            "source": "market",
            "path": path,
            "url": self.service.url + path,
            "auth": TOKEN,
            **more,
        }

    def memory(self, **more: Any) -> dict[str, Any]:
        auth = {"type": "bearer", "token": "memory-token-planted"}
        paths = {"recall": {"path": "/recall", "timeout_ms": 20_000}, "retain": {"path": "/retain"}}
        return {
            "version": 1,
            "service": "mem",
            "base_url": self.service.url,
            "auth": auth,
            **paths,
            **more,
        }

    async def text(self, *, recall: bool = True, redactor: Redactor | None = None) -> str:
        redactor = redactor or Redactor([*self.agent.secrets, Secret("sk-provider-planted")])
        return await self.prompt.text(self.agent, VIEW, redactor, recall=recall)

    def said(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]

    async def close(self) -> None:
        await self.prompt.close()


def analyst(
    *feeds: Mapping[str, Any], memory: Any = None, blocks: Any = (), **metadata: Any
) -> Agent:
    about = {
        "service": "analyst",
        "pod": "desk",
        "token": "analyst:s3cret-planted",
        "type": "openclaw",
        **metadata,
    }
    return Agent(
        "analyst",
        Metadata.model_validate(about),
        (),
        limits(),
        "d",
        tuple(Feed.model_validate(feed) for feed in feeds),
        Memory.model_validate(memory) if memory else None,
        tuple(ContextBlock.model_validate(block) for block in blocks),
    )
