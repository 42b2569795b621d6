"""The proxy's additions to a system prompt: memory, context blocks, feeds and time.

docs/spec/mediation.md section 8.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from claw_contract.base import JsonObject
from claw_contract.redaction.redactor import Redactor
from claw_mediate.agents.directory import Agent
from claw_mediate.core.prompt_context import (
    assemble,
    block_section,
    feed_notice,
    feed_section,
    memory_section,
)
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.prompt.feeds import AskWorkers, FeedLimits, FeedReader, FeedSnapshot
from claw_mediate.prompt.fetch import ContextClient
from claw_mediate.prompt.memory import MemoryClient
from claw_mediate.settings import Settings
from claw_mediate.telemetry.event_log import EventLog


@dataclass(frozen=True, slots=True)
class ContextSources:
    """The services that text for system prompts comes from."""

    client: ContextClient
    feeds: FeedReader
    memories: MemoryClient


class PromptContext:
    """Builds what is added to the system prompts of the pod's agents."""

    def __init__(
        self,
        sources: ContextSources,
        log: EventLog,
        *,
        time_line: bool,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = sources.client
        self.feeds = sources.feeds
        self._memories = sources.memories
        self._log = log
        self._time_line = time_line
        self._now = now
        self._unknown_zones: set[tuple[str, str]] = set()

    @classmethod
    def of(
        cls, settings: Settings, log: EventLog, ask_workers: AskWorkers | None = None
    ) -> "PromptContext":
        """Build it from the settings; ``ask_workers`` asks all workers of this proxy for a feed."""
        client = ContextClient()
        limits = FeedLimits(settings.feed_bytes, settings.feeds_bytes, settings.feed_seconds)
        feeds = FeedReader(client, settings.secrets, limits, log, ask_workers=ask_workers)
        sources = ContextSources(client, feeds, MemoryClient(client, settings.secrets, log))
        return cls(sources, log, time_line=settings.time_line)

    def has_context(self, agent: Agent) -> bool:
        """Return whether anything may be added to this agent's requests."""
        has_memories = agent.memory is not None and agent.memory.recall is not None
        return self._time_line or has_memories or bool(agent.feeds or agent.blocks)

    async def text(
        self, agent: Agent, view: RunnerRequest, redactor: Redactor, *, recall: bool = True
    ) -> str:
        """Return the text for this request, "" if there is none.

        ``recall`` False: do not ask the memory service.
        """
        recalled = self._memories.recall(agent, view, redactor) if recall else _no_memories()
        memories, feeds = await asyncio.gather(recalled, self.feeds.read(agent))

        sections: list[str] = []
        if agent.memory:
            sections.append(memory_section(agent.memory.service, memories))
        sections += _block_sections(agent, "before_feeds")
        sections += self._feed_sections(agent, view, feeds)
        sections += _block_sections(agent, "after_feeds")
        sections.append(self._time(agent))
        return redactor.text(assemble(sections))

    def retain(self, agent: Agent, entry: JsonObject, redactor: Redactor) -> None:
        """Pass a finished turn's line of history to the agent's memory service."""
        self._memories.retain(agent, entry, redactor)

    async def close(self) -> None:
        await self._memories.close()
        await self.feeds.close()
        await self._client.close()

    def _feed_sections(
        self, agent: Agent, view: RunnerRequest, feeds: list[FeedSnapshot]
    ) -> list[str]:
        sections: list[str] = []
        total = 0
        for snapshot in feeds:
            feed = snapshot.feed
            section, status = _section(snapshot)
            size = len(section.encode())
            if status == "included" and total + size > self.feeds.limits.total_bytes:
                reason = "left out, for all feeds together are too long"
                section = feed_notice(feed.name, feed.source, reason)
                status = "skipped_total_cap"
            elif status == "included":
                total += size

            sections.append(section)
            self._log.event(
                "feed_injection",
                agent,
                model=view.model,
                feed_name=feed.name,
                source=feed.source,
                feed_status=status,
                feed_cached=snapshot.is_cached,
                feed_stale_seconds=snapshot.stale_seconds,
                feed_truncated=snapshot.is_cut,
                feed_content_bytes=len((snapshot.text or "").encode()),
                feed_total_after=total,
            )
        return sections

    def _time(self, agent: Agent) -> str:
        """Return the line with the current time; "" if it is off.

        Its form is the original system's: ``Current time: 2006-01-02 3:04 PM UTC (UTC)``.
        """
        if not self._time_line:
            return ""

        name = agent.metadata.timezone
        try:
            zone = ZoneInfo(name)
        except (LookupError, ValueError, OSError):  # no such zone, or no tzdata on this machine
            if (agent.id, name) not in self._unknown_zones:
                self._unknown_zones.add((agent.id, name))
                self._log.event(
                    "intervention", agent, intervention="timezone_unknown", timezone=name
                )
            name = "UTC"
            zone = None

        now = self._now().astimezone(zone or UTC)
        # Not by ``%I`` and ``%p``: the first begins with a zero, the second depends on the locale.
        half = "AM" if now.hour < 12 else "PM"  # noqa: PLR2004 - noon
        clock = f"{now.hour % 12 or 12}:{now:%M} {half}"
        return f"Current time: {now:%Y-%m-%d} {clock} {now.tzname()} ({name})"


def _section(snapshot: FeedSnapshot) -> tuple[str, str]:
    """Return the feed's section of the prompt, and its ``feed_status`` in the log."""
    feed = snapshot.feed
    if snapshot.text is None:
        return feed_notice(feed.name, feed.source, "unavailable at the moment"), "unavailable"
    if not snapshot.text:
        return "", "empty"

    notes: list[str] = []
    if snapshot.stale_seconds is not None:
        notes.append(f"{snapshot.stale_seconds} seconds old")
    if snapshot.is_cut:
        notes.append("cut: it goes on")
    return feed_section(feed.name, feed.source, snapshot.text, notes), "included"


def _block_sections(agent: Agent, placement: str) -> list[str]:
    return [block_section(block) for block in agent.blocks if block.placement == placement]


async def _no_memories() -> list[str]:
    return []
