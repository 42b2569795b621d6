"""A runner from before tools, on the real ``openai`` SDK and behind the real mitmdump: functions
in, a function call out.
"""

from __future__ import annotations

from typing import Any

import openai
import pytest
from starlette.responses import JSONResponse

from tests.peers import calls, text
from tests.proxy.pod import Pod

SHELL: Any = {"name": "shell", "parameters": {"type": "object"}}


def ask(client: openai.OpenAI, messages: list[Any], *, stream: bool) -> Any:
    more: Any = {"functions": [SHELL], "function_call": "auto"}
    if not stream:
        return client.chat.completions.create(model="gpt-test", messages=messages, **more).choices[
            0
        ]
    with client.chat.completions.stream(model="gpt-test", messages=messages, **more) as events:
        return events.get_final_completion().choices[0]


@pytest.mark.requirement("legacy:reply", "legacy:history", "legacy:anchor")
@pytest.mark.parametrize("stream", [False, True])
def test_a_runner_that_speaks_of_functions_is_mediated_and_handed_function_calls(
    running: Pod, stream: bool
) -> None:
    running.service.routes["GET", "/balance"] = JSONResponse({"usd": 50_000})
    running.provider.says(
        calls(("c1", "desk__balance", {})),
        calls(("n1", "shell", {"cmd": "ls", "n": 1})),
        text("Done."),
    )
    client, messages = running.client(), [{"role": "user", "content": "Go"}]
    choice = ask(client, messages, stream=stream)
    assert (choice.finish_reason, choice.message.content, choice.message.tool_calls) == (
        "function_call",
        None,
        None,
    )
    assert (choice.message.function_call.name, choice.message.function_call.arguments) == (
        "shell",
        '{"cmd": "ls", "n": 1}',
    )
    respelt = {"name": "shell", "arguments": '{ "n": 1.0,"cmd":"ls" }'}
    messages += [
        {"role": "assistant", "content": "", "function_call": respelt},
        {"role": "function", "name": "shell", "content": "a file"},
    ]
    choice = ask(client, messages, stream=stream)
    assert (choice.finish_reason, choice.message.content) == ("stop", "Done.")
    first, *_, last = (sent.json for sent in running.provider.received)
    names = [entry["function"]["name"] for entry in first["tools"]]
    assert (names, first["tool_choice"]) == (["shell", "desk__balance", "desk__trade"], "auto")
    assert not {"functions", "function_call", "parallel_tool_calls"} & (first.keys() | last.keys())
    roles = [entry["role"] for entry in last["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "tool"]
    (made,) = last["messages"][3]["tool_calls"]
    assert made["function"] == respelt
    assert last["messages"][4]["tool_call_id"] == made["id"] != "n1"
