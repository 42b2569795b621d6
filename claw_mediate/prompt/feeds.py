"""Feeds: live data for the system prompt, fetched side by side and cached per agent and URL.

    younger than its TTL             used as it is
    older, by less than another TTL  used as it is, and fetched again beside the turn, which does not wait
    older still, or never there      the turn waits for the fetch, at most its time
    the fetch fails                  the old copy, with its age; a note where there is none; not asked again for a while

A price of yesterday must not be taken for one of today: hence the third line. A fetch belongs to no turn: a runner that leaves
does not stop it, and turns at one time share it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from claw_contract.context_files import Feed
from claw_contract.redaction.redactor import Redactor
from claw_mediate.agents.directory import Agent
from claw_mediate.core.prompt_context import decode_printable
from claw_mediate.file_cache import MissingCredentialError, resolve_secret
from claw_mediate.http.headers import bearer
from claw_mediate.prompt.fetch import Ask, Asker, Heard, Unheard, asking
from claw_mediate.telemetry.event_log import EventLog

_REST_SECONDS = 10.0
"""How long a feed that failed is left alone, or for its TTL where that is shorter: else each turn would wait for it anew."""


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """Bounds of what feeds may add to a prompt, and of the time that a fetch may take."""

    feed_bytes: int
    total_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class FeedRead:
    """What there is of a feed now. ``text`` None: nothing. ``stale``: its age in seconds, where it is older than its TTL."""

    feed: Feed
    text: str | None
    cut: bool = False
    stale: int | None = None
    cached: bool = True


@dataclass(slots=True)
class _Copy:
    """What is kept of one URL."""

    text: str | None = None
    cut: bool = False
    fetched: float = 0.0
    failed: bool = False
    """Whether the last fetch did."""
    rests_until: float = 0.0
    fetching: asyncio.Task[None] | None = None


class Feeds:
    """The feeds of all agents."""

    def __init__(
        self,
        asker: Asker,
        secrets: Path,
        limits: FeedLimits,
        log: EventLog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self._asker = asker
        self._secrets = secrets
        self._log = log
        self._clock = clock
        self._copies: dict[str, dict[str, _Copy]] = {}
        """By agent and URL; of URLs that are no feed of the agent's any more, none."""
        self._fetching: set[asyncio.Task[None]] = set()

    async def read(self, agent: Agent) -> list[FeedRead]:
        """The agent's feeds as they are now, in the order of its file."""
        known = self._copies.get(agent.id, {})
        own = self._copies[agent.id] = {feed.url: known.get(feed.url) or _Copy() for feed in agent.feeds}
        return await asyncio.gather(*(self._read(agent, feed, own[feed.url]) for feed in agent.feeds))

    async def close(self) -> None:
        for task in self._fetching:
            task.cancel()
        if self._fetching:
            await asyncio.wait(self._fetching)

    async def _read(self, agent: Agent, feed: Feed, copy: _Copy) -> FeedRead:
        now = self._clock()
        age = now - copy.fetched if copy.text is not None else math.inf
        if age < feed.ttl:
            return FeedRead(feed, copy.text, copy.cut)
        if copy.fetching is None and now >= copy.rests_until:
            copy.fetching = asyncio.ensure_future(self._fetch(agent, feed, copy))
            self._fetching.add(copy.fetching)
            copy.fetching.add_done_callback(self._fetching.discard)
        if copy.fetching is not None and age >= 2 * feed.ttl:
            await asyncio.wait([copy.fetching])
            if copy.fetched >= now and not copy.failed:
                return FeedRead(feed, copy.text, copy.cut, cached=False)
        return FeedRead(feed, copy.text, copy.cut, stale=None if copy.text is None else round(now - copy.fetched))

    async def _fetch(self, agent: Agent, feed: Feed, copy: _Copy) -> None:
        """Fetch once; what was there stays when that fails."""
        try:
            heard, redactor = await self._ask(agent, feed)
            problem = _problem(heard)
            copy.failed = problem is not None
            if isinstance(heard, Heard) and problem is None:
                copy.cut = heard.more or len(heard.body) > self.limits.feed_bytes
                body = redactor.cut(heard.body, self.limits.feed_bytes) if copy.cut else heard.body
                copy.text = decode_printable(redactor.document(body), self.limits.feed_bytes)
                copy.fetched = self._clock()
            else:
                copy.rests_until = self._clock() + min(_REST_SECONDS, max(feed.ttl, 1))
            self._tell(agent, feed, heard, problem)
        finally:
            copy.fetching = None

    async def _ask(self, agent: Agent, feed: Feed) -> tuple[Heard | Unheard, Redactor]:
        """The service's answer, and what to blank out in it."""
        try:
            credential = None if feed.auth is None else resolve_secret(self._secrets, feed.auth)
        except MissingCredentialError:
            return Unheard("credential_missing", 0), Redactor(agent.secrets)
        redactor = Redactor([*agent.secrets, *([credential] if credential else [])])
        headers = [*asking(agent), ("accept", "application/json, text/plain;q=0.9, */*;q=0.5")]
        if credential is not None:
            headers.append(bearer(credential))
        keep = self.limits.feed_bytes + redactor.max_form_bytes
        return await self._asker.ask(agent.id, Ask("GET", feed.url, headers, None, keep, self.limits.seconds)), redactor

    def _tell(self, agent: Agent, feed: Feed, heard: Heard | Unheard, problem: str | None) -> None:
        self._log.event(
            "feed_fetch",
            agent,
            feed_name=feed.name,
            source=feed.source,
            status_code=heard.status if isinstance(heard, Heard) else None,
            latency_ms=heard.latency_ms,
            feed_source_bytes=len(heard.body) if isinstance(heard, Heard) else None,
            feed_source_exact=isinstance(heard, Heard) and not heard.more,
            feed_fetched_at=datetime.now(UTC).isoformat(timespec="seconds") if problem is None else None,
            error=problem,
        )


def _problem(heard: Heard | Unheard) -> str | None:
    """Why this is no feed, in a word."""
    if isinstance(heard, Unheard):
        return heard.reason
    if heard.ok:
        return None
    return "redirect_refused" if 300 <= heard.status < 400 else f"http_{heard.status}"  # noqa: PLR2004 - HTTP's redirects
