"""One trial: a live turn fails at an event of a reply, its runner goes on in one of four ways, and
a later turn shows what the conversation has of it (docs/spec/live.md sections 6 and 9).

    the trial    an earlier turn, or none
                 a turn of three replies, of which one fails
                 the same again, as the runner goes on        (not if the proxy has mended it)
                 one more turn
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from tests.crash.leaving import Answer, LeavingRunner, message, partial_message
from tests.crash.stopping import Fault, Point, Stop, StoppingModel, compact
from tests.proxy.pod import Pod
from tests.wires import Body, Wire, anthropic, openai, responses

type Way = Literal["chat", "messages", "input", "chain", "conversation"]
type GoingOn = Literal["same", "held", "longer", "resume"]
"""``same``: the same body. ``held``: that, and what the runner holds of the answer. ``longer``: the
same with more in the user's last message. ``resume``: what it holds, and a new message of the
user's.
"""
WIRES: dict[str, Wire] = {
    "chat": openai,
    "messages": anthropic,
    "input": responses,
    "chain": responses,
    "conversation": responses,
}
FAULTS: tuple[Fault, ...] = get_args(Fault.__value__)
POINTS: tuple[Point, ...] = get_args(Point.__value__)
_OF_THE_PROVIDER = {"cut", "end", "error"}
_LAST_REPLY = 3
_TELLING = 20
"""Characters by which a partial answer is known of a turn whose process died."""


class Place(NamedTuple):
    """A fault, and where it happens."""

    fault: Fault
    reply: int
    point: Point


def places() -> list[Place]:
    """Return all places of faults. The last reply has no call, and a whole one can't fail."""
    return [
        Place(fault, reply, point)
        for fault, reply, point in itertools.product(FAULTS, range(1, _LAST_REPLY + 1), POINTS)
        if not (reply == _LAST_REPLY and point in {"call", "arguments"})
        and not (fault in _OF_THE_PROVIDER and point == "over")
    ]


def goings_on() -> list[tuple[Way, GoingOn]]:
    """Return how runners go on. With a conversation of the provider's they hold nothing."""
    ways, goings = get_args(Way.__value__), get_args(GoingOn.__value__)
    return [each for each in itertools.product(ways, goings) if each != ("conversation", "held")]


class Trial(NamedTuple):
    name: str
    place: Place
    way: Way
    going_on: GoingOn

    def __str__(self) -> str:
        fault, reply, point = self.place
        return f"{self.name}: {fault}, reply {reply}, {point}, {self.way}, {self.going_on}"


def deal(seed: str, number: int) -> list[Trial]:
    """Return so many trials. Each place, and each way of going on, is used once before any of them
    is used again.
    """
    dealt = random.Random(seed)
    all_places = _dealt(dealt, places())
    ways = _dealt(dealt, goings_on())
    return [Trial(f"t{at}", next(all_places), *next(ways)) for at in range(number)]


def _dealt[T](dealt: random.Random, deck: list[T]) -> itertools.chain[T]:
    return itertools.chain.from_iterable(dealt.sample(deck, len(deck)) for _ in itertools.count())


