"""The answers to requests whose turns run at another process, of agents that stream live
(docs/spec/live.md section 9).
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from claw_mediate.core.http import AnswerCutError, RunnerResponse
from claw_mediate.settings import KeepaliveKind
from tests.turns.desk import WIRES, Desk, opened, tool
from tests.turns.kept_desk import KeptDesk
from tests.turns.retrying import until_called
from tests.waiting import eventually_async
from tests.wires import anthropic, responses

KINDS = ("comment", "native")
_CHUNK_BEAT = re.compile(rb'data: [^\n]*"delta":\{\}[^\n]*"finish_reason":null[^\n]*\n\n')
_BEAT = re.compile(
    rb": claw waiting=turn\n\n|event: ping\n|event: response.in_progress\n|" + _CHUNK_BEAT.pattern
)


class Runner:
    """A runner of one more process: its stream comes piece by piece."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.response: RunnerResponse | None = None
        self.stream = b""
        self.is_cut = False
        self.turn_id = ""
        self.deliver: Callable[[], Awaitable[None]] | None = None
        self.task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        response = await self.desk.mediator.exchange(self.desk.admitted(), self.desk.request())
        assert isinstance(response, RunnerResponse)
        self.response = response
        if response.when_found is not None:
            response.when_found(self._note)
        try:
            async for chunk in response.chunks:
                self.stream += chunk
        except AnswerCutError:
            self.is_cut = True

    def _note(self, turn_id: str, deliver: Callable[[], Awaitable[None]]) -> None:
        self.turn_id, self.deliver = turn_id, deliver

    async def waits(self) -> None:
        """Wait until it has its headers, and two keepalives."""
        await eventually_async(lambda: len(_BEAT.findall(self.stream)) >= 2, "keepalives come")

    async def text(self) -> str:
        await self.task
        assert not self.is_cut
        assert self.desk.wire.stream_error(self.stream) is None
        answer = _CHUNK_BEAT.sub(b"", self.stream)
        return self.desk.wire.said(self.desk.wire.assembled(answer)).text


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> KeepaliveKind:
    kind: KeepaliveKind = request.param
    return kind


@pytest.fixture(params=["openai", "anthropic", "responses"])
async def live(
    request: pytest.FixtureRequest, tmp_path: Path, kind: KeepaliveKind
) -> AsyncIterator[Desk]:
    """Yield a desk where a turn trades at one process, whose runner has its first words."""
    async with opened(Desk(tmp_path, WIRES[request.param], stream=True, live=True)) as desk:
        paced(desk, kind)
        desk.remembers()
        await trades(desk)
        yield desk
        goes_on(desk)  # Otherwise the end of the desk would wait for the write


def paced(desk: Desk, kind: KeepaliveKind) -> None:
    """Send headers and keepalives of the kind soon."""
    desk.settings = replace(
        desk.settings,
        live_first=0.02,
        keepalive=0.01,
        keepalive_openai=kind,
        keepalive_anthropic=kind,
        keepalive_responses=kind,
    )


async def trades(desk: Desk) -> None:
    """Begin a turn that waits for its write, at the first process; the desk is the second's."""
    desk.service_answers("trade", {"order": 1}, {"order": 2})
    desk.services.gates["desk.trade"] = asyncio.Event()
    desk.model_says("Let me buy that for you.", ("desk.trade", {}))
    desk.messages = [desk.wire.user("Buy")]
    first = Runner(desk)
    await until_called(desk, "desk.trade")
    desk.first = first  # type: ignore[attr-defined]
    desk.open()


def first(desk: Desk) -> Runner:
    runner: Runner = desk.first  # type: ignore[attr-defined]
    return runner


def goes_on(desk: Desk) -> None:
    desk.services.gates["desk.trade"].set()


def both(desk: Desk, *texts: str) -> str:
    return ("\n\n" if desk.wire is WIRES["openai"] else "").join(texts)


def held(desk: Desk, text: str) -> dict[str, Any]:
    """Return an assistant's message that a runner makes of what it was shown."""
    if desk.wire is responses:
        return responses.message(text, "msg_held")
    return {"role": "assistant", "content": text}


def id_of(stream: bytes) -> str:
    """Return the one id that a stream has told; "" before it has told one."""
    lines = [line[6:] for line in stream.split(b"\n") if line.startswith(b"data: {")]
    documents = [json.loads(line) for line in lines]
    told = {
        str(each.get("id") or each.get("response", {}).get("id") or "") for each in documents
    } - {""}
    assert len(told) <= 1, told
    return min(told, default="")


