"""Bodies as text: content codings and charsets, both bounded.

Rules. What is sent, decoded and shown has a limit each, so that a few bytes can't become many. One
coding of zlib is read, which is all that is asked for. Charsets are those of the list: others of
Python's take quadratic time.
"""

import asyncio
import codecs
import math
import re
from typing import Final

from claw_contract.content_coding import DecodedTooLargeError, Decoder, DecodingError
from claw_tools.errors import ErrorCode, ToolError
from claw_tools.web.exchange import Body

ACCEPTED_CODINGS: Final = "gzip, deflate"
MAX_TEXT: Final = 1 << 20  # Characters of one result
_CODINGS: Final = frozenset({"gzip", "x-gzip", "deflate"})
_SLICE: Final = 1 << 16
_PREFIX: Final = 1_024
"""Bytes in which a document says its charset, and in which a binary file shows itself."""
_TEXT_TYPE = re.compile(
    r"text/.*"
    r"|.*[/+](json|xml|yaml|toml)"
    r"|application/(x-)?(javascript|ecmascript|ndjson|yaml|sh|sql|tex|www-form-urlencoded"
    r"|x-www-form-urlencoded)"
    r"|message/.*"
    r"|"
)
_CHARSET = re.compile(r"""charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.ASCII | re.IGNORECASE)
_CHARSETS = re.compile(
    r"utf-(8|16|16-[bl]e|32|32-[bl]e)|ascii|iso8859-\d+|cp\d+|koi8-[rtu]|mac-(roman|cyrillic)"
    r"|tis-620|shift_jis|euc_(jp|kr)|iso2022_jp|gb2312|gbk|gb18030|hz|big5|big5hkscs"
)
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


async def decode_body(body: Body, coding: str, max_bytes: int) -> Body:
    """Return the body without its content coding, cut to ``max_bytes``.

    Raise ``ToolError`` with EXECUTION_FAILED.
    """
    name = coding.strip().lower()
    if name in {"", "identity"}:
        return body
    if name not in _CODINGS:
        raise _unreadable(
            "the server used a content coding that was not asked for, or more than one"
        )

    try:
        return await asyncio.to_thread(_decode, body, name, max_bytes)
    except DecodingError:
        raise _unreadable("what the server sent is not what its content coding says") from None


def is_text(content_type: str, content: bytes) -> bool:
    """Return whether a body is text, by its media type and by its beginning."""
    media_type = content_type.partition(";")[0].strip().lower()
    if _TEXT_TYPE.fullmatch(media_type) is None:
        return False

    has_mark = any(content.startswith(mark) for mark, _ in _BYTE_ORDER_MARKS)
    has_wide_characters = has_mark or "utf-16" in content_type.lower()
    return has_wide_characters or b"\0" not in content[:_PREFIX]


async def decode_text(content: bytes, content_type: str, start: int) -> tuple[str, bool]:
    """Return the text from its character ``start`` on, and whether that is all the rest of it.

    Other tasks run meanwhile.
    """
    charset = _find_charset(content_type, content[:_PREFIX])
    decoder = codecs.getincrementaldecoder(charset)("replace")
    parts: list[str] = []
    to_skip = start
    room = MAX_TEXT
    for offset in range(0, len(content) + 1, _SLICE):  # The last slice is not full, maybe empty
        end = offset + _SLICE
        text = decoder.decode(content[offset:end], final=end > len(content))
        part = text[to_skip:]
        to_skip = max(0, to_skip - len(text))

        parts.append(part[:room])
        if len(part) > room:
            return "".join(parts), False
        room -= len(part)
        await asyncio.sleep(0)
    return "".join(parts), True


def _decode(body: Body, coding: str, max_bytes: int) -> Body:
    """Return the decoded body, cut to ``max_bytes``. Raise ``DecodingError``."""
    # The body is bounded, and what is over ``max_bytes`` is left out rather than refused. So the
    # decoder needs no limits of its own but that on members. Many servers pad what they send.
    decoder = Decoder([coding], math.inf, max_ratio=math.inf, ignores_padding=True)
    content = bytearray()
    try:
        for start in range(0, len(body.content), _SLICE):
            for piece in decoder.feed(body.content[start : start + _SLICE]):
                content += piece
                if len(content) > max_bytes:
                    return Body(bytes(content[:max_bytes]), is_whole=False)
    except DecodedTooLargeError:  # Too many members
        return Body(bytes(content), is_whole=False)
    return Body(bytes(content), body.is_whole and decoder.is_complete)


def _find_charset(content_type: str, beginning: bytes) -> str:
    """Return a codec: by the byte order mark, by the header, or by what an HTML document says.

    Without any of these it is UTF-8.
    """
    for mark, codec in _BYTE_ORDER_MARKS:
        if beginning.startswith(mark):
            return codec

    for source in (content_type, beginning.decode("latin-1")):
        match = _CHARSET.search(source)
        if match is None:
            continue
        try:
            name = codecs.lookup(match[1]).name
        except LookupError:
            continue
        if _CHARSETS.fullmatch(name):
            return name
    return "utf-8"


def _unreadable(reason: str) -> ToolError:
    return ToolError(ErrorCode.EXECUTION_FAILED, f"the page can't be read: {reason}.")
