"""Every failure of a provider, in every phase, in both dialects, as JSON and as a stream: one
outcome, truly recorded.

``make test`` plays each failure in each phase and form in one of the dialects, in turn.
The outcomes are data, in ``table``; this is the one test that compares the product with them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.failures import planted
from tests.failures.clocked_pod import TurnOutput
from tests.failures.failing_turn import GOOD_CALLS, FailingTurn
from tests.failures.provider import BAD_REPLY, FAILURES, Failure, OwnError
from tests.failures.table import FailureReport, Phase, cells, told
from tests.search_size import each_nth
from tests.wires import Wire, anthropic, openai

DIALECTS: dict[str, Wire] = {"openai": openai, "anthropic": anthropic}
KEEPALIVE = (b": claw round=", b"event: ping\n")
CASES = [
    pytest.param(
        failure,
        phase,
        stream,
        dialect,
        id=f"{failure.name}-{phase.name}-{'stream' if stream else 'json'}-{name}",
    )
    for first, failure in enumerate(FAILURES)
    for place, (phase, stream) in enumerate(cells(failure), start=first)
    for name, dialect in each_nth(2, [*DIALECTS.items()][:: -1 if place % 2 else 1])
]
RAN = {Phase.FIRST: [], Phase.OPEN: [], Phase.LATER: ["ok"], Phase.FINAL: ["ok", "error"]}
"""The status of each call that the model made before the failure; the last call of
a spent turn does not run.
"""


@pytest.mark.long
@pytest.mark.requirement("failure:matrix")
@pytest.mark.parametrize(("failure", "phase", "stream", "dialect"), CASES)
async def test_a_failure_has_one_outcome(
    tmp_path: Path, failure: Failure, phase: Phase, stream: bool, dialect: Wire
) -> None:
    seen = await FailingTurn(tmp_path, dialect, phase, failure, stream=stream).play()
    expected = told(failure, phase, stream=stream)
    delivered(seen, expected, dialect, failure)
    tries = 0 if failure.until == "never listens" else expected.tries
    asked = [sent.partition(b"\r\n")[0].decode() for sent in seen.to_provider]
    assert asked == [f"POST /of-the-provider{dialect.PATH} HTTP/1.1"] * (GOOD_CALLS[phase] + tries)
    recorded(seen, expected, phase)
    kept(seen)


def delivered(seen: TurnOutput, expected: FailureReport, dialect: Wire, failure: Failure) -> None:
    headers = dict(seen.headers)
    if expected.by == "an event":
        assert (seen.status, seen.streaming) == (200, True)
        assert headers["content-type"] == "text/event-stream"
        body = dialect.stream_error(seen.body) or b""
        blocks = [
            block for block in seen.body.split(b"\n\n") if block and not block.startswith(KEEPALIVE)
        ]
        assert len(blocks) == (2 if dialect is openai else 1), (
            "an error, and the end, and nothing else"
        )
    else:
        assert (seen.status, seen.streaming) == (expected.status, False)
        body = seen.body
    if expected.own:
        assert dialect.code(body) in (expected.reason, None if dialect is anthropic else "")
        assert headers["content-type"] in ("application/json", "text/event-stream")
    else:
        assert b"no: " in body or failure.name == "status-500-empty"
    waits = (
        failure.name == "status-429-retry-after"
        and not expected.own
        and expected.by == "a response"
    )
    assert headers.get("retry-after") == ("0" if waits else None)
    if failure.outcome == OwnError(BAD_REPLY, theirs=True):
        assert b"no: " in body


def recorded(seen: TurnOutput, expected: FailureReport, phase: Phase) -> None:
    (entry,) = seen.history
    assert (entry["status"], entry["status_code"]) == ("error", expected.status)
    calls = [call for past in entry["tool_trace"] for call in past["tool_calls"]]
    assert [call["status"] for call in calls] == RAN[phase]
    assert len(seen.to_service) == RAN[phase].count("ok")
    events = [
        event
        for event in seen.events
        if event["type"] in {"request", "tool_call", "response", "error"}
    ]
    assert [event["type"] for event in events] == ["request", *["tool_call"] * len(calls), "error"]
    assert {event["turn_id"] for event in events} == {entry["turn_id"]}
    assert (events[-1]["status_code"], events[-1]["error"]) == (expected.status, expected.reason)


def kept(seen: TurnOutput) -> None:
    """Check that secrets and addresses reached only those peers for which they are meant."""
    assert planted.found(seen.told) == []
    for address in (b"127.0.0.1", b"of-the-provider", b"of-the-service"):
        assert address not in seen.told
    for sent in seen.to_provider:
        assert planted.found(sent) == [planted.PROVIDER_KEY]
        assert b"of-the-service" not in sent
    for sent in seen.to_service:
        assert planted.found(sent) == [planted.TOOL_TOKEN]
