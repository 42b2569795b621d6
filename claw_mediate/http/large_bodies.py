"""Work on large bodies, beside the event loop.

A body of 64 MB is read, searched and written anew in seconds. Other requests go on meanwhile: a
thread takes turns with the loop between two steps of Python, so a single call of C on such a body
is the longest that anybody waits. Small bodies pay nothing: their work is done at once.
"""

import asyncio
from collections.abc import Callable
from typing import Final

MAX_INLINE_BYTES: Final = 1 << 20


async def compute[T](size: int, work: Callable[[], T]) -> T:
    """Return what ``work`` returns.

    It runs in a thread if ``size``, that of its body, is more than ``MAX_INLINE_BYTES``.
    """
    if size <= MAX_INLINE_BYTES:
        return work()
    return await asyncio.to_thread(work)
