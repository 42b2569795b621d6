"""The members in which a response repeats its request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claw_mediate.core.json_outline import MAX_WHOLE_BYTES
from claw_mediate.dialects.responses.echo import ECHOED, echo_changes
from claw_mediate.dialects.responses.request import read_request

OWN = {"type": "function", "name": "shell"}
MANAGED = {"type": "function", "name": "desk__get"}
HOSTED = {"type": "web_search"}
REQUEST = {"model": "m", "input": "Hi", "tools": [OWN], "tool_choice": "required"}


def changes(response: dict[str, Any], **more: Any) -> dict[str, Any]:
    members = {name: json.dumps(value).encode() for name, value in response.items()}
    request = read_request(json.dumps({**REQUEST, **more}).encode())
    made = echo_changes(members.get, request)
    return {name: json.loads(value) for name, value in made.items()}


@pytest.mark.requirement("live:responses-echo")
def test_a_response_repeats_what_the_runner_asked() -> None:
    ours = {
        "tools": [OWN, HOSTED, MANAGED],
        "tool_choice": "auto",
        "instructions": "Be nice. Context.",
        "input": [],
        "previous_response_id": "resp_hidden",
        "input_messages": ["hidden"],
        "model": "m",
    }
    assert changes(ours, instructions="Be nice.") == {
        "tools": [OWN, HOSTED],
        "tool_choice": "required",
        "instructions": "Be nice.",
        "input": "Hi",
        "previous_response_id": None,
        "input_messages": None,
    }
    assert changes(ours, previous_response_id="resp_1")["previous_response_id"] == "resp_1"


@pytest.mark.requirement("live:responses-echo")
def test_what_the_runner_left_out_is_repeated_as_the_apis_default() -> None:
    assert changes({"instructions": "Ours.", "input": "Ours."}, input=None) == {
        "instructions": None,
        "input": None,
    }


@pytest.mark.requirement("live:responses-echo")
@pytest.mark.parametrize("response", [{}, {"tools": None}, {"model": "m"}])
def test_nothing_is_added_that_a_response_does_not_repeat(response: dict[str, Any]) -> None:
    assert changes(response) == {}


@pytest.mark.requirement("live:responses-echo")
def test_a_request_of_any_length_is_repeated() -> None:
    long = "x" * (MAX_WHOLE_BYTES + 1)
    assert changes({"input": "", "tool_choice": "auto"}, input=long) == {
        "input": long,
        "tool_choice": "required",
    }
    assert {"tools", "input_messages"} < {*ECHOED}
