"""A turn that reaches a phase, in which its provider fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests import raw
from tests.failures.clocked_pod import ClockedPod, TurnOutput
from tests.failures.provider import Failure
from tests.failures.table import Phase
from tests.wires import MadeCall, Wire

GOOD_CALLS = {Phase.FIRST: 0, Phase.OPEN: 0, Phase.LATER: 1, Phase.FINAL: 2}
"""The number of successful model calls before the failure."""
_AMPLE_MS = 100_000_000
_LITTLE_MS = 150
"""The time of a turn that is to exceed it."""


class FailingTurn:
    """A turn and the failure of its provider: ``pod`` is set up for the phase,
    and ``play`` runs the turn.
    """

    def __init__(
        self, home: Path, dialect: Wire, phase: Phase, failure: Failure, *, stream: bool
    ) -> None:
        self.phase = phase
        self.failure = failure
        little = failure.until == "time is spent" and not GOOD_CALLS[phase]
        policy = {
            "max_rounds": 1 if phase is Phase.FINAL else 8,
            "total_timeout_ms": _LITTLE_MS if little else _AMPLE_MS,
            "soft_deadline_ratio": 1 - 1e-12,
        }
        self.pod = ClockedPod(
            home, dialect, stream, policy, first_ms=1 if phase is Phase.OPEN else 60_000
        )

    async def play(self) -> TurnOutput:
        async with self.pod.open() as mediator:
            self._script()
            return await self.pod.ask(mediator, self.pod.request())

    def _script(self) -> None:
        """Script the replies that lead to the phase, then the failure for every later request."""
        pod = self.pod
        acts = [raw.answers(200, self._calls(number)) for number in range(GOOD_CALLS[self.phase])]
        if acts:
            acts[-1] = self._last(acts[-1])
        elif self.failure.until == "never listens":
            pod.provider.refuse()
        failing = self.failure.act(pod.dialect)
        pod.provider.script = [
            *acts,
            raw.held(failing, pod.go) if self.phase is Phase.OPEN else failing,
        ]
        pod.service.script = [raw.answers(200, b'{"usd": 50000}')]

    def _calls(self, number: int) -> bytes:
        return self.pod.dialect.reply(
            "", [MadeCall(f"c{number}", "desk__balance", f'{{"n": {number}}}')], {}
        )

    def _last(self, act: raw.Act) -> raw.Act:
        """Return the last good reply; sending it leaves the turn little time, or
        the provider without a listener.
        """

        async def last(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if self.failure.until == "time is spent":
                self.pod.clock += (_AMPLE_MS - _LITTLE_MS) / 1000
            if self.failure.until == "never listens":
                self.pod.provider.refuse()
            await act(reader, writer)

        return last
