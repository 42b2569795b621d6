"""OpenAI before tools: ``functions``, ``function_call``, and messages of the role ``function``.

docs/spec/mediation.md section 3. A runner that uses functions gets functions back, one call a
response. Its provider gets tools only: the old form can't express hidden rounds, because it has no
ids, and one call a message. The ids that we give to calls are the same in every request.

The provider is not asked for one call at a time: OpenAI's reasoning models refuse
``parallel_tool_calls``.
"""

import hashlib
from collections import Counter
from itertools import pairwise

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.continuity import call_key
from claw_mediate.core.json_outline import decode_request_outline
from claw_mediate.core.json_pieces import contains, copy_span
from claw_mediate.core.tool_call import read_arguments
from claw_mediate.core.types import Arguments, ToolCall, UnreadableArguments
from claw_mediate.dialects.bodies import Changes
from claw_mediate.dialects.openai.wire_types import (
    ChatMessage,
    Function,
    arguments_text,
    function_call,
    message_name,
)

_read_messages = msgspec.json.Decoder(list[ChatMessage])
_NO_TEXT = (b"", b"null")


def functions_as_tools(functions: bytes) -> list[bytes]:
    """Return the runner's functions as tools, each in its own bytes."""
    return [
        b'{"type":"function","function":%b}' % functions[start:end]
        for start, end in json_splice.element_spans(functions)
    ]


def functions_as_tool_messages(messages: bytes) -> list[tuple[int, int, bytes]]:
    """Return the cuts that turn calls of functions and their answers into those of tools.

    An answer comes right after its call. A call without answer, or an answer without call, stays as
    it is: the form of functions allows it, that of tools does not.
    """
    if not contains(messages, b"function_call"):
        return []

    views = decode_request_outline(_read_messages, messages)
    answered: list[tuple[int, Function]] = []
    for index, (message, following) in enumerate(pairwise(views)):
        call = _answered_call(message, following)
        if call is not None:
            answered.append((index, call))
    if not answered:
        return []

    spans = json_splice.element_spans(messages)
    equal_calls: Counter[str] = Counter()
    cuts: list[tuple[int, int, bytes]] = []
    for index, call in answered:
        # The id is made of the call, and of how many equal ones came before: so it is the same in
        # every later request of the conversation.
        text = f"{call.name}\0{_canonical_arguments(call)}"
        digest = hashlib.sha256(text.encode()).hexdigest()[:24]
        call_id = f'"call{digest}n{equal_calls[digest]}"'.encode()
        equal_calls[digest] += 1

        call_start, call_end = spans[index]
        asking = json_splice.Object(copy_span(messages, call_start, call_end))
        # The function is taken in its own bytes: of a long one, the view has only the beginning.
        function = asking.value("function_call") or b"{}"
        cuts.append((call_start, call_end, asking.edit(_as_tool_call(function, call_id))))

        answer_start, answer_end = spans[index + 1]
        answer = json_splice.Object(copy_span(messages, answer_start, answer_end))
        changes = _as_tool_message(views[index + 1], call_id)
        cuts.append((answer_start, answer_end, answer.edit(changes)))

    return cuts


def tool_call_as_function(choice: bytes) -> bytes:
    """Return a choice of a response with its first call in the old form.

    Its other calls are left out: the model can make them again.
    """
    parsed = json_splice.Object(choice)
    message = parsed.value("message") or b"{}"
    calls = json_splice.Object(message).value("tool_calls") or b"[]"
    start, end = json_splice.element_spans(calls)[0]
    call = json_splice.Object(calls[start:end])

    function = call.value("function")
    if function in (None, b"null"):
        custom = json_splice.Object(call.value("custom") or b"{}")
        name = custom.value("name") or b'""'
        text = custom.value("input") or b'""'
        function = b'{"name":%b,"arguments":%b}' % (name, text)

    changes: Changes = {
        "message": json_splice.edit(message, {"tool_calls": None, "function_call": function})
    }
    if parsed.value("finish_reason") == b'"tool_calls"':
        changes["finish_reason"] = b'"function_call"'
    return parsed.edit(changes)


def function_key(function: Function) -> str:
    """Return the key of a handoff in the old form."""
    return call_key(function.name, _canonical_arguments(function))


def handoff_key(call: ToolCall) -> str:
    """Return the same key for a call that is handed over in the old form."""
    arguments = call.arguments
    if isinstance(arguments, UnreadableArguments):
        arguments = read_arguments(arguments.text)
    return call_key(call.name, _arguments_text(arguments))


def _answered_call(message: ChatMessage, answer: ChatMessage) -> Function | None:
    """Return the call of a message, if the other one answers it."""
    call = function_call(message) if message.role == "assistant" else None
    if call is None or answer.role != "function":
        return None

    return call if message_name(answer) in (None, call.name) else None


def _as_tool_call(function: bytes, call_id: bytes) -> Changes:
    call = b'[{"id":%b,"type":"function","function":%b}]' % (call_id, function)
    return {"function_call": None, "tool_calls": call}


def _as_tool_message(answer: ChatMessage, call_id: bytes) -> Changes:
    changes: Changes = {"role": b'"tool"', "tool_call_id": call_id}
    if bytes(answer.content) in _NO_TEXT:
        changes["content"] = b'""'
    return changes


def _canonical_arguments(function: Function) -> str:
    return _arguments_text(read_arguments(arguments_text(function)))


def _arguments_text(arguments: Arguments | UnreadableArguments) -> str:
    return arguments.signature if isinstance(arguments, Arguments) else arguments.text
