"""The supervisor's side of questions.

A worker asks, all who are up reply, and the worker gets the replies together.

The counts of workers that have ended stay in the sum of metrics. So do those of silent workers, as
they were at the last question: a counter must not fall.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from claw_mediate.telemetry.metrics_sum import Snapshot, add_up, decode, encode, keep_counts
from claw_mediate.workers.frames import Message, Topic
from claw_mediate.workers.worker import ASK_SECONDS, SUPERVISOR

_REPLY_SECONDS = ASK_SECONDS * 0.75  # The rest is for the way back
_METRICS: Topic = "metrics"

type Send = Callable[[int, Message], None]  # To the worker of that number


@dataclass
class _Question:
    """A question that waits for replies."""

    asker: int
    number: int  # The asker's own number of the question
    topic: Topic
    waiting: set[int]  # Workers whose reply is missing
    until: float  # Monotonic time
    parts: dict[int, bytes] = field(default_factory=dict)


class Questions:
    """The questions that wait for replies."""

    def __init__(self, count: int, send: Send) -> None:
        """Ask ``count`` workers by ``send``."""
        self._count = count
        self._send = send
        self._open: dict[int, _Question] = {}  # By our own number of the question
        self._last_number = 0
        self._last_metrics: dict[int, bytes] = {}
        self._ended: Snapshot = []  # What workers that have ended had counted
        self.deaths = 0

    def next_answer_at(self) -> float | None:
        """Return the monotonic time at which a question is answered without those who are silent.

        None if no question waits.
        """
        return min((each.until for each in self._open.values()), default=None)

    def ask(self, asker: int, message: Message, up: Collection[int]) -> None:
        """Pass a worker's question on to all who are up."""
        self._last_number += 1
        number = self._last_number
        until = time.monotonic() + _REPLY_SECONDS
        self._open[number] = _Question(asker, message.number, message.topic, set(up), until)

        question = Message("question", number, message.topic, body=message.body)
        for worker in up:
            self._send(worker, question)
        self._answer(number)  # at once if nobody is up

    def take_reply(self, message: Message) -> None:
        """Take one worker's reply."""
        if message.topic == _METRICS:
            self._last_metrics |= message.parts

        question = self._open.get(message.number)
        if question is None:  # it was answered without this worker
            return
        question.parts |= message.parts
        question.waiting -= message.parts.keys()
        self._answer(message.number)

    def forget(self, number: int) -> None:
        """Note that a worker has ended."""
        last = self._last_metrics.pop(number, None)
        if last is not None:
            self._ended = add_up([self._ended, keep_counts(decode(last))])

        for question_number, question in list(self._open.items()):
            question.waiting.discard(number)
            if question.asker == number:
                del self._open[question_number]
            else:
                self._answer(question_number)

    def expire(self) -> None:
        """Answer what has waited long enough."""
        now = time.monotonic()
        for question_number, question in list(self._open.items()):
            if question.until <= now:
                question.waiting.clear()
                self._answer(question_number)

    def _answer(self, number: int) -> None:
        """Send the asker all replies, if nobody's is missing."""
        question = self._open[number]
        if question.waiting:
            return

        del self._open[number]
        if question.topic == _METRICS:
            question.parts[SUPERVISOR] = encode(self._own_metrics(question.parts.keys()))
        answer = Message("answer", question.number, question.topic, question.parts)
        self._send(question.asker, answer)

    def _own_metrics(self, replied: Collection[int]) -> Snapshot:
        """Return the supervisor's own metrics, and the counts of all who have not replied."""
        replies = len(replied)
        text = "Processes of the proxy that reply."
        own: Snapshot = [("claw_workers", "gauge", text, [("claw_workers", {}, replies)])]
        if self.deaths:
            text = "Faults of the proxy or its surroundings, by error code (error)."
            fault = ("claw_faults_total", {"fault": "worker_died"}, self.deaths)
            own.append(("claw_faults", "counter", text, [fault]))
        if replies < self._count:
            text = "1 if the proxy can serve turns, as /ready reports."
            own.append(("claw_ready", "gauge", text, [("claw_ready", {}, 0)]))

        silent: list[Snapshot] = []
        for number, last in self._last_metrics.items():
            if number not in replied:
                silent.append(keep_counts(decode(last)))
        return add_up([self._ended, *silent, own])
