"""One text for the end of a system prompt, gathered side by side (spec/mediation.md section 8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from claw_contract.base import JsonObject
from claw_contract.redaction.redactor import Redactor
from claw_mediate.agents.directory import Agent
from claw_mediate.core.prompt_context import assemble, block_section, feed_notice, feed_section, memory_section
from claw_mediate.dialects.base import RunnerRequest
from claw_mediate.prompt.feeds import FeedLimits, FeedRead, Feeds
from claw_mediate.prompt.fetch import Asker
from claw_mediate.prompt.memory import Memories
from claw_mediate.settings import Settings
from claw_mediate.telemetry.event_log import EventLog


@dataclass(frozen=True, slots=True)
class Sources:
    """Where context comes from."""

    asker: Asker
    feeds: Feeds
    memories: Memories


class Context:
    """What is added to the requests of the pod's agents."""

    def __init__(
        self,
        sources: Sources,
        log: EventLog,
        *,
        time_line: bool,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._asker = sources.asker
        self._feeds = sources.feeds
        self._memories = sources.memories
        self._log = log
        self._time_line = time_line
        self._now = now
        self._unknown_zones: set[tuple[str, str]] = set()

    @classmethod
    def of(cls, settings: Settings, log: EventLog) -> Context:
        asker, limits = Asker(), FeedLimits(settings.feed_bytes, settings.feeds_bytes, settings.feed_seconds)
        sources = Sources(asker, Feeds(asker, settings.secrets, limits, log), Memories(asker, settings.secrets, log))
        return cls(sources, log, time_line=settings.time_line)

    def concerns(self, agent: Agent) -> bool:
        """Whether there is anything to add to this agent's requests; they pass as they are where there is not."""
        return bool(self._time_line or agent.feeds or agent.blocks or (agent.memory and agent.memory.recall))

    async def text(self, agent: Agent, view: RunnerRequest, redactor: Redactor, *, recall: bool = True) -> str:
        """The text for this request; "" when the agent has none of these. ``recall`` False: memories are not asked."""
        memories, feeds = await asyncio.gather(
            self._memories.recall(agent, view, redactor) if recall else _nothing(), self._feeds.read(agent)
        )
        before, after = (
            [block_section(block) for block in agent.blocks if block.placement == placement]
            for placement in ("before_feeds", "after_feeds")
        )
        remembered = memory_section(agent.memory.service, memories) if agent.memory else ""
        sections = [remembered, *before, *self._placed(agent, view, feeds), *after, self._time(agent)]
        return redactor.text(assemble(sections))

    def retain(self, agent: Agent, entry: JsonObject, redactor: Redactor) -> None:
        """A turn of the agent is over."""
        self._memories.retain(agent, entry, redactor)

    async def close(self) -> None:
        await self._memories.close()
        await self._feeds.close()
        await self._asker.close()

    def _placed(self, agent: Agent, view: RunnerRequest, feeds: list[FeedRead]) -> list[str]:
        """The feeds that fit, and a line for each that does not, or is not there."""
        sections: list[str] = []
        total = 0
        for read in feeds:
            section, status = _section(read)
            size = len(section.encode())
            if status == "included" and total + size > self._feeds.limits.total_bytes:
                section, status = (
                    feed_notice(read.feed.name, read.feed.source, "left out, for all feeds together are too long"),
                    ("skipped_total_cap"),
                )
            elif status == "included":
                total += size
            sections.append(section)
            self._log.event(
                "feed_injection",
                agent,
                model=view.model,
                feed_name=read.feed.name,
                source=read.feed.source,
                feed_status=status,
                feed_cached=read.cached,
                feed_stale_seconds=read.stale,
                feed_truncated=read.cut,
                feed_content_bytes=len((read.text or "").encode()),
                feed_total_after=total,
            )
        return sections

    def _time(self, agent: Agent) -> str:
        """The original's line: ``Current time: 2006-01-02 3:04 PM UTC (UTC)``."""
        if not self._time_line:
            return ""
        name = agent.metadata.timezone
        try:
            zone = ZoneInfo(name)
        except (LookupError, ValueError, OSError):  # no such zone, or no tzdata on this machine
            if (agent.id, name) not in self._unknown_zones:
                self._unknown_zones.add((agent.id, name))
                self._log.event("intervention", agent, intervention="timezone_unknown", timezone=name)
            name, zone = "UTC", None
        now = self._now().astimezone(zone or UTC)
        half = "AM" if now.hour < 12 else "PM"  # noqa: PLR2004 - noon
        return f"Current time: {now:%Y-%m-%d} {now.hour % 12 or 12}:{now:%M} {half} {now.tzname()} ({name})"


def _section(read: FeedRead) -> tuple[str, str]:
    """(what the model is told of a feed, the log's word for it)."""
    feed = read.feed
    if read.text is None:
        return feed_notice(feed.name, feed.source, "unavailable at the moment"), "unavailable"
    if not read.text:
        return "", "empty"
    notes = [f"{read.stale} seconds old"] if read.stale is not None else []
    notes += ["cut: it goes on"] if read.cut else []
    return feed_section(feed.name, feed.source, read.text, notes), "included"


async def _nothing() -> list[str]:
    return []
