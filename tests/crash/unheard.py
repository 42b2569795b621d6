"""Answers that wait in a proxy which is killed, and runners that have given up: they ask anew,
without a word of a retry.

Each round has several runners that ask and do not read. Their answers are longer than what the
kernel takes, or about as long. Then a proxy is killed, and each runner reads what there is. One
whose answer was cut sends the same bytes again, on a new connection, to a proxy that runs by then:
it must get the same answer, and the service must have been called once.

The proxies are real, and their kernel takes little for each runner (``tests/proxy/narrow.py``), so
that answers need not be of megabytes; ``tests/proxy/test_delivery.py`` has those.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import httpx2

from tests.crash.peers import AppendingResponses, Books, Effect, PlanModel
from tests.proxy.pod import Pod, headers
from tests.proxy.unread import UnreadAnswer, request
from tests.waiting import eventually
from tests.wires import Body, MadeCall, Wire, anthropic, openai, responses

AGENT = "analyst"
_WIRES: tuple[Wire, ...] = (openai, anthropic, responses)
_AT_ONCE = 8
_MAX_JSON, _MAX_STREAM = 300_000, 12_000
"""Bytes of the model's words.

The kernel takes some twenty thousand of JSON; a stream is several times as long as its words.
"""
_PLAN = '[["write"]]'


@dataclass
class TalkativeModel(PlanModel):
    """The model, whose answers are as long as a trial wants them."""

    lengths: dict[str, int] = field(default_factory=dict)
    """Bytes behind the words of an answer, by the name of its turn."""
    ended: set[str] = field(default_factory=set)
    """The names of turns that the model has answered."""

    def _write(self, wire: Wire, text: str, calls: list[MadeCall], body: Body) -> bytes:
        name = text.removesuffix(" is over")
        if text:
            self.ended.add(name)
        return super()._write(wire, words(text, self.lengths[name]) if text else "", calls, body)


def words(text: str, length: int) -> str:
    return text + "." * length


class Trial(NamedTuple):
    """One request, and the answer that nobody reads yet."""

    name: str
    wire: Wire
    stream: bool
    body: bytes
    proxy: Pod
    answer: UnreadAnswer


@dataclass
class Tally:
    """The counts of one run."""

    kills: int = 0
    answers: int = 0
    cut: int = 0
    repeated: int = 0
    unmade: int = 0
    """Writes that were not made, and of which the model was told so: a busy machine
    takes longer than the state may.
    """

    def __str__(self) -> str:
        counts = (self.kills, self.answers, self.cut, self.unmade, self.repeated)
        return "{} kills, {} answers, {} cut, {} writes not made, {} writes repeated".format(
            *counts
        )


@dataclass
class UnheardRounds:
    """Rounds on the proxies of one state.

    ``kill`` kills some of them at once and returns how many processes that were.
    """

    name: str
    seed: str
    proxies: Sequence[Pod]
    model: TalkativeModel
    kill: Callable[[Pod], int]
    restart: Callable[[Pod], None]
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._books: Books = self.model.books
        self._books.listeners[self.name] = lambda _: None

    def play(self, kills: int) -> Tally:
        while self.tally.kills < kills:
            self._play_round()
        assert self.tally.unmade * 20 <= self.tally.answers, (
            f"too many writes were not made: {self.tally}"
        )
        return self.tally

    def _play_round(self) -> None:
        trials = [self._ask() for _ in range(_AT_ONCE)]
        eventually(
            lambda: all(each.name in self.model.ended for each in trials),
            "the model has answered all",
        )
        self._pause(trials)
        victim = self._random.choice(self.proxies)
        self.tally.kills += self.kill(victim)
        cut = [each for each in trials if not self._take(each)]
        self.restart(victim)
        self.tally.cut += len(cut)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self._ask_anew, cut))
        for each in trials:
            self._check_write(each)
            self.tally.unmade += not self._effects(each)
        self.model.kept = AppendingResponses()  # No trial goes on from one, and they are large

    def _ask(self) -> Trial:
        name = f"{self.name}.{self.tally.answers}"
        self.tally.answers += 1
        wire, stream = self._random.choice(_WIRES), self._random.random() < 0.5
        self.model.lengths[name] = self._random.randrange(500, _MAX_STREAM if stream else _MAX_JSON)
        message = wire.user(f"{name} {_PLAN}")
        body = json.dumps(wire.request([message], (), stream=stream, more={})).encode()
        proxy = self._random.choice(self.proxies)
        answer = UnreadAnswer(proxy.port, request(wire.PATH, proxy.token(AGENT), body))
        return Trial(name, wire, stream, body, proxy, answer)

    def _pause(self, trials: Sequence[Trial]) -> None:
        """Let a moment pass that is another in each round, mostly until all answers
        wait for the kernel.
        """
        if self._random.random() < 0.1:
            return
        eventually(
            lambda: all(each.answer.has_begun() for each in trials), "all answers are on their ways"
        )
        for _ in range(self._random.choice((0, 1, 2, 4, 8))):
            httpx2.get(f"{self._random.choice(self.proxies).url}/health", timeout=30)

    def _take(self, trial: Trial) -> bool:
        """Read what has come, and return True if it is the whole answer."""
        with trial.answer as answer:
            return answer.take_rest()

    def _ask_anew(self, trial: Trial) -> None:
        proxy = self._random.choice(self.proxies)
        answer = httpx2.post(
            proxy.url + trial.wire.PATH,
            headers=headers(proxy, AGENT),
            content=trial.body,
            timeout=60,
        )
        self._check_write(trial)
        assert answer.status_code == 200, (
            f"{trial.name}: {answer.text[:300]} {self._books.faults[self.name]}"
        )
        document = trial.wire.assembled(answer.content) if trial.stream else answer.content
        expected = words(f"{trial.name} is over", self.model.lengths[trial.name])
        assert trial.wire.said(document).text == expected

    def _check_write(self, trial: Trial) -> None:
        """Check that the write was made once; or not at all, and that the model knows."""
        effects = self._effects(trial)
        self.tally.repeated += max(0, len(effects) - 1)

        form = "a stream" if trial.stream else "JSON"
        told = self._books.told[_order(trial)].content
        case = (
            f"{trial.name} ({trial.wire.PATH}, {form}): {len(effects)} writes, and the model "
            f"was told {told}"
        )
        assert len(effects) <= 1, case
        assert effects or not json.loads(told)["ok"], case

    def _effects(self, trial: Trial) -> list[Effect]:
        return self._books.writes[_order(trial)]


def _order(trial: Trial) -> str:
    """Return the name of the trial's only call."""
    return f"{trial.name}.1.0"
