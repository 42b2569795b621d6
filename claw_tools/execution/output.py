"""The output of a command: its beginning and its end are kept, and all of it is counted."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

import msgspec

KEPT_BYTES: Final = 32 << 10
"""How many bytes of the beginning are kept, and as many of the end."""


class KeptOutput(asyncio.Protocol):
    """One stream of a command."""

    def __init__(self, notice: Callable[[int], None]) -> None:
        """Tell ``notice`` how many bytes have come, each time."""
        self._notice = notice
        self._head, self._tail = bytearray(), bytearray()
        self.size = 0
        self.ended = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.size += len(data)
        room = KEPT_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[max(room, 0) :][-KEPT_BYTES:]
        del self._tail[:-KEPT_BYTES]
        self._notice(len(data))

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def show(self, room: int) -> tuple[str, bool]:
        """Return what was kept, in so many bytes of JSON, and whether something is
        missing between beginning and end.
        """
        kept = bytes(self._head + self._tail)
        if self.size == len(kept) and json_size(whole := kept.decode(errors="replace")) <= room:
            return whole, False
        lengths = range(len(kept) // 2 + 1)
        length = bisect_right(lengths, room, key=lambda each: json_size(self._ends(kept, each))) - 1
        return self._ends(kept, max(length, 0)), True

    def _ends(self, kept: bytes, length: int) -> str:
        ends = (
            part.decode(errors="replace") for part in (kept[:length], kept[len(kept) - length :])
        )
        return f"\n[... {self.size - 2 * length} bytes left out ...]\n".join(ends)


def json_size(text: str) -> int:
    """Return how many bytes a text takes in a result."""
    return len(msgspec.json.encode(text))
