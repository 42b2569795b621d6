"""Live turns that fail at every kind of event, and runners that go on in every way: no write is
made twice, and no word is lost or doubled.

``make soak`` has ten times as many trials, with another seed. A failure names its trial:

    CLAW_CRASH_SEED=1 CLAW_CRASH_TRIAL=t7 pytest tests/crash/test_live.py
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from claw_audit.audit import AuditQuery, audit
from claw_audit.turns import RecordedCall
from claw_audit.verify import verify
from claw_contract.history import HistoryEntry
from claw_state.ownership import KeptObject
from claw_state.sqlite.connection import Database
from claw_state.sqlite.ownership import SqliteOwnershipStore
from tests.crash.conversation import MediatorProcess, check_write
from tests.crash.live_trial import Trial, TrialRun, deal, goings_on, places
from tests.crash.peers import NUMBER, Books, Effect, RecordingService, orders
from tests.crash.stopping import StoppingModel
from tests.crash.test_crash import DEATHS, SEED
from tests.peers import Provider
from tests.proxy.pod import Pod

TRIALS = 210 * max(1, DEATHS // 100)
ONLY = os.environ.get("CLAW_CRASH_TRIAL")
_AT_ONCE = 4


class Lane:
    """A proxy, and the trials that it serves one after the other."""

    def __init__(self, home: Path, provider: Provider, service: RecordingService) -> None:
        assert isinstance(provider.model, StoppingModel)
        self.model = provider.model
        self.pod = Pod(home, provider, service)
        schema = {"type": "object", "properties": NUMBER["properties"]}
        tools = [
            self.pod.tool("balance", schema=schema),
            self.pod.tool("trade", "POST", schema=schema),
        ]
        self.pod.agent("analyst", *tools, stream="live")
        self.plays: list[TrialRun] = []
        self.failed: list[str] = []

    def play(self, trials: Sequence[Trial]) -> None:
        asyncio.run(self._own_conversations(trials))
        with socket.create_server(("127.0.0.1", 0), backlog=64) as self._listener:
            self.pod.port = self._listener.getsockname()[1]
            self._start()
            for trial in trials:
                play = TrialRun(trial, SEED, self.pod, self.model, self._kill, self._restart)
                try:
                    play.run()
                    self.plays.append(play)
                except BaseException:  # noqa: BLE001 - reported with what repeats it
                    again = f"CLAW_CRASH_SEED={SEED} CLAW_CRASH_TRIAL={trial.name}"
                    sent = "\n".join(f"{name}: {value}" for name, value in play.asked.items())
                    self.failed.append(f"{trial}\n{again}\n{sent}\n{traceback.format_exc()}")
            self._process.kill()
            self._process.wait()
        if self.plays and not self.failed:
            self._check()

    def _check(self) -> None:
        """Check that no write was made twice, or claimed and not made, and that history and audit
        have each turn once.
        """
        ids = {words: self._turn_id(words) for play in self.plays for words in play.turns}
        found = [turn_id for turn_id in ids.values() if turn_id]
        assert len(set(found)) == len(found), "each turn has its own id"

        for entry in self.pod.history("analyst"):
            HistoryEntry.model_validate_json(json.dumps(entry))
        history = self.pod.home / "history"
        assert [verdict.findings[0] for verdict in verify((history,)) if verdict.broken] == []

        rows: list[RecordedCall] = []
        audit(AuditQuery((history,)), on_call=rows.append)
        answered = {words for words in ids if words.partition(" ")[0] not in self.model.left}
        answered_ids = {ids[words] for words in answered}
        trades = [row for row in rows if row.tool == "desk.trade" and row.status == "ok"]
        books = self.model.books
        done = [
            order
            for words in answered
            for order in orders(words)
            if order in books.writes and json.loads(books.told[order].content)["ok"]
        ]
        assert len([row for row in trades if row.turn_id in answered_ids]) == len(done)

    def _turn_id(self, words: str) -> str:
        """Return the id under which all calls of a turn were made; "" if it made none."""
        books = self.model.books
        ids: set[str] = set()
        for order in orders(words):
            told = books.told.get(order)
            writes, reads = books.writes.get(order, []), books.reads.get(order, [])
            assert told is not None or not (writes or reads), f"nobody was told of {order}"
            if told is not None and not reads:
                _check_write(order, json.loads(told.content), writes)
            ids |= {effect.turn for effect in (*writes, *reads)}
        assert len(ids) <= 1, f"{words} was one turn, not {ids}"
        return ids.pop() if ids else ""

    async def _own_conversations(self, trials: Sequence[Trial]) -> None:
        """Enter the trials' conversations as if they had been made through the proxy."""
        store = SqliteOwnershipStore(Database(str(self.pod.home / "state.db")))
        for trial in trials:
            name = f"conv_{trial.name}"
            await store.save("analyst", KeptObject(name, name, "openai"))
        await store.close()

    def _start(self) -> None:
        self._process = MediatorProcess(self.pod, None, self._listener)

    def _kill(self) -> None:
        self._process.kill()

    def _restart(self) -> None:
        self._process.wait()
        self._start()


def _check_write(order: str, told: dict[str, Any], effects: list[Effect]) -> None:
    """Check that a write was made at most once, and that the model was told the truth."""
    is_canceled = not told["ok"] and told["error"]["code"] == "canceled"
    if is_canceled:  # The runner left before it was begun
        assert not effects, f"{order} was made, and the model was told that it was not"
    else:
        check_write(order, told, effects)


@pytest.mark.timeout(120 + TRIALS)
@pytest.mark.requirement("live:trials", "live:killed", "crash:at-most-once")
def test_live_turns_fail_at_every_event_and_no_word_is_lost(tmp_path: Path) -> None:
    books = Books()
    provider, service = Provider(model=StoppingModel(books)), RecordingService(books=books)
    provider.start()
    service.start()
    trials = [trial for trial in deal(SEED, TRIALS) if ONLY in {None, trial.name}]
    homes = [tmp_path / f"lane{number}" for number in range(_AT_ONCE)]
    for home in homes:
        home.mkdir()
    lanes = [Lane(home, provider, service) for home in homes]
    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda at: lanes[at].play(trials[at::_AT_ONCE]), range(_AT_ONCE)))
    finally:
        provider.stop()
        service.stop()

    failed = [each for lane in lanes for each in lane.failed]
    assert not failed, f"{len(failed)} of {len(trials)} failed:\n" + "\n".join(failed)

    went_on = Counter(play.went_on for lane in lanes for play in lane.plays)
    whole = went_on.pop(None, 0)
    print(
        f"{len(trials)} trials, {len(trials) - whole} answers that failed, {whole} that the proxy "
        f"mended, seed {SEED}"
    )
    if ONLY is None:
        assert {trial.place for trial in trials} == {*places()}
        assert went_on.keys() >= {*goings_on()}, "each runner has gone on in each way"