@dataclass
class TrialRun:
    """A trial under way. ``seed`` decides what the trial leaves open."""

    trial: Trial
    seed: str
    pod: Pod
    model: StoppingModel
    kill: Callable[[], None]
    """Kills the proxy."""
    restart: Callable[[], None]
    """Waits for its death, and starts the next one."""
    messages: list[Body] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)
    """The user's words of each turn."""
    went_on: tuple[Way, GoingOn] | None = None
    """How the runner went on; None if its answer was whole in spite of the fault."""
    asked: Body = field(default_factory=dict)
    """The last request."""

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.seed}/{self.trial.name}")
        self._wire = WIRES[self.trial.way]
        self._unsent = 0  # The first message that the provider does not keep
        self._previous = ""
        fault, reply, _ = self.trial.place
        # A short answer is known after a kill by the session alone.
        is_named = (fault.startswith("kill") and reply == 1) or self._random.random() < 0.5
        session = self.trial.name if is_named else ""
        self._runner = LeavingRunner(self.pod, self._wire, session)
        self.model.books.listeners[self.trial.name] = lambda _: None

    def run(self) -> None:
        if self._random.random() < 0.5:
            self._answered(self._random.choice(([], [["read"]])))
        self._failing_turn()
        self._answered(self._random.choice(([], [["write"]])))
        faults = self.model.books.faults[self.trial.name]
        assert not faults, "\n".join(faults)

    # Requests

    def _new_turn(self, plan: list[list[str]]) -> str:
        name = f"{self.trial.name}.{len(self.turns)}"
        self.turns.append(f"{name} {json.dumps(plan)}")
        if self._random.random() < 0.5 or self.trial.place.point == "thinking":
            self.model.thinking.add(name)
        return name

    def _body(self, *behind: Body) -> Body:
        """Return a request with the messages so far, and others behind them."""
        way = self.trial.way
        more: Body = {}
        first = 0
        if way in {"chain", "conversation"}:
            first = self._unsent
            more["store"] = True
        if way == "chain" and self._previous:
            more["previous_response_id"] = self._previous
        if way == "conversation":
            more["conversation"] = f"conv_{self.trial.name}"
        messages = [*self.messages, *behind][first:]
        return self._wire.request(messages, (), stream=True, more=more)

    def _ask(self, body: Body) -> Answer:
        self.asked = body
        answer = self._runner.ask(body)
        faults = self.model.books.faults[self.trial.name]
        assert not faults, "\n".join(faults)
        return answer

    def _answered(self, plan: list[list[str]]) -> None:
        """Run a turn that gets its answer."""
        name = self._new_turn(plan)
        self.messages.append(self._wire.user(self.turns[-1]))
        self._take(name, self._whole(self._ask(self._body())))

    def _whole(self, answer: Answer) -> Answer:
        assert answer.outcome == "whole", f"{answer.outcome}: {answer.stream[-1000:].decode()}"
        return answer

    def _take(self, name: str, answer: Answer) -> None:
        """Take a whole answer of which the runner had nothing before."""
        said = compact("".join(self._said(name)))
        assert compact(answer.text) == said, f"{answer.text!r}, not {said!r}"
        self._keep(name, self._kept(answer), answer, said)

    def _said(self, name: str) -> list[str]:
        """Return the texts of a turn's replies, the last ones where some were asked for again."""
        tries = self.model.tries[name]
        return [tries[number][-1] for number in sorted(tries)]

    def _kept(self, answer: Answer) -> Body:
        """Return what a runner keeps of a whole answer: all of it, or its text."""
        if self._random.random() < 0.5:
            return self._wire.kept(answer.body)
        return message(self._wire, self._wire.said(answer.body).text)

    def _keep(self, name: str, kept: Body, answer: Answer, expected: str) -> None:
        self.messages.append(kept)
        self._unsent = len(self.messages)
        if self._wire is responses:
            self._previous = json.loads(answer.body)["id"]
        self.model.books.answers[name] = compact(expected)

    # The turn that fails

    def _failing_turn(self) -> None:
        kinds = [
            [self._random.choice(("write", "write", "read")) for _ in range(calls)]
            for calls in (self._random.choice((1, 1, 2)), 1)
        ]
        name = self._new_turn(kinds)
        user = self._wire.user(self.turns[-1])
        self.messages.append(user)
        stop = self._stop()
        self.model.stops[name] = stop
        first = self._runner_asks(stop, self._body())
        assert stop.times, "the reply was asked for"
        stop.is_armed = False
        if first.outcome == "whole":
            self._take(name, first)
            return

        before = {number: len(tries) for number, tries in self.model.tries[name].items()}
        held = self._held(first)
        going_on: GoingOn
        has_nothing = held is None and self.trial.way != "conversation"
        going_on = "same" if has_nothing else self.trial.going_on
        self.went_on = self.trial.way, going_on
        match going_on:
            case "same":
                self._take(name, self._whole(self._ask(self._body())))
            case "longer":
                longer = self._wire.user(f"{self.turns[-1]}\n\n[It broke off. Again:]")
                self.messages[-1] = longer
                self._take(name, self._whole(self._ask(self._body())))
            case "held":
                assert held is not None
                self._goes_on_held(name, held, before)
            case "resume":
                self._resumes(name, held)

    def _stop(self) -> Stop:
        fault, reply, point = self.trial.place
        return Stop(
            reply,
            point,
            fault,
            act=self._runner.leave if fault == "leave" else self.kill,
            has_heard=self._runner.has_heard,
            is_passing=self._random.random() < 0.5,
            is_once=self._random.random() < 0.5,
        )

    def _runner_asks(self, stop: Stop, body: Body) -> Answer:
        answer = self._runner.ask(body)
        if stop.fault.startswith("kill"):
            self.restart()
        return answer

    def _held(self, answer: Answer) -> Body | None:
        """Return the message that a runner makes of what it has of an answer."""
        held = partial_message(answer, finished=self._random.random() < 0.3)
        if held is None or self._wire is responses or self._random.random() < 0.5:
            return held

        text = answer.text
        shortest = _TELLING if self.trial.place.fault.startswith("kill") else 1
        part = text[: self._random.randrange(min(shortest, len(text)), len(text) + 1)]
        return message(self._wire, part) if part.strip() else None

    def _goes_on_held(self, name: str, held: Body, before: dict[int, int]) -> None:
        answer = self._whole(self._ask(self._body(held)))
        tries = self.model.tries[name]
        recorded = [
            tries[number][-1] for number in sorted(before) if len(tries[number]) == before[number]
        ]
        said = self._said(name)
        later = said[len(recorded) :]
        shown = compact(answer.text)
        expected = compact("".join([*self._unheld(held, recorded), *later]))
        assert shown == expected, f"{shown!r}, not {expected!r}, behind {held}"
        kept = self._kept(answer) if shown else None
        self._keep(name, self._joined(held, kept), answer, "".join(said))

    def _unheld(self, held: Body, recorded: list[str]) -> list[str]:
        """Return what is shown of recorded replies to a runner that holds a message."""
        left = compact(_text(held))
        shown: list[str] = []
        for text in map(compact, recorded):
            if left.startswith(text):
                left = left[len(text) :]
            else:
                is_shown_whole = self._wire is responses
                shown.append(text if is_shown_whole else text[len(left) :])
                left = ""
        return shown

    def _joined(self, held: Body, rest: Body | None) -> Body:
        """Return one message of both parts of an answer, as this runner makes it."""
        if rest is None:
            return held
        if self._wire is responses:
            return {"items": [*held["items"], *rest["items"]]}
        if self._wire is openai or isinstance(held["content"], str):
            return message(
                self._wire, f"{_text(held)}{self._random.choice(('', ' '))}{_text(rest)}"
            )
        content = rest["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        return {"role": "assistant", "content": [*held["content"], *blocks]}

    def _resumes(self, name: str, held: Body | None) -> None:
        """Go on with a new message behind what the runner holds."""
        self.model.left.add(name)
        if self.trial.way == "conversation":
            self._unsent = len(self.messages)
        else:
            self.model.books.answers[name] = compact(_text(held))
            self.messages += [held] if held is not None else []
        self._answered([["read"]] if self._random.random() < 0.5 else [])


def _text(held: Body | None) -> str:
    """Return the text of a message."""
    if held is None:
        return ""
    if "items" in held:
        return "".join(map(_text, held["items"]))
    content: Any = held.get("content")
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())
