"""The usage of OpenAI's streams: it is asked for, and taken out again for a runner
that did not ask for it.

OpenAI sends the usage of a stream only if ``stream_options.include_usage`` is true: in one more
chunk, whose ``choices`` are empty, before ``[DONE]``. An agent with a limit in dollars is not to
decide whether its cost is known.
"""

import re
from itertools import pairwise

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.api_paths import normalize_path

_STREAMS = re.compile(r"/(?:chat/)?completions$")
_OPTION, _WANTED = "stream_options", "include_usage"
_MAX_EVENT = 1 << 20  # A longer event is no usage chunk: from there on nothing is searched for
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r(?=[^\n]))")
"""A blank line. A carriage return that came last may be half of a line's end."""
_LONGEST_END = 3  # Bytes of it that may have come before its last one
_LINE_END = re.compile(rb"\r\n|\n|\r")


def has_optional_usage(path: str) -> bool:
    """Return whether streams of a path have a usage only if it is asked for.

    >>> [has_optional_usage(path) for path in ("/v1/chat/completions", "/v1/completions",
    "/v1/messages")] [True, True, False]
    """
    return _STREAMS.search(normalize_path(path)) is not None


def ask_for_usage(body: bytes) -> bytes | None:
    """Return the request with ``include_usage``; None if it asks for it itself, or
    has options that nobody understands.

    Raise ``JsonSpliceError`` for a request that names them twice.
    """
    request = json_splice.Object(body)
    options = request.value(_OPTION)
    if options in (None, b"null"):
        return request.edit({_OPTION: b'{"include_usage":true}'})
    assert options is not None
    if not options.startswith(b"{"):
        return None

    wanted = json_splice.Object(options)
    if wanted.value(_WANTED) not in (None, b"null", b"false"):
        return None
    return request.edit({_OPTION: wanted.edit({_WANTED: b"true"})})


class _Chunk(msgspec.Struct):
    choices: list[msgspec.Raw]
    usage: dict[str, msgspec.Raw]


_chunk_decoder = msgspec.json.Decoder(_Chunk)


class UsageChunkFilter:
    """A stream of events without the chunk that has only the usage.

    Every other byte stays, in its order.

    Events are held back until they are whole. A usage beside text stays: the runner would miss the
    text.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._gives_up = False

    def feed(self, data: bytes) -> bytes:
        """Return what may go on."""
        if self._gives_up:
            return data

        searched = max(0, len(self._rest) - _LONGEST_END)
        buffered = self._rest + data
        end = max((match.end() for match in _EVENT_END.finditer(buffered, searched)), default=0)
        whole, self._rest = buffered[:end], buffered[end:]
        if len(self._rest) > _MAX_EVENT:
            self._gives_up = True
            return _without_usage(whole) + self.end()
        return _without_usage(whole)

    def end(self) -> bytes:
        """Return what is left at the end of the stream."""
        rest, self._rest = self._rest, b""
        return _without_usage(rest)


def _without_usage(events: bytes) -> bytes:
    if b'"usage"' not in events:
        return events

    ends = [match.end() for match in _EVENT_END.finditer(events)]
    each_event = (events[start:end] for start, end in pairwise([0, *ends, len(events)]))
    return b"".join(event for event in each_event if not _has_only_usage(event))


def _has_only_usage(event: bytes) -> bool:
    lines = _LINE_END.split(event)
    data = b"\n".join(line.removeprefix(b"data:") for line in lines if line.startswith(b"data:"))
    try:
        return not _chunk_decoder.decode(data).choices
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
