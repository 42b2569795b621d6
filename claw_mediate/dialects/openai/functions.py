"""OpenAI before tools: ``functions``, ``function_call``, and messages of the role ``function``.

docs/spec/mediation.md section 3. A runner that uses functions is answered with them, one call a
response, and its provider gets tools only: the old form can't express hidden rounds, since it has
no ids and one call a message. The ids that calls get are the same in every request. (The provider
is not asked for one call at a time: OpenAI's reasoning models refuse ``parallel_tool_calls``.)
"""

import hashlib
from collections import Counter

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.continuity import call_key
from claw_mediate.core.json_outline import decode_request_outline
from claw_mediate.core.json_pieces import contains, copy_span
from claw_mediate.core.tool_call import read_arguments
from claw_mediate.core.types import Arguments, ToolCall, UnreadableArguments
from claw_mediate.dialects.bodies import Changes
from claw_mediate.dialects.openai.wire_types import (
    Function,
    Message,
    arguments_text,
    function_call,
    message_name,
)

_read_messages = msgspec.json.Decoder(list[Message])
_NO_TEXT = (b"", b"null")


def functions_as_tools(functions: bytes) -> list[bytes]:
    """Return the runner's functions as tools, each in its own bytes."""
    return [
        b'{"type":"function","function":%b}' % functions[start:end]
        for start, end in json_splice.element_spans(functions)
    ]


def functions_as_tool_messages(messages: bytes) -> list[tuple[int, int, bytes]]:
    """Return the cuts that turn calls of functions, with the answers right behind them, into calls
    of tools and their answers.

    A call without its answer, or an answer without its call, stays as it is: the old form allows
    it, that of tools does not.
    """
    if not contains(messages, b"function_call"):
        return []
    views = decode_request_outline(_read_messages, messages)
    calls = [
        (index, call)
        for index, answer in enumerate(views[1:])
        if (call := _answered_call(views[index], answer))
    ]
    places = json_splice.element_spans(messages) if calls else []
    equal: Counter[str] = Counter()
    cuts: list[tuple[int, int, bytes]] = []
    for index, call in calls:
        digest = hashlib.sha256(f"{call.name}\0{_canonical_arguments(call)}".encode()).hexdigest()[
            :24
        ]
        call_id = f'"call{digest}n{equal[digest]}"'.encode()
        equal[digest] += 1
        (asked, answered) = (
            json_splice.Object(copy_span(messages, *place)) for place in places[index : index + 2]
        )
        called = (
            asked.value("function_call") or b"{}"
        )  # In its own bytes, which the view of a long one has not
        longer = (
            asked.edit(_as_tool_call(called, call_id)),
            answered.edit(_as_tool_message(views[index + 1], call_id)),
        )
        cuts += [
            (*place, each) for place, each in zip(places[index : index + 2], longer, strict=True)
        ]
    return cuts


def tool_call_as_function(choice: bytes) -> bytes:
    """Return a choice of the provider with its first call in the old form.

    The model can repeat its other calls.
    """
    message = json_splice.Object(choice).value("message") or b"{}"
    calls = json_splice.Object(message).value("tool_calls") or b"[]"
    first = json_splice.Object(calls[slice(*json_splice.element_spans(calls)[0])])
    function = first.value("function")
    if function in (None, b"null"):
        custom = json_splice.Object(first.value("custom") or b"{}")
        function = b'{"name":%b,"arguments":%b}' % (
            custom.value("name") or b'""',
            custom.value("input") or b'""',
        )
    changes: Changes = {
        "message": json_splice.edit(message, {"tool_calls": None, "function_call": function})
    }
    if json_splice.Object(choice).value("finish_reason") == b'"tool_calls"':
        changes["finish_reason"] = b'"function_call"'
    return json_splice.edit(choice, changes)


def function_key(function: Function) -> str:
    """Return the key by which a call in the old form is found again."""
    return call_key(function.name, _canonical_arguments(function))


def handoff_key(call: ToolCall) -> str:
    """Return the same key for a call that is handed over in the old form."""
    arguments = call.arguments
    if isinstance(arguments, UnreadableArguments):
        arguments = read_arguments(arguments.text)
    return call_key(call.name, _arguments_text(arguments))


def _answered_call(message: Message, answer: Message) -> Function | None:
    call = function_call(message) if message.role == "assistant" else None
    return (
        call
        if call and answer.role == "function" and message_name(answer) in (None, call.name)
        else None
    )


def _as_tool_call(function: bytes, call_id: bytes) -> Changes:
    call = b'[{"id":%b,"type":"function","function":%b}]' % (call_id, function)
    return {"function_call": None, "tool_calls": call}


def _as_tool_message(answer: Message, call_id: bytes) -> Changes:
    empty: Changes = {"content": b'""'} if bytes(answer.content) in _NO_TEXT else {}
    return {"role": b'"tool"', "tool_call_id": call_id, **empty}


def _canonical_arguments(function: Function) -> str:
    return _arguments_text(read_arguments(arguments_text(function)))


def _arguments_text(arguments: Arguments | UnreadableArguments) -> str:
    return arguments.signature if isinstance(arguments, Arguments) else arguments.text
