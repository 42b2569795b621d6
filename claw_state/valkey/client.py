"""The connection to a server, Valkey or Redis, and the names of its keys.

    claw:agents              agents by the time of their last request
    claw:last                the number of the latest continuity entry
    claw:a:AGENT:used        an agent's continuity entries by time of use
    claw:a:AGENT:about       the anchors of these entries by number
    claw:a:AGENT:messages    the hidden messages of these entries by number
    claw:a:AGENT:whole       those of these entries that have messages
    claw:a:AGENT:by:KEY      the entries of one anchor
    claw:a:AGENT:spent       the agent's spending by the ends of buckets
    claw:a:AGENT:held        reservations of the agent's requests under way
    claw:a:AGENT:turns       the journal's turns by the time they were last seen
    claw:a:AGENT:asked:…     these turns by their request
    claw:a:AGENT:earlier:…   these turns by the messages before the last one
    claw:a:AGENT:owned       the responses and conversations that the agent owns
    claw:a:AGENT:owned_used  the same by the time of their last use
    claw:a:AGENT:objects     the files, batches and the like that the agent owns
    claw:a:AGENT:objects_used  the same by the time of their last use
    claw:owners              agents by the time of the last use of a response or conversation
    claw:object_owners       agents by the time of the last use of another object
    claw:o:owned:PROVIDER ID
                             the agent that owns a response or conversation at a provider
    claw:o:objects:PROVIDER KIND ID
                             the agent that owns another object at a provider
    claw:t:TURN              a turn with all its steps
    claw:schema              the version of these keys
    claw:pod                 the pod whose proxy opened the state last

Every change is one atomic script, and every key expires. The server is a single one, or a primary
with replicas: scripts compute the names of their keys, which a cluster does not allow. Each pod has
its own database.

A slow or absent server never stalls a turn: a call may take ``TIMEOUT_SECONDS``, and for a second
after a timeout nobody asks again. Time in which our own event loop stood still does not count: the
server may have answered meanwhile. The client's package is an optional extra, imported when a
``ValkeyClient`` is made.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import DecodeError

from claw_state.continuity import MAX_AGE_SECONDS
from claw_state.health import Health, StateUnavailableError
from claw_state.url import ServerAddress, StoreError
from claw_state.valkey.scripts import load_script

if TYPE_CHECKING:
    from redis import Redis as Blocking
    from redis.asyncio import Redis
    from redis.commands.core import AsyncScript

SCHEMA = 1  # The version of the keys
TIMEOUT_SECONDS = 0.25
_TICKS = 5
"""A call's time has so many parts; one in which the event loop stands still may take any time."""
_MAX_CONNECTIONS = 32
PRELUDE = load_script("prelude")
"""The beginning of every script.

The time is the server's, since the clocks of proxies may differ; tests pass their own.
"""
_NOT_INSTALLED = (
    "a state on a server needs the redis client, which is not installed: pip install "
    "'.[redis]' in a checkout"
)
_CODE = re.compile("[A-Z]{2,} ")
_KEEPS_ALL = "noeviction"
_WRONG_TYPE = "WRONGTYPE "
_TEMPORARY = ("MISCONF ", "BUSY ")
"""Refusals that pass by themselves: the server's disk is full, or a long script is running."""


