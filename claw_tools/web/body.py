"""Bodies as text: content codings and charsets, both bounded.

Rules. Of what is sent, decoded or shown, each has a limit of its own, so that a few bytes can't
become many. One coding of zlib is read, which is all that is asked for. Charsets are those of the
list: others of Python's take quadratic time.
"""

import asyncio
import codecs
import re
import zlib
from typing import Final

from claw_tools.errors import ErrorCode, ToolError
from claw_tools.web.exchange import Body

ACCEPTED_CODINGS: Final = "gzip, deflate"
MAX_TEXT: Final = 1 << 20  # Characters of one result
_SLICE = 1 << 16
_GZIP = 16 + zlib.MAX_WBITS
_MEMBER: Final = b"\x1f\x8b"
"""The beginning of a member of gzip: one may follow another (RFC 1952, 2.2)."""
_MAX_MEMBERS: Final = 64
_PREFIX: Final = 1_024  # Bytes in which a document says its charset, and a binary file shows itself
_TEXT_TYPE = re.compile(
    r"text/.*|.*[/+](json|xml|yaml|toml)|application/(x-)?(javascript|ecmascript|ndjson|yaml|sh|sql|tex|www-form-urlencoded"
    r"|x-www-form-urlencoded)|message/.*|"
)
_CHARSET = re.compile(r"""charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.ASCII | re.IGNORECASE)
_CHARSETS = re.compile(
    r"utf-(8|16|16-[bl]e|32|32-[bl]e)|ascii|iso8859-\d+|cp\d+|koi8-[rtu]|mac-(roman|cyrillic)|tis-620"
    r"|shift_jis|euc_(jp|kr)|iso2022_jp|gb2312|gbk|gb18030|hz|big5|big5hkscs"
)
_MARKS: Final = (
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
    if name not in {"gzip", "x-gzip", "deflate"}:
        raise _fail("the server used a content coding that was not asked for, or more than one")
    try:
        return await asyncio.to_thread(_inflate, body, name, max_bytes)
    except zlib.error:
        raise _fail("what the server sent is not what its content coding says") from None


def is_text(content_type: str, content: bytes) -> bool:
    """Return whether a body is text, by its media type and by its beginning."""
    media_type = content_type.partition(";")[0].strip().lower()
    has_wide_characters = (
        any(content.startswith(mark) for mark, _ in _MARKS) or "utf-16" in content_type.lower()
    )
    return _TEXT_TYPE.fullmatch(media_type) is not None and (
        has_wide_characters or b"\0" not in content[:_PREFIX]
    )


async def decode_text(content: bytes, content_type: str, start: int) -> tuple[str, bool]:
    """Return the text from its character ``start`` on, and whether that is the rest
    of it; other tasks run meanwhile.
    """
    decoder = codecs.getincrementaldecoder(_find_charset(content_type, content[:_PREFIX]))(
        "replace"
    )
    parts: list[str] = []
    skip, room = start, MAX_TEXT
    for offset in range(0, len(content) + 1, _SLICE):
        text = decoder.decode(
            content[offset : offset + _SLICE], final=offset + _SLICE > len(content)
        )
        part, skip = text[skip:], max(0, skip - len(text))
        parts.append(part[:room])
        if len(part) > room:
            return "".join(parts), False
        room -= len(part)
        await asyncio.sleep(0)
    return "".join(parts), True


def _inflate(body: Body, name: str, max_bytes: int) -> Body:
    data, content = body.content, bytearray()
    wbits = _wbits(name, data)
    for _ in range(_MAX_MEMBERS):
        stream = zlib.decompressobj(wbits)
        content += stream.decompress(data, max_bytes + 1 - len(content))
        data = stream.unused_data
        if len(content) > max_bytes or not data.startswith(_MEMBER):
            break
    is_whole = body.is_whole and (stream.eof or not body.content) and not data.startswith(_MEMBER)
    return Body(bytes(content[:max_bytes]), is_whole and len(content) <= max_bytes)


def _wbits(name: str, data: bytes) -> int:
    """Return zlib's word for the wrapper; some servers send deflate without one."""
    if name != "deflate":
        return _GZIP
    has_wrapper = (
        data[:1] and data[0] & 0x0F == zlib.DEFLATED and int.from_bytes(data[:2]) % 31 == 0
    )
    return zlib.MAX_WBITS if has_wrapper else -zlib.MAX_WBITS


def _find_charset(content_type: str, beginning: bytes) -> str:
    """Return a codec: by the mark at the beginning, the header, or what an HTML
    document says of itself; else UTF-8.
    """
    for mark, codec in _MARKS:
        if beginning.startswith(mark):
            return codec
    for place in (content_type, beginning.decode("latin-1")):
        if (said := _CHARSET.search(place)) is not None:
            try:
                name = codecs.lookup(said[1]).name
            except LookupError:
                continue
            if _CHARSETS.fullmatch(name):
                return name
    return "utf-8"


def _fail(why: str) -> ToolError:
    return ToolError(ErrorCode.EXECUTION_FAILED, f"the page can't be read: {why}.")
