"""Bounded reading of the bodies of peers."""

from claw_mediate.http.client import Response


async def read_bounded(response: Response, keep: int, max_bytes: int) -> tuple[bytes, int]:
    """Return (the first ``keep`` bytes, the size), both without the content coding.

    Stop reading once the size exceeds ``max_bytes``.
    """
    if not response.headers.get_list("content-encoding"):
        whole = response.take_whole()
        if whole is not None:
            return whole[:keep], len(whole)

    kept = bytearray()
    size = 0
    async for chunk in response.aiter_bytes():
        if len(kept) < keep:
            kept += chunk[: keep - len(kept)]
        size += len(chunk)
        if size > max_bytes:
            break
    return bytes(kept), size
