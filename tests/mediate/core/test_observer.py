"""An observer of a turn sees its hidden requests without secrets, and one end of each."""

from __future__ import annotations

from typing import Any

import pytest

from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import Secret
from claw_mediate.core.observer import (
    ABANDONED,
    NO_EXCHANGE_OBSERVER,
    NO_OBSERVER,
    HiddenRequest,
    RequestInfo,
    ResponseInfo,
    Subject,
    TurnObserver,
)

KEY, TOKEN = "sk-planted-key-of-the-provider", "planted-token-of-the-tool"
SUBJECT = Subject("tool", 1, "desk.get")
ASKED = RequestInfo("POST", "http://desk/x", [("x-key", f"a {KEY}")], f'"{TOKEN}"'.encode())


class ObserverLog:
    """An observer that writes down what it is told."""

    def __init__(self) -> None:
        self.requests: list[HiddenRequest] = []
        self.ends: list[Any] = []

    def on_turn(self, turn_id: str, agent_id: str) -> None: ...
    def on_end(self, entry: bytes) -> None: ...

    def on_request(self, hidden: HiddenRequest) -> ObserverLog:
        self.requests.append(hidden)
        return self

    def on_response(self, response: ResponseInfo) -> None:
        self.ends.append(response)

    def on_failure(self, reason: str) -> None:
        self.ends.append(reason)


def redactor(*values: str) -> Redactor:
    return Redactor([Secret(value) for value in values])


@pytest.fixture
def seen() -> ObserverLog:
    return ObserverLog()


@pytest.fixture
def turn(seen: ObserverLog) -> TurnObserver:
    return TurnObserver(seen, "turn_1", "analyst", redactor(KEY))


@pytest.mark.requirement("hidden:flows")
def test_a_request_is_seen_with_its_turn_and_without_the_turns_secrets(
    seen: ObserverLog, turn: TurnObserver
) -> None:
    with turn.observe(SUBJECT, lambda: ASKED) as exchange:
        exchange.on_response(ResponseInfo(200, "text/plain", f"the {KEY}".encode()))
    (hidden,) = seen.requests
    assert (hidden.turn_id, hidden.agent_id, hidden.subject) == ("turn_1", "analyst", SUBJECT)
    assert TOKEN.encode() in hidden.request.body
    assert KEY not in repr((seen.requests, seen.ends))


@pytest.mark.requirement("hidden:flows")
def test_a_requests_own_redactor_hides_its_own_secrets(
    seen: ObserverLog, turn: TurnObserver
) -> None:
    with turn.observe(SUBJECT, lambda: ASKED, redactor(KEY, TOKEN)) as exchange:
        exchange.on_failure(f"no answer to {TOKEN}")
    assert TOKEN not in repr((seen.requests, seen.ends))


@pytest.mark.requirement("hidden:flows")
def test_a_secret_that_is_spread_over_events_is_hidden(
    seen: ObserverLog, turn: TurnObserver
) -> None:
    halves = [KEY[:9], KEY[9:]]
    events = "".join(
        f'data: {{"choices":[{{"delta":{{"content":"{half}"}}}}]}}\n\n' for half in halves
    )
    with turn.observe(SUBJECT, lambda: ASKED) as exchange:
        exchange.on_response(ResponseInfo(200, "text/event-stream", events.encode()))
    body = seen.ends[0].body.decode()
    assert [half for half in halves if half in body] == []


@pytest.mark.requirement("hidden:failures")
def test_the_first_report_counts(seen: ObserverLog, turn: TurnObserver) -> None:
    with turn.observe(SUBJECT, lambda: ASKED) as exchange:
        exchange.on_failure("broken")
        exchange.on_response(ResponseInfo(200, "", b""))
        exchange.on_failure("broken again")
    assert seen.ends == ["broken"]


@pytest.mark.requirement("hidden:failures")
def test_a_request_that_is_given_up_is_told_so(seen: ObserverLog, turn: TurnObserver) -> None:
    with turn.observe(SUBJECT, lambda: ASKED):
        pass
    with pytest.raises(TimeoutError), turn.observe(SUBJECT, lambda: ASKED):
        raise TimeoutError
    assert seen.ends == [ABANDONED, ABANDONED]


@pytest.mark.requirement("hidden:flows")
def test_what_was_not_made_is_seen_with_what_was_asked_for(
    seen: ObserverLog, turn: TurnObserver
) -> None:
    turn.report_not_made(SUBJECT, f'{{"key":"{KEY}"}}'.encode(), "no such tool")
    turn.report_replayed(SUBJECT, ResponseInfo(200, "", b"42"))
    not_made, replayed = seen.requests
    assert (not_made.request.url, not_made.subject.replayed) == ("", False)
    assert (replayed.request.body, replayed.subject.replayed) == (b"", True)
    assert KEY not in repr(seen.requests)
    assert seen.ends[0] == "no such tool"
    assert seen.ends[1].body == b"42"


@pytest.mark.requirement("hidden:free")
def test_without_an_observer_no_request_is_described() -> None:
    def describe() -> RequestInfo:
        raise AssertionError("nobody looks on")

    with NO_OBSERVER.observe(SUBJECT, describe) as exchange:
        assert exchange is NO_EXCHANGE_OBSERVER
