"""A conversation through the balancer, with an SDK that retries by itself, and nobody who retries
what the SDK gave up.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2
import openai

from tests.crash.conversation import BrokenOffError, CrashConversation
from tests.crash.peers import orders
from tests.fleet.fleet import LIVE_AGENT, Fleet
from tests.proxy.pod import authority, through

WAYS = ("chat", "messages", "input", "chain")
AGENTS = ("http", LIVE_AGENT)
_MAX_STREAMS = 10
"""The tries of a turn whose stream broke off, which no SDK repeats."""


class _Listener:
    def passes(self, point: str) -> None:
        """Do nothing: here the test kills at any time."""


@dataclass
class Runner:
    """The SDKs of one agent. Those who ``forward`` believe that they talk to the provider."""

    gpt: openai.OpenAI
    claude: anthropic.Anthropic
    is_live: bool

    @classmethod
    def of(cls, fleet: Fleet, agent: str, *, forward: bool = False, **more: Any) -> Runner:
        options: dict[str, Any] = {"timeout": 120, "max_retries": 2, **more}
        is_live = agent == LIVE_AGENT
        if not forward:
            gpt = fleet.pod.client(agent, **options)
            return cls(gpt, fleet.pod.claude(agent, **options), is_live)
        client = fleet.pod.clients.enter_context(through(fleet.pod, authority(fleet.pod)))
        options["http_client"] = client
        gpt = fleet.pod.client(agent, base_url="https://api.openai.com/v1", **options)
        claude = fleet.pod.claude(agent, base_url="https://api.anthropic.com", **options)
        return cls(gpt, claude, is_live)


class Conversation(CrashConversation):
    """A conversation of turns that each may be served by another proxy; its number
    says its way and its agent.

    ``shown_in_part`` counts the streams that broke off after they had shown something.
    """

    def __init__(self, number: int, fleet: Fleet, runner: Runner, name: str = "f") -> None:
        self.name, self.random = f"{name}{number}", random.Random(f"{name}{number}")
        self.fleet, self.gpt, self.anthropic = fleet, runner.gpt, runner.claude
        self.way = WAYS[number % len(WAYS)]
        self.seed = self.name
        self.is_live = runner.is_live
        self.books = fleet.model.books
        self.books.listeners[self.name] = lambda _: None
        self.previous = self.heard = ""
        self.shown_in_part = 0
        self.turns, self.messages = [], []
        self.proxy = _Listener()  # type: ignore[assignment]

    def go_on(self, turns: int, over: threading.Event | None = None) -> None:
        """Run turns until it is over, and then so many more."""
        try:
            while over is not None and not over.is_set():
                self._turn()
            for _ in range(turns):
                self._turn()
        except (openai.APIError, anthropic.APIError) as error:
            error.add_note(
                "\n".join((f"{self.name}, {self.way}:", *self.turns, *self.books.faults[self.name]))
            )
            raise

    def _asked(self, *, stream: bool) -> str:
        """Ask once: the SDK retries by itself.

        A stream that broke off is asked for again, with the same idempotency key.

        It may have broken off behind its last event, when the turn is done: without the key it
        would be another turn.
        """
        ask = {"chat": self._asks_gpt, "messages": self._asks_claude}.get(
            self.way, self._asks_responses
        )
        if not stream:
            return ask(stream=False)
        gpt, claude = self.gpt, self.anthropic
        key = {"idempotency-key": f"{self.name}.{len(self.turns)}"}
        self.gpt, self.anthropic = (
            each.with_options(default_headers=key) for each in (gpt, claude)
        )
        try:
            for _ in range(_MAX_STREAMS):
                self.heard = ""
                try:
                    return ask(stream=True)
                except (openai.APIStatusError, anthropic.APIStatusError):
                    raise
                except (
                    openai.APIError,
                    anthropic.APIError,
                    httpx2.HTTPError,
                    BrokenOffError,
                ) as error:
                    failed = error
                    self.shown_in_part += bool(self.heard)
        finally:
            self.gpt, self.anthropic = gpt, claude
        raise failed

    def turn_ids(self) -> list[str]:
        """Return the id of each turn that called a service; check that no write was
        repeated and nothing was forgotten.
        """
        assert not self.books.faults[self.name], self.books.faults[self.name]
        ids = [self._turn_id(words) for words in self.turns]
        found = [turn_id for turn_id in ids if turn_id]
        assert len(set(found)) == len(found), "each turn has its own id"
        return found

    def all_orders(self) -> Iterable[str]:
        return (order for words in self.turns for order in orders(words))
