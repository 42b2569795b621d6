"""OpenAI chat completions before tools, as a runner speaks it: functions in, a
function call out, tools upstream.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tests.wires import Body, MadeCall, ReplyContent, openai

PATH = openai.PATH
MODEL = openai.MODEL
TRANSCRIPT = openai.TRANSCRIPT
user = openai.user
reply = openai.reply
streamed = openai.streamed
error = openai.error
kept = openai.kept
usage = openai.usage
assembled = openai.assembled
stream_error = openai.stream_error
code = openai.code
answers = openai.answers
called = openai.called
ended = openai.ended
picture = openai.picture
foreign = openai.foreign
echoes = openai.echoes
tools = openai.tools
chosen = openai.chosen


def request(messages: Sequence[Body], native: Sequence[str], *, stream: bool, more: Body) -> Body:
    body = openai.request(messages, (), stream=stream, more=more)
    return body | (
        {"functions": [{"name": name, "parameters": {}} for name in native]} if native else {}
    )


def results(given: Sequence[tuple[str, str]]) -> list[Body]:
    """Return the results as messages that name their function: this form has no ids."""
    return [{"role": "function", "name": name, "content": output} for name, output in given]


def choice(word: str, *, parallel: bool | None = None) -> Body:
    assert parallel is None, "this form has one call a reply"
    return {"function_call": word if word in {"auto", "none"} else {"name": word}}


def said(body: bytes) -> ReplyContent:
    """Return the content of a provider's response, or of the one that the runner was handed."""
    choice = json.loads(body)["choices"][0]
    message = choice["message"]
    if function := message.get("function_call"):
        assert "tool_calls" not in message
        assert choice["finish_reason"] == "function_call"
        made = MadeCall(function["name"], function["name"], function["arguments"])
        return ReplyContent(
            message["content"] or "", (made,), message.get("reasoning_content") or ""
        )
    return openai.said(body)


def parts(messages: Sequence[Body]) -> list[str]:
    return ["tool" if message["role"] == "function" else message["role"] for message in messages]


def check(request: Body, replies: Mapping[str, bytes]) -> None:
    """Check that nothing of the old form is left, and that the ids which the proxy
    gave to calls are valid.
    """
    assert not request.keys() & {"functions", "function_call"}
    calls = [call for message in request["messages"] for call in message.get("tool_calls") or ()]
    assert all(
        "function_call" not in message and message["role"] != "function"
        for message in request["messages"]
    )
    minted = [call["id"] for call in calls if call["id"] not in replies]
    assert all(call_id.isalnum() and len(call_id) <= 40 for call_id in minted)
    assert len(minted) == len(set(minted))
    said = {
        call["id"]: _said_with(message)
        for message in request["messages"]
        for call in message.get("tool_calls", ())
    }
    openai.check(request, {**said, **replies})


def _said_with(message: Body) -> bytes:
    """Return a reply made of the message itself: nobody has the reply to a call
    whose id the proxy made.
    """
    return json.dumps({"choices": [{"message": message}]}).encode()
