"""No byte of an answer that the runner gets has a managed tool's name, arguments or schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_mediate.dialects.base import FailedResponseError, UnreadableResponseError
from claw_mediate.dialects.responses import DIALECT
from claw_mediate.dialects.responses.stream import tell
from claw_mediate.dialects.responses.writer import ResponseWriter
from claw_mediate.dialects.streams import OwnOpening
from tests.mediate.made import catalog, granted
from tests.turns.desk import Desk, with_tools
from tests.wires import Body
from tests.wires.responses import function_call, message, reasoning, response

CATALOG = catalog(granted("desk.get"), granted("desk.end"), native=["shell"])
SECRET = (b"desk__", b"desk.", b"planted")
"""Texts that the runner must never see: the names of managed tools, and text planted in
their calls and definitions.
"""
PLANTED = '{"of":"planted"}'
ITEMS: tuple[Body, ...] = (
    message("Fifty."),
    reasoning("Why"),
    function_call("call_m", "desk__get", PLANTED),
    function_call("call_c", "desk.end", PLANTED) | {"id": None},
    function_call("call_x", "desk__gone", PLANTED),
    function_call("", "desk__get", "planted"),
    function_call("call_s", "desk__get", PLANTED) | {"namespace": "planted"},
    function_call("call_p", "desk__get", PLANTED)
    | {"caller": {"type": "program", "caller_id": "planted"}},
    function_call("call_n", "shell", "{}"),
    {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": "call_f",
        "name": "desk__get",
        "input": "planted",
    },
    {"type": "local_shell_call", "id": "ls_1", "call_id": "call_l", "action": {"command": ["ls"]}},
    {"type": "computer_call", "id": "cu_1", "call_id": "call_u", "action": {"type": "screenshot"}},
    {"type": "mcp_approval_request", "id": "mcpr_1", "name": "delete", "arguments": "{}"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    {"type": "hologram", "light": 1},
)
OWN: Body = {"type": "function", "name": "shell", "parameters": {}}
MANAGED: Body = {
    "type": "function",
    "name": "desk__get",
    "description": "planted",
    "parameters": {"planted": 1},
}
TOOLS: tuple[Any, ...] = (
    OWN,
    {"type": "web_search"},
    MANAGED,
    {"type": "function", "function": MANAGED},
    {**MANAGED, "name": ["desk__get"]},
    "desk__get",
)
REASONS = (
    {},
    *(
        {"status": "incomplete", "incomplete_details": {"reason": why}}
        for why in ("content_filter", "max_output_tokens")
    ),
)
REQUEST = DIALECT.read_request(
    json.dumps(
        {
            "model": "m",
            "input": "Hi",
            "tools": [OWN],
            "instructions": "Brief.",
            "previous_response_id": "resp_0",
        }
    ).encode()
)


@pytest.mark.requirement("responses:no-managed-byte")
@given(
    items=st.lists(st.sampled_from(ITEMS), max_size=6),
    tools=st.lists(st.sampled_from(TOOLS), max_size=6),
    reason=st.sampled_from(REASONS),
    terminal=st.booleans(),
)
def test_any_answer_that_is_delivered_shows_nothing_managed(
    items: list[Body], tools: list[Any], reason: Body, terminal: bool
) -> None:
    echo = {
        "tools": tools,
        "tool_choice": {"type": "function", "name": "desk__get"},
        "instructions": "Brief.\n\nplanted",
    }
    echo |= {
        "input": items,
        "input_messages": ["planted"],
        "output_messages": [{"recipient": "desk__get"}],
    }
    body = json.dumps(
        response(*items, **echo, **reason, previous_response_id="resp_planted")
    ).encode()
    try:
        reply = DIALECT.read_response(body, CATALOG)
    except (UnreadableResponseError, FailedResponseError):
        return
    if not terminal and any(call.owner != "native" for call in reply.calls):
        return  # It is answered, and not delivered
    answer = DIALECT.write_response(reply, REQUEST, {**reply.usage, "n": 1}, terminal=terminal)
    for beats in (0, 2):
        writer = ResponseWriter(REQUEST, OwnOpening("resp_early", "m", 1))
        beaten = b"".join(writer.beat("", "native") for _ in range(beats))
        streamed = beaten + b"".join(map(writer.write, tell(answer, REQUEST)))
        for shown in (answer, streamed):
            assert not [word for word in SECRET if word in shown]


@with_tools
@pytest.mark.requirement("responses:errors")
@pytest.mark.parametrize("rounds", [0, 1])
async def test_an_error_of_the_provider_names_no_managed_tool(desk: Desk, rounds: int) -> None:
    for _ in range(rounds):
        desk.model_says(("desk.balance", {}))
    desk.model_refuses(
        400,
        "invalid_function_parameters",
        "Invalid schema for function 'desk__balance' (desk.balance)",
    )
    await desk.asks("Go")
    (told,) = [entry["response"]["json"]["error"] for entry in desk.history()]
    assert told["message"] == "Invalid schema for function 'managed_tool' (managed_tool)"
    assert desk.interventions()[-1] == "managed_names_removed"
