"""The state on a server, Valkey or Redis: the connection, and how keys are named.

    claw:agents              agents by when they were last there
    claw:last                the number of what was kept last
    claw:a:AGENT:used        what is kept of an agent, by when it was used; about, messages: each by its number
    claw:a:AGENT:whole       those of them that have their messages
    claw:a:AGENT:by:KEY      the numbers of one anchor
    claw:a:AGENT:turns       the journal's turns by when they were last seen; asked:…, earlier:…: how they are found
    claw:t:TURN              a turn with all its steps

Every change is one script, so that it is whole or not there, and every key expires. One server, or a primary with replicas:
scripts make up their keys, which a cluster does not allow. A pod has a database of its own.

A server that is slow or gone never stalls a turn: a call has ``SECONDS``, and after one in vain nobody asks for ``_REST``.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any

from claw_state.health import GoneError, Health
from claw_state.place import Server, StoreError

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.commands.core import AsyncScript

SECONDS = 0.25
_REST = 1.0
_MOST_CONNECTIONS = 32
_PRELUDE = """
local clock = redis.call('TIME')
local now = tonumber(ARGV[1]) or (tonumber(clock[1]) + tonumber(clock[2]) / 1000000)
local function exact(number) return string.format('%.6f', number) end
local function of(agent) return 'claw:a:' .. agent .. ':' end
"""
"""Of every script. The time is the server's: proxies' clocks may differ. A test gives its own."""
_NOT_INSTALLED = "a state on a server needs the redis client, which is not installed: pip install 'clawdapus[redis]'"
_CODE = re.compile("[A-Z]{2,} ")
_OF_ONE_KEY = "WRONGTYPE "


class Link:
    """The connection to a server. It is made when it is needed, and made again by itself."""

    def __init__(self, server: Server, health: Health | None = None, *, seconds: float = SECONDS) -> None:
        """Raises ``ValueError`` with one line where the client's package is not installed."""
        try:
            from redis import asyncio as client  # an optional extra
            from redis import exceptions
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError:
            raise ValueError(_NOT_INSTALLED) from None
        pool = client.BlockingConnectionPool.from_url(
            server.url.reveal(),
            max_connections=_MOST_CONNECTIONS,
            timeout=seconds,
            protocol=2,
            retry=Retry(NoBackoff(), 1),  # a connection that the server has closed meanwhile
        )
        self._redis: Redis = client.Redis.from_pool(pool)
        self._scripts: dict[str, AsyncScript] = {}
        self._broken = (exceptions.ConnectionError, exceptions.TimeoutError)
        self._refused = exceptions.RedisError
        self._plain = exceptions.ResponseError
        self._health = health or Health()
        self._seconds = seconds
        self._rests_until = 0.0

    async def run(self, script: str, *values: str | bytes | float) -> Any:
        """The answer of a script that writes. Raises ``StoreError``."""
        answer = await self.read(script, *values)
        self._health.written()
        return answer

    async def read(self, script: str, *values: str | bytes | float) -> Any:
        """The answer of a script that may not. Raises ``StoreError``."""
        if time.monotonic() < self._rests_until:
            raise GoneError("the server of the state can't be reached")
        if script not in self._scripts:
            self._scripts[script] = self._redis.register_script(_PRELUDE + script)
        try:
            async with asyncio.timeout(self._seconds):
                return await self._scripts[script](args=values)
        except (*self._broken, TimeoutError, OSError) as error:
            self._rests_until = time.monotonic() + _REST
            raise self._health.failed(_words(error)) from error
        except self._refused as error:
            if self._is_of_our_keys(error):
                raise StoreError(str(error)) from error
            raise self._health.failed(f"the server of the state refuses: {error}") from error

    async def close(self) -> None:
        await self._redis.aclose()

    def _is_of_our_keys(self, error: Exception) -> bool:
        """Whether a script went wrong by what it found, which says nothing of the server."""
        words = str(error)
        return type(error) is self._plain and (words.startswith(_OF_ONE_KEY) or not _CODE.match(words))


def probe(server: Server) -> str | None:
    """Why the server can't be reached now; None: it can. Raises ``ValueError`` where it refuses us for good."""
    try:
        import redis  # an optional extra
    except ImportError:
        raise ValueError(_NOT_INSTALLED) from None
    client = redis.Redis.from_url(
        server.url.reveal(), socket_timeout=SECONDS, socket_connect_timeout=SECONDS, protocol=2
    )
    try:
        client.ping()
    except (redis.exceptions.AuthenticationError, redis.exceptions.ResponseError) as error:
        raise ValueError(f"the state at {server.shown} refuses us: {error}") from None
    except (redis.exceptions.RedisError, OSError) as error:
        return _words(error)
    finally:
        client.close()
    return None


def _words(error: Exception) -> str:
    return (
        f"the server of the state can't be reached: {error}"
        if str(error)
        else "the server of the state does not answer"
    )
