"""Requests that come again: the answer of a call by its session and its JSON-RPC id.

docs/spec/mcp.md "The broker". A client that lost its connection sends its request again. It gets
the answer of the call that runs, or has run, and nothing is run twice. An id with other arguments
is another call. Memory is bounded: the oldest answers are forgotten first.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

MAX_ANSWERS: Final = 1024
MAX_BYTES: Final = 8 << 20


class RequestKey(NamedTuple):
    """A request of one session. ``request_id`` is raw JSON: 1 and "1" are two ids."""

    session_id: str
    request_id: bytes
    call: bytes  # The digest of the tool and its arguments


class AnswerMemory:
    """The calls of one agent, running ones and answered ones."""

    def __init__(self, max_answers: int = MAX_ANSWERS, max_bytes: int = MAX_BYTES) -> None:
        self._max_answers = max_answers
        self._max_bytes = max_bytes
        self._calls: OrderedDict[RequestKey, asyncio.Task[bytes]] = OrderedDict()
        self._bytes = 0

    def find_or_start(
        self, key: RequestKey | None, start: Callable[[], asyncio.Task[bytes]]
    ) -> asyncio.Task[bytes]:
        """Return the call of this request, or start it.

        A request without a session (``key`` None) always starts one.
        """
        if key is None:
            return start()

        earlier = self._calls.get(key)
        if earlier is not None and not _has_failed(earlier):
            return earlier

        call = start()
        self._forget(key)
        self._calls[key] = call
        call.add_done_callback(lambda done: self._count(key, done))
        return call

    def forget_session(self, session_id: str) -> None:
        """Forget the answers of a session; calls that run go on."""
        for key in [each for each in self._calls if each.session_id == session_id]:
            self._forget(key)

    def _count(self, key: RequestKey, call: asyncio.Task[bytes]) -> None:
        """Count an answer that is there now, and forget the oldest while there are too many.

        This answer stays, however long it is.
        """
        if self._calls.get(key) is not call:
            return

        self._bytes += _size(call)
        while len(self._calls) > self._max_answers or self._bytes > self._max_bytes:
            oldest = self._find_oldest()
            if oldest is None or oldest == key:
                break
            self._forget(oldest)

    def _find_oldest(self) -> RequestKey | None:
        """Return the oldest request whose call is over."""
        for key, call in self._calls.items():
            if call.done():
                return key
        return None

    def _forget(self, key: RequestKey) -> None:
        call = self._calls.pop(key, None)
        if call is not None and call.done():
            self._bytes -= _size(call)


def _has_failed(call: asyncio.Task[bytes]) -> bool:
    """Return whether the call was canceled, or broke, and so has no answer."""
    return call.done() and (call.cancelled() or call.exception() is not None)


def _size(call: asyncio.Task[bytes]) -> int:
    return 0 if _has_failed(call) else len(call.result())
