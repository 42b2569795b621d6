"""Reading bodies of peers that may be slow, huge or endless: bounded in bytes, by the caller in time."""

from __future__ import annotations

import httpx2


async def read_bounded(response: httpx2.Response, keep: int, most: int) -> tuple[bytes, int]:
    """(the first ``keep`` bytes, the true size). A body of more than ``most`` bytes is given up: its size is then more."""
    kept = bytearray()
    size = 0
    async for chunk in response.aiter_bytes():
        if len(kept) < keep:
            kept += chunk[: keep - len(kept)]
        size += len(chunk)
        if size > most:
            break
    return bytes(kept), size
