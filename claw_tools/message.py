"""The tool ``message``: a message to a chat, through a channel that the operator configured.

A channel is a webhook, or a stream of Redis or Valkey. Specification: docs/spec/tools-host.md.

Rules. Only the channels on the list exist. A channel keeps no connection between messages. A
message is a write: it is sent once and never again, and the error of one that failed says whether
it may have been delivered.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from claw_contract.base import JsonObject
from claw_contract.secret import Secret
from claw_contract.toolhost_file import ChannelSection
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.tool import Tool
from claw_tools.web.dialer import Dialer, UnreachableError
from claw_tools.web.exchange import BrokenExchangeError, OutboundRequest, exchange
from claw_tools.web.urls import parse_url

MAX_ENTRIES: Final = 10_000
"""About how many messages a stream keeps."""
_STREAM_SECONDS: Final = 10.0
_WEBHOOK_SECONDS: Final = 20.0
_SUCCESS: Final = range(200, 300)
_SERVER_ERROR: Final = range(500, 600)
_MAX_CONTENT: Final = 32_768  # Characters
_MAX_CHAT_ID: Final = 256


class MessageChannel(ABC):
    """A place that messages go to."""

    @abstractmethod
    async def send(self, message: JsonObject) -> None:
        """Send a message ``{channel, chat_id, content}`` once, and never again.

        Raise ``ToolError``.
        """


def open_channel(name: str, section: ChannelSection) -> MessageChannel:
    """Return the channel of a section.

    Raise ``ValueError`` with one line for a URL that can't be used.
    """
    if section.redis is not None:
        return RedisStream(section.redis, section.stream or "")
    return Webhook(name, section.webhook or "", section.token)


class Webhook(MessageChannel):
    """A URL to which the message is POSTed as JSON; a redirect is not followed."""

    def __init__(self, name: str, url: str, token: Secret | None) -> None:
        """Raise ``ValueError`` for what is no URL."""
        try:
            self._url = parse_url(url)
        except ToolError:
            raise ValueError(
                f"message.channels.{name}.webhook is no http:// or https:// URL."
            ) from None

        self._headers = {"content-type": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token.reveal()}"
        # The operator named the host, so its address may be private
        self._dialer = Dialer(frozenset({self._url.host}))

    async def send(self, message: JsonObject) -> None:
        """POST the message once. Raise ``ToolError``."""
        request = OutboundRequest(self._url, self._headers, "POST", msgspec.json.encode(message))
        try:
            async with (
                asyncio.timeout(_WEBHOOK_SECONDS),
                exchange(self._dialer, request) as response,
            ):
                status = response.status
        except UnreachableError as error:
            raise _not_delivered(f"can't be reached ({error}), and nothing was sent") from None
        except (BrokenExchangeError, TimeoutError):
            raise _unknown_outcome("did not answer") from None

        if status in _SERVER_ERROR:
            raise _unknown_outcome(f"answered with status {status}")
        if status not in _SUCCESS:
            raise _not_delivered(f"refused the message with status {status}")


class RedisStream(MessageChannel):
    """A stream of Redis or Valkey, which keeps a bounded number of messages.

    The client is an optional extra.
    """

    def __init__(self, url: Secret, stream: str) -> None:
        """Connect to nothing."""
        self._url = url
        self._stream = stream

        with suppress(ImportError):  # The channel says so when it is used
            import redis.asyncio  # noqa: F401 - it takes a second, which no call should wait for

    async def send(self, message: JsonObject) -> None:
        """Append the message, on a connection of its own. Raise ``ToolError``."""
        try:
            from redis.asyncio import ConnectionPool  # An optional extra
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError:
            raise _not_delivered(
                "needs the redis client, which is not installed: pip install '.[redis]' "
                "in a checkout"
            ) from None

        no_retry = Retry(NoBackoff(), 0)
        pool: Any = ConnectionPool.from_url(self._url.reveal(), protocol=2, retry=no_retry)
        # A pool or a client repeats a command whose connection broke; a connection does not
        connection = pool.make_connection()
        try:
            await _connect(connection)
            await self._append(connection, message)
        finally:
            await connection.disconnect(nowait=True)

    async def _append(self, connection: Any, message: JsonObject) -> None:
        from redis.exceptions import RedisError, ResponseError

        fields = [part for name, value in message.items() for part in (name, value)]
        try:
            async with asyncio.timeout(_STREAM_SECONDS):
                await connection.send_command(
                    "XADD", self._stream, "MAXLEN", "~", MAX_ENTRIES, "*", *fields
                )
                await connection.read_response()
        except ResponseError:
            raise _not_delivered(
                "refused the message: its operator must look at the stream"
            ) from None
        except (RedisError, OSError):
            raise _unknown_outcome("did not answer") from None


async def _connect(connection: Any) -> None:
    from redis.exceptions import RedisError

    try:
        async with asyncio.timeout(_STREAM_SECONDS):
            await connection.connect()
    except (RedisError, OSError):
        raise _not_delivered("can't be reached, and nothing was sent") from None


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


def _not_delivered(reason: str) -> ToolError:
    """Return the error of a message that was certainly not delivered."""
    return ToolError(ErrorCode.EXECUTION_FAILED, f"the channel {reason}.")


def _unknown_outcome(reason: str) -> ToolError:
    """Return the error of a message that may have been delivered."""
    return ToolError(
        ErrorCode.EXECUTION_FAILED,
        f"the channel {reason}: whether the message was delivered is unknown. Find out before you "
        "send it again.",
    )