@pytest.mark.requirement("live:elsewhere")
async def test_the_answer_of_another_processs_turn_comes_behind_keepalives(live: Desk) -> None:
    runner = Runner(live)
    await runner.waits()
    assert runner.response is not None
    assert (runner.response.status, runner.response.streaming) == (200, True)
    live.model_says("All is done.")
    goes_on(live)
    answer = both(live, "Let me buy that for you.", "All is done.")
    assert await runner.text() == await first(live).text() == answer
    assert live.services.calls == ["desk.trade"]
    assert len(live.model.bodies) == 2
    assert [event["how"] for event in live.told("join")] == ["awaited"]
    assert runner.turn_id == live.history()[-1]["turn_id"]


@pytest.mark.requirement("live:elsewhere")
async def test_a_turn_that_fails_at_the_other_process_goes_on_here(live: Desk) -> None:
    runner = Runner(live)
    await runner.waits()
    live.model_refuses(400, "invalid_request")
    live.model_says("All is done.")
    goes_on(live)
    await first(live).task
    assert live.wire.stream_error(first(live).stream) is not None
    assert await runner.text() == both(live, "Let me buy that for you.", "All is done.")
    assert live.services.calls == ["desk.trade"]
    assert len({line["turn_id"] for line in live.history()}) == 1
    assert runner.turn_id == live.history()[-1]["turn_id"]


@pytest.mark.requirement("live:elsewhere")
async def test_a_turn_that_fails_here_too_ends_with_an_error_event(live: Desk) -> None:
    runner = Runner(live)
    await runner.waits()
    live.model_refuses(400, "invalid_request")
    live.model_refuses(400, "invalid_request", "still not")
    goes_on(live)
    await runner.task
    error = live.wire.stream_error(runner.stream)
    assert error is not None
    assert b"still not" in error
    assert b"Let me buy" in runner.stream
    assert live.services.calls == ["desk.trade"]


@pytest.mark.requirement("live:elsewhere")
async def test_a_turn_whose_process_died_goes_on_here(live: Desk) -> None:
    runner = Runner(live)
    await runner.waits()
    live.model_says("All is done.")
    with closing(sqlite3.connect(live.settings.state.shown, autocommit=True)) as database:
        seen = time.time() - 60
        database.execute("UPDATE turns SET owner = 'elsewhere/1/life/0', seen = ?", (seen,))
    assert await runner.text() == both(live, "Let me buy that for you.", "All is done.")
    assert live.services.calls == ["desk.trade"], "its outcome is unknown"
    assert "outcome_unknown" in str(live.model.messages())


@pytest.mark.requirement("live:elsewhere", "live:continuation-done")
async def test_a_runner_that_holds_the_beginning_is_not_shown_it_again(live: Desk) -> None:
    live.messages.append(held(live, "Let me buy that for you."))
    runner = Runner(live)
    await runner.waits()
    live.model_says("All is done.")
    goes_on(live)
    await first(live).task
    assert (await runner.text()).strip() == "All is done."
    assert live.services.calls == ["desk.trade"]
    assert len(live.model.bodies) == 2


@pytest.mark.requirement("live:elsewhere")
async def test_every_runner_that_waits_gets_the_answer_of_the_one_turn(live: Desk) -> None:
    runners = [Runner(live), Runner(live)]
    for runner in runners:
        await runner.waits()
    live.model_refuses(400, "invalid_request")
    live.model_says("All is done.")
    goes_on(live)
    answer = both(live, "Let me buy that for you.", "All is done.")
    assert [await runner.text() for runner in runners] == [answer] * 2
    assert live.services.calls == ["desk.trade"]
    assert len(live.model.bodies) == 3


@pytest.mark.requirement("live:elsewhere")
async def test_a_runner_that_leaves_while_it_waits_leaves_the_turn_alone(live: Desk) -> None:
    runner = Runner(live)
    await runner.waits()
    runner.task.cancel()
    await asyncio.wait([runner.task])
    live.model_says("All is done.")
    goes_on(live)
    assert (await first(live).text()).endswith("All is done.")
    assert [line["status"] for line in live.history()] == ["ok"]


