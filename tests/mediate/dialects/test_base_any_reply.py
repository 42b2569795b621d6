"""Any response is refused as a whole, or read, transcribed, delivered and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_mediate.core import tool_result
from claw_mediate.core.types import Round
from claw_mediate.dialects.base import FailedResponseError, UnreadableResponseError
from claw_mediate.dialects.streams import write_stream
from tests.mediate import anthropic_sdk, openai_sdk
from tests.mediate.any_reply import CATALOG, DIALECTS, WIRES, bodies

FINAL: dict[str, Any] = {
    "openai": openai_sdk.final,
    "anthropic": anthropic_sdk.final,
    "responses": openai_sdk.final_response,
}


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.requirement("stream:any-reply")
@pytest.mark.parametrize("name", WIRES)
@settings(max_examples=150)
@given(st.data())
def test_any_response_is_refused_or_its_stream_is_one_that_the_sdk_reads(
    name: str, data: st.DataObject
) -> None:
    dialect, wire = DIALECTS[name], WIRES[name]
    body = data.draw(bodies(wire))
    try:
        reply = dialect.read_response(body, CATALOG)
    except (UnreadableResponseError, FailedResponseError):
        return
    asked = wire.request([wire.user("Go")], (), stream=True, more={})
    request = dialect.read_request(json.dumps(asked).encode())
    handed = all(call.owner == "native" for call in reply.calls)
    for terminal in (False, True) if handed else (True,):
        answer = dialect.write_response(reply, request, {**reply.usage, "n": 1}, terminal=terminal)
        stream = b"".join(write_stream(dialect, answer, request))
        wire.assembled(stream)
        FINAL[name](stream)
        assert dialect.response_anchor(reply, request, terminal=terminal)
    answers = tuple(tool_result.unknown_tool(call) for call in reply.calls)
    for message in dialect.write_hidden_rounds([Round(1, reply, answers)], replayed=False):
        json.loads(message)
