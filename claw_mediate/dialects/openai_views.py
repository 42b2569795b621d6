"""What is read of OpenAI messages: views of the wire JSON, never rebuilt from."""

from __future__ import annotations

from typing import Any

import msgspec


class Function(msgspec.Struct):
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b'""')


class WireCall(msgspec.Struct):
    id: str | None = None
    function: Function | None = None
    custom: Function | None = None


class Message(msgspec.Struct):
    role: str = ""
    content: Any = None
    tool_calls: list[WireCall] | None = None


read_message = msgspec.json.Decoder(Message)


def visible_text(message: Message) -> str:
    """The visible text of a message, whether it is a string, its parts, null or absent."""
    if isinstance(message.content, str):
        return message.content
    if isinstance(message.content, list):
        parts = [part.get("text") for part in message.content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return ""
