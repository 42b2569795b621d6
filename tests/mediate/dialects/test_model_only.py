"""A request that its dialect can't read: for an agent without tools only its model
is read, for others it is refused.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import DOTS
from claw_mediate.agents.authenticate import Identity
from claw_mediate.core.http import Forward, Request, RunnerResponse
from claw_mediate.dialects.base import UnreadableRequestError
from claw_mediate.dialects.model_only import read_model
from tests.turns.desk import Desk
from tests.wires import Wire, anthropic, openai

ODD: dict[str, dict[str, Any]] = {
    "no messages": {"model": "gpt-test"},
    "messages of another kind": {"model": "gpt-test", "messages": {"new": "form"}},
    "a message that is text": {"model": "gpt-test", "messages": ["Go"]},
    "tools of another kind": {"model": "gpt-test", "messages": [], "tools": {"a": 1}},
    "a choice of another kind": {"model": "gpt-test", "messages": [], "tool_choice": ["a"]},
    "a stream of another kind": {"model": "gpt-test", "messages": [], "stream": "yes"},
}


async def exchanged(desk: Desk, body: bytes) -> RunnerResponse | Forward:
    request = Request("POST", desk.wire.PATH, [("authorization", f"Bearer {desk.token}")], body)
    admitted = desk.mediator.admit(request)
    assert isinstance(admitted, Identity)
    return await desk.mediator.exchange(admitted, request)


@pytest.mark.requirement("redactor:cost")
async def test_other_requests_are_answered_while_a_long_body_is_redacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path, openai, stream=False)
    desk.grant()
    document, here = Redactor.document, threading.current_thread()
    seen: list[tuple[int, bool]] = []

    def noting(self: Redactor, body: bytes, max_text: int | None = None) -> bytes:
        seen.append((len(body), threading.current_thread() is here))
        return document(self, body, max_text)

    monkeypatch.setattr(Redactor, "document", noting)
    for length in (10, 1_000_000):
        body = {
            "model": "gpt-test",
            "messages": [{"role": "user", "content": f"{desk.token} {'x' * length}"}],
        }
        forwarded = await exchanged(desk, json.dumps(body).encode())
        assert isinstance(forwarded, Forward)
        assert forwarded.body is not None
        assert f"analyst:{DOTS} x".encode() in forwarded.body
    assert {is_here for size, is_here in seen if size < 1000} == {True}
    assert {is_here for size, is_here in seen if size > 1_000_000} == {False}
    await desk.mediator.close(0)


@pytest.mark.requirement("forward:unread")
@pytest.mark.parametrize("wire", [openai, anthropic], ids=["openai", "anthropic"])
@pytest.mark.parametrize("name", ODD)
async def test_a_request_that_no_rule_reads_goes_to_its_provider_as_it_is(
    tmp_path: Path, wire: Wire, name: str
) -> None:
    desk = Desk(tmp_path, wire, stream=False)
    body = json.dumps(ODD[name]).encode()
    refused = await exchanged(desk, body)
    assert isinstance(refused, RunnerResponse)
    assert refused.status == 400
    desk.grant()
    forwarded = await exchanged(desk, body)
    assert isinstance(forwarded, Forward)
    assert forwarded.body is None
    await desk.mediator.close(0)


@pytest.mark.requirement("forward:unread")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"model":"a"',
        b'{"model":null}',
        b'{"model":"a"}x',
        b'{"model":"a","x":"\xff"}',
        b'{"model":"a","mod\\u0065l":"b"}',
    ],
)
def test_a_body_that_names_no_model_or_could_name_two_is_refused(body: bytes) -> None:
    with pytest.raises(UnreadableRequestError):
        read_model(body)


def test_the_model_and_the_wish_for_a_stream_are_read() -> None:
    view = read_model(b'{"stream":true,"model":"a","x":1e400}')
    assert (view.model, view.stream, view.declared_tools) == ("a", True, ())
    assert not read_model(b'{"stream":"yes","model":"a"}').stream
