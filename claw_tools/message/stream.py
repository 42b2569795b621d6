"""Channels that are a stream of Redis or Valkey. The client is an optional extra."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from claw_contract.base import JsonObject
from claw_tools.message.channel import Channel, refused, unknown_outcome
from claw_tools.settings import StreamChannel

MAX_ENTRIES: Final = 10_000
"""About how many messages a stream keeps."""
_SECONDS: Final = 10.0
SCHEMES: Final = ("redis://", "rediss://")


class Stream(Channel):
    """Appends the message to a stream, which keeps a bounded number of them."""

    def __init__(self, name: str, settings: StreamChannel) -> None:
        """Raise ``ValueError`` for what is no URL of a server."""
        if not settings.url.reveal().startswith(SCHEMES):
            raise ValueError(f"message.channels.{name}.redis is no redis:// or rediss:// URL.")
        self._settings = settings
        with suppress(ImportError):  # The channel says so when it is used
            import redis.asyncio  # noqa: F401 - it takes a second, which no call should wait for

    async def send(self, message: JsonObject) -> None:
        """Append the message, on a connection of its own. Raise ``ToolError``."""
        try:
            from redis.asyncio import ConnectionPool  # An optional extra
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError:
            raise refused(
                "needs the redis client, which is not installed: pip install 'clawdapus[redis]'"
            ) from None
        pool: Any = ConnectionPool.from_url(
            self._settings.url.reveal(), protocol=2, retry=Retry(NoBackoff(), 0)
        )
        connection = (
            pool.make_connection()
        )  # A connection repeats no command, as a pool or a client would
        try:
            await _connect(connection)
            await self._append(connection, message)
        finally:
            await connection.disconnect(nowait=True)

    async def _append(self, connection: Any, message: JsonObject) -> None:
        from redis.exceptions import RedisError, ResponseError

        fields = [part for name, value in message.items() for part in (name, value)]
        try:
            async with asyncio.timeout(_SECONDS):
                await connection.send_command(
                    "XADD", self._settings.stream, "MAXLEN", "~", MAX_ENTRIES, "*", *fields
                )
                await connection.read_response()
        except ResponseError:
            raise refused("refused the message: its operator must look at the stream") from None
        except (RedisError, OSError):
            raise unknown_outcome("did not answer") from None


async def _connect(connection: Any) -> None:
    from redis.exceptions import RedisError

    try:
        async with asyncio.timeout(_SECONDS):
            await connection.connect()
    except (RedisError, OSError):
        raise refused("can't be reached, and nothing was sent") from None