@pytest.mark.requirement("live:elsewhere-bounded")
async def test_a_turn_that_does_not_end_in_its_time_is_waited_for_no_longer(
    live: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.settings = replace(live.settings, live_max=0.1)
    live.open()
    live.grant(tool("trade", write=True), total_timeout_ms=100)
    monkeypatch.setattr("claw_mediate.turns.pipeline.LEASE_SECONDS", 0.1)
    runner = Runner(live)
    await runner.waits()
    await runner.task
    error = live.wire.stream_error(runner.stream)
    assert error is not None
    assert b"in another process" in error
    live.model_says("All is done.")
    goes_on(live)
    assert (await first(live).text()).endswith("All is done.")


@pytest.mark.requirement("live:elsewhere")
async def test_who_waits_when_the_proxy_stops_is_told_to_come_again(live: Desk) -> None:
    runner = Runner(live)
    await runner.waits()
    live.mediator.stop()
    await live.mediator.finish(0)
    await runner.task
    error = live.wire.stream_error(runner.stream)
    assert error is not None
    assert b"the proxy is being stopped" in error


@pytest.mark.requirement("live:elsewhere")
@pytest.mark.parametrize("kind", ["comment"], indirect=True)
async def test_who_waits_for_headers_when_the_proxy_stops_is_refused_with_a_time(
    live: Desk,
) -> None:
    live.settings = replace(live.settings, live_first=60.0)
    live.open()
    runner = Runner(live)

    def is_searched_for() -> bool:
        return any("TurnPipeline._search" in repr(task) for task in asyncio.all_tasks())

    await eventually_async(is_searched_for, "its turn is searched for")
    live.mediator.stop()
    await live.mediator.finish(0)
    await runner.task
    assert runner.response is not None
    assert (runner.response.status, dict(runner.response.headers)["retry-after"]) == (503, "5")


@pytest.mark.requirement("live:elsewhere-id")
@pytest.mark.parametrize("kind", ["native"], indirect=True)
async def test_the_answer_has_the_id_that_a_keepalive_told(live: Desk) -> None:
    runner = Runner(live)
    await runner.waits()
    told = id_of(runner.stream)
    live.model_says("All is done.")
    goes_on(live)
    await runner.text()
    await first(live).task
    assert told in {"", id_of(runner.stream)}
    assert bool(told) == (live.wire is not anthropic), "a ping has no id"


@pytest.mark.requirement("live:elsewhere-id")
@pytest.mark.parametrize("fails", [False, True])
async def test_that_id_leads_to_what_the_provider_keeps(tmp_path: Path, *, fails: bool) -> None:
    """``fails``: the turn ends here, since it failed at the other process."""
    async with opened(Desk(tmp_path, responses, stream=True, live=True)) as desk:
        paced(desk, "native")
        desk.remembers()
        desk.more = {"store": True}
        await trades(desk)
        runner = Runner(desk)
        await runner.waits()
        if fails:
            desk.model_refuses(400, "invalid_request")
        message = responses.message("All is done.", "msg_2")
        desk.model_answers(
            json.dumps(responses.response(message, id="resp_b", store=True)).encode()
        )
        goes_on(desk)
        await runner.text()

        kept = await desk.mediator.state.ownership.find("analyst", id_of(runner.stream))
        assert kept is not None
        assert kept.provider_id == "resp_b"


@pytest.mark.requirement("live:elsewhere")
@pytest.mark.parametrize("kind", ["comment"], indirect=True)
async def test_a_runner_of_a_buffered_agent_sees_nothing_until_the_turn_is_over(
    tmp_path: Path, kind: KeepaliveKind
) -> None:
    async with opened(Desk(tmp_path, WIRES["openai"], stream=True)) as desk:
        paced(desk, kind)
        desk.remembers()
        await trades(desk)
        runner = Runner(desk)
        await asyncio.wait([runner.task], timeout=0.1)
        assert runner.response is None
        desk.model_says("All is done.")
        goes_on(desk)
        assert await runner.text() == "All is done."


@pytest.mark.requirement("live:elsewhere")
async def test_a_turn_waits_for_another_processs_turn_of_its_conversation(tmp_path: Path) -> None:
    async with opened(KeptDesk(tmp_path)) as desk:
        desk.stream = desk.live = True
        desk.grant(*desk.tools)
        paced(desk, "comment")
        desk.remembers()
        await desk.owns()
        desk.more = {"conversation": "conv_1"}
        await trades(desk)

        desk.messages = [desk.wire.user("And now?")]
        runner = Runner(desk)
        await runner.waits()
        desk.model_says("It is bought.")
        desk.model_says("That is all.")
        goes_on(desk)
        assert await first(desk).text() == "Let me buy that for you.It is bought."
        assert await runner.text() == "That is all."
        assert desk.services.calls == ["desk.trade"]
        assert runner.turn_id == desk.history()[-1]["turn_id"]
