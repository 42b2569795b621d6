"""The supervisor's side of questions: a worker asks, all who are up reply, and the
worker gets the replies together.

What workers that have ended had counted stays in the sum, and so does that of silent ones, as of
the last question: a counter must not fall.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from claw_mediate.telemetry.metrics_sum import Snapshot, add_up, decode, encode, keep_counts
from claw_mediate.workers.frames import Message, Topic
from claw_mediate.workers.worker import ASK_SECONDS, SUPERVISOR

_SECONDS = ASK_SECONDS * 0.75  # The time to reply; the rest is for the way back
_METRICS: Topic = "metrics"

type Send = Callable[[int, Message], None]  # To the worker of that number


@dataclass
class _Question:
    asker: int
    number: int  # The asker's own
    topic: Topic
    waiting: set[int]
    until: float
    parts: dict[int, bytes] = field(default_factory=dict)


class Questions:
    """The questions that wait for replies."""

    def __init__(self, count: int, send: Send) -> None:
        """Ask ``count`` workers by ``send``."""
        self._count = count
        self._send = send
        self._open: dict[int, _Question] = {}
        self._last_number = 0
        self._last_metrics: dict[int, bytes] = {}
        self._ended: Snapshot = []  # What workers that have ended had counted
        self.deaths = 0

    def seconds_left(self) -> float | None:
        """Return the time until a question is answered without those who are
        silent; None where none waits.
        """
        return min((each.until for each in self._open.values()), default=None)

    def ask(self, asker: int, message: Message, up: Collection[int]) -> None:
        """Pass a worker's question on to all who are up."""
        self._last_number += 1
        self._open[self._last_number] = _Question(
            asker, message.number, message.topic, set(up), time.monotonic() + _SECONDS
        )
        for number in up:
            self._send(
                number, Message("question", self._last_number, message.topic, body=message.body)
            )
        self._answer(self._last_number)

    def take_reply(self, message: Message) -> None:
        """Take one worker's reply."""
        self._remember(message)
        if (question := self._open.get(message.number)) is not None:
            question.parts |= message.parts
            question.waiting -= message.parts.keys()
            self._answer(message.number)

    def forget(self, number: int) -> None:
        """Note that a worker has ended."""
        if (last := self._last_metrics.pop(number, None)) is not None:
            self._ended = add_up([self._ended, keep_counts(decode(last))])
        for question, each in list(self._open.items()):
            each.waiting.discard(number)
            if each.asker == number:
                del self._open[question]
            else:
                self._answer(question)

    def expire(self) -> None:
        """Answer what has waited long enough."""
        now = time.monotonic()
        for number, each in list(self._open.items()):
            if each.until <= now:
                each.waiting.clear()
                self._answer(number)

    def _remember(self, message: Message) -> None:
        if message.topic == _METRICS:
            self._last_metrics |= message.parts

    def _answer(self, number: int) -> None:
        question = self._open[number]
        if question.waiting:
            return
        del self._open[number]
        if question.topic == _METRICS:
            question.parts[SUPERVISOR] = encode(self._own_metrics(question.parts.keys()))
        self._send(
            question.asker, Message("answer", question.number, question.topic, question.parts)
        )

    def _own_metrics(self, replied: Collection[int]) -> Snapshot:
        replies = len(replied)
        own: Snapshot = [
            (
                "claw_workers",
                "gauge",
                "Processes of the proxy that reply.",
                [("claw_workers", {}, replies)],
            )
        ]
        if self.deaths:
            fault = ("claw_faults_total", {"fault": "worker_died"}, self.deaths)
            own.append(
                (
                    "claw_faults",
                    "counter",
                    "Faults of the proxy or its surroundings, by error code (error).",
                    [fault],
                )
            )
        if replies < self._count:
            own.append(
                (
                    "claw_ready",
                    "gauge",
                    "1 if the proxy can serve turns, as /ready reports.",
                    [("claw_ready", {}, 0)],
                )
            )
        silent = (
            keep_counts(decode(last))
            for number, last in self._last_metrics.items()
            if number not in replied
        )
        return add_up([self._ended, *silent, own])
