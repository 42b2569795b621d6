"""The tool ``message``: a message to a chat, through a channel that the operator configured
(docs/spec/tools-host.md).

Rules. Only the channels on the list exist. A message is a write: it is sent once, and if it is not
known whether it arrived, the error says so.
"""

from collections.abc import Mapping
from typing import Any, Final

from claw_contract.base import JsonObject
from claw_contract.toolhost_file import ChannelSection
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.message.channels import MessageChannel, open_channel
from claw_tools.tool import Tool

_MAX_CONTENT: Final = 32_768  # Characters
_MAX_CHAT_ID: Final = 256


def message_tools(channels: Mapping[str, ChannelSection], principal: str = "") -> list[Tool]:
    """Return ``message`` if there are channels; it tells them who the principal is.

    Raise ``ValueError`` with one line for a channel that can't be used.
    """
    opened = {name: open_channel(name, section) for name, section in channels.items()}
    return [MessageTool(opened, principal)] if opened else []


class MessageTool(Tool):
    """The tool ``message``."""

    name = "message"
    description = (
        "Send a message to a chat through one of the configured channels. It is sent at once, "
        "and can't be recalled."
    )
    annotations = {  # noqa: RUF012
        "readOnlyHint": False,
        "destructiveHint": False,
        "idempotentHint": False,
        "openWorldHint": True,
    }
    max_seconds = 30.0

    def __init__(self, channels: Mapping[str, MessageChannel], principal: str) -> None:
        """Take the channels by their names, and the name of the sender, which may be empty."""
        self._channels = channels
        self._principal = principal

        self.parameters = {
            "type": "object",
            "properties": {
                "channel": {
                    "type": "string",
                    "minLength": 1,
                    "description": f"One of {', '.join(sorted(channels))}.",
                },
                "chat_id": {"type": "string", "minLength": 1, "maxLength": _MAX_CHAT_ID},
                "content": {"type": "string", "minLength": 1, "maxLength": _MAX_CONTENT},
            },
            "required": ["channel", "chat_id", "content"],
            "additionalProperties": False,
        }

    async def execute(self, args: JsonObject) -> Any:
        """Return ``{status: "sent", channel, chat_id, content_length}``, the length in characters.

        Raise ``ToolError``.
        """
        channel = self._channels.get(args["channel"])
        if channel is None:
            known = ", ".join(sorted(self._channels))
            raise ToolError(
                ErrorCode.PERMISSION_DENIED, f"this channel is not on the list, which is: {known}."
            )

        address = {name: args[name] for name in ("channel", "chat_id")}
        message = {**address, "content": args["content"]}
        if not _is_unicode(message):
            raise ToolError(
                ErrorCode.INVALID_ARGS, "the message has half a character (a lone surrogate)."
            )

        if self._principal:
            message["principal"] = self._principal
        await channel.send(message)
        return {"status": "sent", **address, "content_length": len(args["content"])}


def _is_unicode(message: Mapping[str, str]) -> bool:
    try:
        "".join(message.values()).encode()
    except UnicodeError:
        return False
    return True
