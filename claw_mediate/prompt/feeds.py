"""Feeds: live data for the system prompt, fetched concurrently and cached by agent and URL.

    younger than its TTL            used
    older, by less than its TTL     used; refreshed in the background
    older still, or never fetched   the turn waits for the fetch
    the fetch fails                 the youngest copy with its age, ours or another worker's, or a
                                    note; not fetched again for a while

The third rule keeps yesterday's price from passing for today's. A fetch belongs to no turn: it goes
on when its runner leaves, and concurrent turns share it.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

import msgspec

from claw_contract.context_files import Feed
from claw_contract.redaction.redactor import Redactor
from claw_mediate.agents.directory import Agent
from claw_mediate.core.prompt_context import decode_printable
from claw_mediate.file_cache import MissingCredentialError, resolve_secret
from claw_mediate.http.headers import bearer
from claw_mediate.prompt.fetch import ContextClient, FetchRequest, FetchResult, identity_headers
from claw_mediate.telemetry.event_log import EventLog

_REDIRECTS = range(HTTPStatus.MULTIPLE_CHOICES, HTTPStatus.BAD_REQUEST)
_RETRY_SECONDS = 10.0
"""Pause after a failure, or the feed's TTL if that is shorter.

Without it, every turn would wait for the feed again.
"""


type AskWorkers = Callable[[bytes], Awaitable[Mapping[int, bytes]]]
"""Asks all workers of this proxy, and returns their replies."""


class _Question(msgspec.Struct, array_like=True):
    agent_id: str
    url: str


class _Copy(msgspec.Struct, array_like=True):
    """The text of a feed that a worker has, and its age in seconds."""

    text: str
    is_cut: bool
    age: float


_encode = msgspec.msgpack.Encoder().encode
_read_question = msgspec.msgpack.Decoder(_Question).decode
_read_copy = msgspec.msgpack.Decoder(_Copy).decode


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """Bounds of one feed, of all feeds in a prompt, and of the time of a fetch."""

    feed_bytes: int
    total_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class FeedSnapshot:
    """A feed as a turn sees it. ``text`` None: there is none.

    ``stale_seconds``: the age, if beyond the TTL.
    """

    feed: Feed
    text: str | None
    is_cut: bool = False
    stale_seconds: int | None = None
    is_cached: bool = True


@dataclass(slots=True)
class _CacheEntry:
    text: str | None = None
    is_cut: bool = False
    fetched: float = 0.0
    has_failed: bool = False  # True if the last fetch failed
    retry_at: float = 0.0
    task: asyncio.Task[None] | None = None  # The fetch that is running


class FeedReader:
    """The feeds of all agents."""

    def __init__(
        self,
        client: ContextClient,
        secrets: Path,
        limits: FeedLimits,
        log: EventLog,
        clock: Callable[[], float] = time.monotonic,
        ask_workers: AskWorkers | None = None,
    ) -> None:
        """``ask_workers`` is given where this proxy has several workers.

        A worker whose fetch fails then takes the copy that another one has.
        """
        self.limits = limits
        self._ask_workers = ask_workers
        self._client = client
        self._secrets = secrets
        self._log = log
        self._clock = clock
        self._cache: dict[str, dict[str, _CacheEntry]] = {}
        """The feeds by agent and URL; only the URLs that the agent still has."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def read(self, agent: Agent) -> list[FeedSnapshot]:
        """Return the agent's feeds as they are now, in the order of its file."""
        known = self._cache.get(agent.id, {})
        entries = self._cache[agent.id] = {
            feed.url: known.get(feed.url) or _CacheEntry() for feed in agent.feeds
        }
        return await asyncio.gather(
            *(self._read(agent, feed, entries[feed.url]) for feed in agent.feeds)
        )

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def reply(self, question: bytes) -> bytes:
        """Return our copy of a feed, for which another worker asks; empty if there is none."""
        asked = _read_question(question)
        entry = self._cache.get(asked.agent_id, {}).get(asked.url)
        if entry is None or entry.text is None:
            return b""
        return _encode(_Copy(entry.text, entry.is_cut, self._clock() - entry.fetched))

    async def _read(self, agent: Agent, feed: Feed, entry: _CacheEntry) -> FeedSnapshot:
        now = self._clock()
        age = now - entry.fetched if entry.text is not None else math.inf
        if age < feed.ttl:
            return FeedSnapshot(feed, entry.text, entry.is_cut)

        if entry.task is None and now >= entry.retry_at:
            self._start_refresh(agent, feed, entry)

        is_too_old = age >= 2 * feed.ttl  # To be used while the next is fetched
        if entry.task is not None and is_too_old:
            await asyncio.wait([entry.task])

            # A fetch that was canceled left no failure, and one that failed may have left another
            # worker's copy.
            was_fetched = entry.fetched >= now and not entry.has_failed
            if was_fetched:
                return FeedSnapshot(feed, entry.text, entry.is_cut, is_cached=False)

        if entry.text is None:
            return FeedSnapshot(feed, None)

        # Another worker's copy may be younger than the TTL, though our own fetch has failed.
        age = now - entry.fetched
        stale_seconds = None if age < feed.ttl else round(age)
        return FeedSnapshot(feed, entry.text, entry.is_cut, stale_seconds)

    def _start_refresh(self, agent: Agent, feed: Feed, entry: _CacheEntry) -> None:
        # Never eager, as mitmproxy's tasks are: it may end at once, and then forgets itself before
        # it is stored here.
        entry.task = asyncio.Task(
            self._refresh(agent, feed, entry), loop=asyncio.get_running_loop()
        )
        self._tasks.add(entry.task)
        entry.task.add_done_callback(self._tasks.discard)

    async def _refresh(self, agent: Agent, feed: Feed, entry: _CacheEntry) -> None:
        """Fetch once; keep the old copy on failure."""
        try:
            result, redactor = await self._fetch(agent, feed)
            problem = _problem(result)
            entry.has_failed = problem is not None
            if problem is None:
                self._store(entry, result, redactor)
            else:
                entry.retry_at = self._clock() + min(_RETRY_SECONDS, max(feed.ttl, 1))
                await self._take_copy(agent, feed, entry)

            self._log_fetch(agent, feed, result, problem)
        finally:
            entry.task = None

    def _store(self, entry: _CacheEntry, result: FetchResult, redactor: Redactor) -> None:
        """Store what was fetched, without secrets, and no more of it than a feed may have."""
        max_bytes = self.limits.feed_bytes
        body = result.body
        entry.is_cut = result.is_cut or len(body) > max_bytes
        if entry.is_cut:
            body = redactor.cut(body, max_bytes)

        entry.text = decode_printable(redactor.document(body), max_bytes)
        entry.fetched = self._clock()

    async def _take_copy(self, agent: Agent, feed: Feed, entry: _CacheEntry) -> None:
        """Take the youngest copy that another worker has, if it is younger than ours."""
        if self._ask_workers is None:
            return

        replies = await self._ask_workers(_encode(_Question(agent.id, feed.url)))
        for reply in replies.values():
            if not reply:
                continue

            copy = _read_copy(reply)
            fetched = self._clock() - copy.age
            if entry.text is None or fetched > entry.fetched:
                entry.text = copy.text
                entry.is_cut = copy.is_cut
                entry.fetched = fetched

    async def _fetch(self, agent: Agent, feed: Feed) -> tuple[FetchResult, Redactor]:
        """Return the result, and a redactor of the secrets that the response may repeat."""
        try:
            credential = None if feed.auth is None else resolve_secret(self._secrets, feed.auth)
        except MissingCredentialError:
            return FetchResult(0, failure="credential_missing"), Redactor(agent.secrets)

        secrets = [*agent.secrets]
        headers = [
            *identity_headers(agent),
            ("accept", "application/json, text/plain;q=0.9, */*;q=0.5"),
        ]
        if credential is not None:
            secrets.append(credential)
            headers.append(bearer(credential))

        # A secret that the bound would cut in two must still be found.
        redactor = Redactor(secrets)
        max_bytes = self.limits.feed_bytes + redactor.max_form_bytes
        request = FetchRequest("GET", feed.url, headers, None, max_bytes, self.limits.seconds)
        return await self._client.fetch(agent.id, request), redactor

    def _log_fetch(
        self, agent: Agent, feed: Feed, result: FetchResult, problem: str | None
    ) -> None:
        fetched_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._log.event(
            "feed_fetch",
            agent,
            feed_name=feed.name,
            source=feed.source,
            status_code=result.status,
            latency_ms=result.latency_ms,
            feed_source_bytes=None if result.failure else len(result.body),
            feed_source_exact=not result.failure and not result.is_cut,
            feed_fetched_at=fetched_at if problem is None else None,
            error=problem,
        )


def _problem(result: FetchResult) -> str | None:
    """Return why a feed could not be fetched; None if it could."""
    if result.status is not None and result.status in _REDIRECTS:
        return "redirect_refused"
    return result.problem
