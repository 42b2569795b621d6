"""A forwarded stream without the usage that only we have asked for (``core/stream_usage.py``)."""

from collections.abc import Callable

from claw_contract.content_coding import Decoder, DecodingError
from claw_mediate.core.stream_usage import UsageChunkFilter
from claw_mediate.mitm.passthrough.answer_tap import MAX_UNPACKED


class StreamWithoutUsage:
    """A stream callable that hides from the runner the usage that only we have asked for.

    A tap reads the stream before that. A packed stream goes on unpacked. Like the tap, this
    never raises.
    """

    def __init__(
        self,
        tap: Callable[[bytes], bytes],
        applied: tuple[str, ...],
        on_failure: Callable[[], None],
    ) -> None:
        """Begin with the content codings of the answer.

        ``on_failure`` is called where the stream must break off. Raise ``DecodingError`` for
        codings that can't be read.
        """
        self._tap = tap
        self._decoder: Decoder | None = Decoder(applied, MAX_UNPACKED)
        self._filter = UsageChunkFilter()
        self._on_failure = on_failure

    def __call__(self, data: bytes) -> list[bytes]:
        self._tap(data)
        if self._decoder is None:
            return []

        try:
            unpacked = b"".join(self._decoder.feed(data)) if data else b""
        except DecodingError:
            self._decoder = None
            self._on_failure()
            return _pieces(self._filter.end())

        # mitmproxy's last call, at the end of the message, has no data.
        return _pieces(self._filter.feed(unpacked) if data else self._filter.end())


def _pieces(data: bytes) -> list[bytes]:
    """Return the pieces to send.

    None is empty: an empty chunk would be the end of the message.
    """
    return [data] if data else []
