"""Views of OpenAI messages: wire JSON that is read and never rebuilt.

A member is decoded when it is needed, and of a content only its text: an image of 30 MB is skipped.
Anything of a shape that we do not know is ignored, and left for the provider to judge.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from claw_mediate.dialects.bodies import ABSENT, decode_or_none

SYSTEM = ("system", "developer")  # Roles that speak for the agent's operator


class Function(msgspec.Struct):
    """A call of a function; with its name alone, also the declaration of one."""

    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b'""')


class WireCall(msgspec.Struct):
    """An element of ``tool_calls``."""

    id: Any = None
    function: Function | None = None
    custom: Function | None = None


class ChatMessage(msgspec.Struct):
    """An element of ``messages``. Responses has messages of the same shape."""

    role: Any = ""
    content: msgspec.Raw = ABSENT
    tool_calls: msgspec.Raw = ABSENT
    function_call: msgspec.Raw = ABSENT
    name: msgspec.Raw = ABSENT


class _Part(msgspec.Struct):
    text: Any = None


read_message = msgspec.json.Decoder(ChatMessage)
_content = msgspec.json.Decoder(str | list[_Part] | None)
_calls = msgspec.json.Decoder(list[WireCall] | None)
_function = msgspec.json.Decoder(Function | None)
_string = msgspec.json.Decoder(str)


def visible_text(message: ChatMessage, between: str = "") -> str:
    """Return the visible text of a message, with ``between`` between its parts."""
    return between.join(text_parts(message))


def text_parts(message: ChatMessage) -> Sequence[str]:
    """Return the visible texts of a message.

    Its content may be a string, parts, null or absent.
    """
    content = decode_or_none(_content, message.content)
    if isinstance(content, list):
        return [part.text for part in content if isinstance(part.text, str)]
    return [content] if content else ()


def tool_calls(message: ChatMessage) -> list[WireCall]:
    return decode_or_none(_calls, message.tool_calls) or []


def function_call(message: ChatMessage) -> Function | None:
    """Return the call of a message in the form that OpenAI had before tools."""
    if tool_calls(message):
        return None
    return decode_or_none(_function, message.function_call)


def message_name(message: ChatMessage) -> str | None:
    return decode_or_none(_string, message.name)


def arguments_text(function: Function) -> str:
    """Return the text of a call's arguments, which some providers give as an object."""
    raw = bytes(function.arguments)
    return _string.decode(raw) if raw[:1] == b'"' else raw.decode()
