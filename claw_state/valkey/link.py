"""The state on a server, Valkey or Redis: the connection, and how keys are named.

    claw:agents              agents by when they were last there
    claw:last                the number of what was kept last
    claw:a:AGENT:used        what is kept of an agent, by when it was used; about, messages: each by its number
    claw:a:AGENT:whole       those of them that have their messages
    claw:a:AGENT:by:KEY      the numbers of one anchor
    claw:a:AGENT:spent       what the agent has spent, by the ends of buckets
    claw:a:AGENT:turns       the journal's turns by when they were last seen; asked:…, earlier:…: how they are found
    claw:t:TURN              a turn with all its steps
    claw:schema              the version of these keys

Every change is one script, so that it is whole or not there, and every key expires. One server, or a primary with replicas:
scripts make up their keys, which a cluster does not allow. A pod has a database of its own.

A server that is slow or gone never stalls a turn: a call has ``TIMEOUT_SECONDS``, and after one in vain nobody asks for a second.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from claw_state.health import StateUnavailableError, Health
from claw_state.url import Server, StoreError

if TYPE_CHECKING:
    from redis import Redis as Blocking
    from redis.asyncio import Redis
    from redis.commands.core import AsyncScript

SCHEMA = 1
"""Of the keys."""
TIMEOUT_SECONDS = 0.25
_MOST_CONNECTIONS = 32
PRELUDE = """
local clock = redis.call('TIME')
local now = tonumber(ARGV[1]) or (tonumber(clock[1]) + tonumber(clock[2]) / 1000000)
local function exact(number) return string.format('%.6f', number) end
local function of(agent) return 'claw:a:' .. agent .. ':' end
"""
"""Of every script. The time is the server's: proxies' clocks may differ. A test gives its own."""
DROP = """
local function drop(a, id)
  local anchor = a .. 'by:' .. string.match(redis.call('HGET', a .. 'about', id), '^[^\\n]*')
  redis.call('INCRBY', a .. 'bytes', 0 - redis.call('HSTRLEN', a .. 'messages', id)) -- there is a -0, which is no integer
  redis.call('HDEL', a .. 'about', id)
  redis.call('HDEL', a .. 'messages', id)
  redis.call('ZREM', a .. 'used', id)
  redis.call('ZREM', a .. 'whole', id)
  redis.call('ZREM', anchor, id)
end
"""
"""One of an agent's hidden rounds goes."""
_NOT_INSTALLED = "a state on a server needs the redis client, which is not installed: pip install 'clawdapus[redis]'"
_CODE = re.compile("[A-Z]{2,} ")
_OF_ONE_KEY = "WRONGTYPE "
_PASSES = ("MISCONF ", "BUSY ")
"""What a server says of itself for a while: its disk is full, it is at a long script."""


class Link:
    """The connection to a server. It is made when it is needed, and made again by itself."""

    def __init__(self, server: Server, health: Health | None = None, *, seconds: float = TIMEOUT_SECONDS) -> None:
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

    async def run(self, script: str, *values: str | bytes | float) -> Any:
        """The answer of a script that writes. Raises ``StoreError``."""
        answer = await self.read(script, *values)
        if answer:  # else nothing had to be written, which a server that is full allows
            self._health.written()
        return answer

    async def read(self, script: str, *values: str | bytes | float) -> Any:
        """The answer of a script that may not. Raises ``StoreError``."""
        if self._health.resting:
            raise StateUnavailableError("the server of the state can't be reached")
        if script not in self._scripts:
            self._scripts[script] = self._redis.register_script(PRELUDE + script)
        try:
            async with asyncio.timeout(self._seconds):
                return await self._scripts[script](args=values)
        except (*self._broken, TimeoutError, OSError) as error:
            self._health.rest()
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


@contextmanager
def blocking_client(server: Server, seconds: float) -> Iterator[Blocking]:
    """A client that is waited for. Raises ``StoreError`` when the server can't be reached now, and ``ValueError`` with one line
    where it refuses us for good, or holds what we can't know.
    """
    try:
        import redis  # an optional extra
    except ImportError:
        raise ValueError(_NOT_INSTALLED) from None
    errors = redis.exceptions
    client = redis.Redis.from_url(
        server.url.reveal(), socket_timeout=seconds, socket_connect_timeout=seconds, protocol=2
    )
    try:
        yield client
    except errors.MasterDownError as error:
        raise StoreError(_words(error)) from None
    except (errors.AuthenticationError, errors.ResponseError, errors.InvalidResponse) as error:
        if str(error).startswith(_PASSES):
            raise StoreError(f"the server of the state refuses: {error}") from None
        raise ValueError(f"the state at {server.shown} refuses us: {error}") from None
    except (errors.RedisError, OSError) as error:
        raise StoreError(_words(error)) from None
    finally:
        client.close()


def read_schema_version(client: Blocking, server: Server) -> int:
    """The version of what the server keeps. Raises ``ValueError`` for one that a later claw has written."""
    version = int(client.get("claw:schema") or SCHEMA)
    if version > SCHEMA:
        raise ValueError(
            f"a newer claw has written the state at {server.shown} (schema {version}, and this one knows {SCHEMA}): use that"
            " one, or another server"
        )
    return version


def probe_server(server: Server) -> str | None:
    """Why the server can't be reached now; None: it can. Raises ``ValueError`` where it can't be used."""
    try:
        with blocking_client(server, TIMEOUT_SECONDS) as client:
            read_schema_version(client, server)
    except StoreError as error:
        return str(error)
    return None


def _words(error: Exception) -> str:
    return (
        f"the server of the state can't be reached: {error}"
        if str(error)
        else "the server of the state does not answer"
    )
