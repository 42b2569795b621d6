"""The usage of OpenAI's streams.

OpenAI sends the usage of a stream only if ``stream_options.include_usage`` is true: in one more
chunk, whose ``choices`` are empty, before ``[DONE]``. An agent with a limit in dollars must not
decide whether its cost is known. So the proxy asks for the usage, and takes it out again for a
runner that did not ask for it.
"""

import re
from itertools import pairwise

import msgspec

from claw_mediate.core import json_splice
from claw_mediate.core.api_paths import normalize_path

_STREAMS = re.compile(r"/(?:chat/)?completions$")
_OPTIONS = "stream_options"
_INCLUDE_USAGE = "include_usage"
# Bytes. A longer event is no usage chunk: after it, nothing is searched for any more.
_MAX_EVENT = 1 << 20
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r(?=[^\n]))")
"""A blank line. A carriage return that came last may be the first half of a line's end."""
_LONGEST_END = 3  # Bytes of an ``_EVENT_END`` that may have come with the data before
_LINE_END = re.compile(rb"\r\n|\n|\r")


def has_optional_usage(path: str) -> bool:
    """Return True if streams of a path have a usage only if it is asked for.

    >>> paths = ("/v1/chat/completions", "/v1/completions", "/v1/messages")
    >>> [has_optional_usage(path) for path in paths]
    [True, True, False]
    """
    return _STREAMS.search(normalize_path(path)) is not None


def ask_for_usage(body: bytes) -> bytes | None:
    """Return the request with ``include_usage``.

    None if it asks for the usage itself, or its options are no object. Raise ``JsonSpliceError`` if
    it names the options, or this one, twice.
    """
    request = json_splice.Object(body)
    text = request.value(_OPTIONS)
    if text is None or text == b"null":
        return request.edit({_OPTIONS: b'{"include_usage":true}'})
    if not text.startswith(b"{"):
        return None

    options = json_splice.Object(text)
    if options.value(_INCLUDE_USAGE) not in (None, b"null", b"false"):
        return None

    return request.edit({_OPTIONS: options.edit({_INCLUDE_USAGE: b"true"})})


class _Chunk(msgspec.Struct):
    choices: list[msgspec.Raw]
    usage: dict[str, msgspec.Raw]


_chunk_decoder = msgspec.json.Decoder(_Chunk)


class UsageChunkFilter:
    """A filter that takes the chunk with only the usage out of a stream of events.

    Every other byte stays, in its order. Events are held back until they are whole. A usage in a
    chunk with text stays: the runner would miss the text.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._gives_up = False

    def feed(self, data: bytes) -> bytes:
        """Add data of the stream, and return what may go to the runner now."""
        if self._gives_up:
            return data

        # What was held back before has no end of an event, except for its last bytes.
        unsearched = max(0, len(self._rest) - _LONGEST_END)
        buffered = self._rest + data
        end = max((match.end() for match in _EVENT_END.finditer(buffered, unsearched)), default=0)
        whole = buffered[:end]
        self._rest = buffered[end:]

        if len(self._rest) > _MAX_EVENT:
            self._gives_up = True
            return _without_usage(whole) + self.end()

        return _without_usage(whole)

    def end(self) -> bytes:
        """Return what is left at the end of the stream."""
        rest = self._rest
        self._rest = b""
        return _without_usage(rest)


def _without_usage(events: bytes) -> bytes:
    if b'"usage"' not in events:
        return events

    ends = [match.end() for match in _EVENT_END.finditer(events)]
    single = [events[start:end] for start, end in pairwise([0, *ends, len(events)])]
    return b"".join(event for event in single if not _has_only_usage(event))


def _has_only_usage(event: bytes) -> bool:
    lines = _LINE_END.split(event)
    data = b"\n".join(line.removeprefix(b"data:") for line in lines if line.startswith(b"data:"))

    try:
        return not _chunk_decoder.decode(data).choices
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
