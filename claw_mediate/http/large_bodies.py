"""Work on large bodies, beside the event loop: a body of 64 MB is read, searched
and written anew in seconds.

Other requests go on meanwhile. A thread takes turns with the loop between two steps of Python, so a
single call of C on such a body is the longest that anybody waits. Small bodies pay nothing: their
work is done at once.
"""

import asyncio
from collections.abc import Callable
from typing import Final

MAX_INLINE_BYTES: Final = 1 << 20


async def compute[T](size: int, work: Callable[[], T]) -> T:
    """Return what ``work`` returns; it runs in a thread if it is about a body of
    more than ``MAX_INLINE_BYTES``.
    """
    return work() if size <= MAX_INLINE_BYTES else await asyncio.to_thread(work)