class ValkeyClient:
    """The connection to a server, opened when needed and reopened after a failure."""

    def __init__(
        self,
        server: ServerAddress,
        health: Health | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        """Raise ``ValueError`` with one line if the client's package is not installed."""
        try:
            from redis import asyncio as client  # an optional extra
            from redis import exceptions
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        except ImportError:
            raise ValueError(_NOT_INSTALLED) from None

        pool = client.BlockingConnectionPool.from_url(
            server.url.reveal(),
            max_connections=_MAX_CONNECTIONS,
            timeout=None,  # A call's own time is the limit, also while it waits for a connection
            protocol=2,
            retry=Retry(NoBackoff(), 1),  # if the server has closed a connection meanwhile
        )
        self._redis: Redis = client.Redis.from_pool(pool)
        self._scripts: dict[str, AsyncScript] = {}
        self._health = health or Health()
        self._timeout = timeout

        self._connection_errors = (exceptions.ConnectionError, exceptions.TimeoutError)
        self._redis_error = exceptions.RedisError
        self._response_error = exceptions.ResponseError

    async def run(self, script: str, *values: str | bytes | float) -> Any:
        """Run a script that writes, and return its answer. Raise ``StoreError``."""
        answer = await self.read(script, *values)
        if answer:  # else nothing was written, which a full server allows
            self.record_write()
        return answer

    def record_write(self) -> None:
        """Record that a script has written: the state is usable."""
        self._health.record_write()

    async def read(self, script: str, *values: str | bytes | float) -> Any:
        """Run a script that only reads, or whose answer says whether it wrote; return the answer.

        Raise ``StoreError``.
        """
        if self._health.is_backing_off:
            raise StateUnavailableError("the server of the state can't be reached")

        if script not in self._scripts:
            self._scripts[script] = self._redis.register_script(PRELUDE + script)
        try:
            async with _time_of_loop(self._timeout):
                return await self._scripts[script](args=values)
        except (*self._connection_errors, TimeoutError, OSError) as error:
            self._health.back_off()
            raise self._health.fail(_connection_message(error)) from error
        except UnicodeError as error:
            # A mistake of ours, not of the server: a text of the command can't be encoded.
            raise StoreError(str(error)) from error
        except (ValueError, OverflowError, RecursionError, MemoryError) as error:
            # Errors of the client's parser.
            raise self._health.fail(
                f"the server of the state answers in no protocol that we know: {error}"
            ) from error
        except self._redis_error as error:
            if self._is_script_error(error):
                raise StoreError(str(error)) from error
            raise self._health.fail(f"the server of the state refuses: {error}") from error

    async def close(self) -> None:
        await self._redis.aclose()

    def _is_script_error(self, error: Exception) -> bool:
        """Return whether the error is about this script's data, and not about the server."""
        if type(error) is not self._response_error:
            return False
        message = str(error)
        return message.startswith(_WRONG_TYPE) or not _CODE.match(message)


@contextmanager
def store_error_if_unreadable(what: str) -> Iterator[None]:
    """Raise ``StoreError`` where an answer has another form than our script gives it.

    ``what`` names the answer in the message.
    """
    try:
        yield
    except (
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
        OverflowError,
        DecodeError,
    ) as error:
        raise StoreError(f"{what} on the server can't be read: {error}") from error


@asynccontextmanager
async def _time_of_loop(seconds: float) -> AsyncIterator[None]:
    """Raise ``TimeoutError`` after so many seconds in which the event loop ran.

    The time is counted in ticks, each of which sets the timer of the next one. So a loop that stood
    still has at most one tick to catch up with.
    """
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def tick(left: int) -> None:
        nonlocal timer
        if left:
            timer = loop.call_later(seconds / _TICKS, tick, left - 1)
        else:
            limit.reschedule(loop.time())  # the time is over

    async with asyncio.timeout(None) as limit:
        timer = loop.call_later(seconds / _TICKS, tick, _TICKS - 1)
        try:
            yield
        finally:
            timer.cancel()


@contextmanager
def blocking_client(server: ServerAddress, timeout: float) -> Iterator[Blocking]:
    """Yield a blocking client.

    Raise ``StoreError`` if the server can't be reached now, and ``ValueError`` with one line if it
    refuses us for good.
    """
    try:
        import redis  # an optional extra
    except ImportError:
        raise ValueError(_NOT_INSTALLED) from None

    errors = redis.exceptions
    client = redis.Redis.from_url(
        server.url.reveal(), socket_timeout=timeout, socket_connect_timeout=timeout, protocol=2
    )
    try:
        yield client
    except errors.MasterDownError as error:
        raise StoreError(_connection_message(error)) from None
    except (errors.AuthenticationError, errors.ResponseError, errors.InvalidResponse) as error:
        if str(error).startswith(_TEMPORARY):
            raise StoreError(f"the server of the state refuses: {error}") from None
        raise ValueError(f"the state at {server.shown} refuses us: {error}") from None
    except (errors.RedisError, OSError) as error:
        raise StoreError(_connection_message(error)) from None
    finally:
        client.close()


def read_schema_version(client: Blocking, server: ServerAddress) -> int:
    """Return the version of the server's keys. Raise ``ValueError`` if a newer claw wrote them."""
    version = int(client.get("claw:schema") or SCHEMA)
    if version > SCHEMA:
        raise ValueError(
            f"a newer claw has written the state at {server.shown} (schema {version}, and this "
            f"one knows {SCHEMA}): use that one, or another server"
        )

    return version


def probe_server(server: ServerAddress) -> str | None:
    """Return why the server can't be reached now, or None.

    Raise ``ValueError`` if it can't be used at all.
    """
    try:
        with blocking_client(server, TIMEOUT_SECONDS) as client:
            read_schema_version(client, server)
    except StoreError as error:
        return str(error)
    return None


def find_eviction_policy(server: ServerAddress) -> str | None:
    """Return the policy by which a server deletes keys when its memory is full.

    None if it deletes none, or if it does not tell.
    """
    try:
        with blocking_client(server, TIMEOUT_SECONDS) as client:
            memory = client.info("memory")
    except (StoreError, ValueError):  # also a server that does not allow the question
        return None

    policy = str(memory.get("maxmemory_policy", _KEEPS_ALL))
    has_limit = bool(memory.get("maxmemory"))
    return policy if has_limit and policy != _KEEPS_ALL else None


def replace_pod_name(server: ServerAddress, pod: str) -> str | None:
    """Record that a proxy of this pod opens the state.

    Return the name of another pod whose proxy opened it before, or None.
    """
    try:
        with blocking_client(server, TIMEOUT_SECONDS) as client:
            before = client.set("claw:pod", pod, ex=int(MAX_AGE_SECONDS), get=True)
    except (StoreError, ValueError):  # it can't be reached, or takes no writes now
        return None

    name = before.decode(errors="replace") if isinstance(before, bytes) else ""
    return name if name and name != pod else None


def _connection_message(error: Exception) -> str:
    if not str(error):
        return "the server of the state does not answer"
    return f"the server of the state can't be reached: {error}"
