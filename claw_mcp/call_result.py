"""The result of ``tools/call`` as a server sends it, and its parts in words. No I/O.

Rules. A result is read although a server writes null for members that are absent.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

COMPLETE = "complete"
_MAX_LABEL = 200  # Characters of a part's name, address or type


class CallResult(msgspec.Struct, rename="camel"):
    """A result. Members that are absent are empty."""

    content: list[msgspec.Raw] = []
    structured_content: msgspec.Raw = msgspec.Raw(b"")
    is_error: bool = False
    result_type: str = COMPLETE


class _Resource(msgspec.Struct, rename="camel"):
    uri: str | None = None
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None


class Part(msgspec.Struct, rename="camel"):
    """One part of ``content``, with the members of all types."""

    type: str = ""
    text: str = ""
    data: str = ""
    mime_type: str = ""
    name: str = ""
    uri: str = ""
    size: Any = None
    resource: _Resource | None = None


_result = msgspec.json.Decoder(CallResult)
_part = msgspec.json.Decoder(Part)
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_UNREADABLE = (msgspec.DecodeError, RecursionError)


def read_result(result: msgspec.Raw | bytes) -> CallResult | None:
    """Return a result; None for what is no result of a tool."""
    return _read(_result, bytes(result))


def read_part(raw: msgspec.Raw) -> Part | None:
    """Return one part of ``content``; None for what can't be read."""
    return _read(_part, bytes(raw))


def _read[T](decoder: msgspec.json.Decoder[T], document: bytes) -> T | None:
    """Return a document, repaired if that is needed; None for what can't be read."""
    with suppress(*_UNREADABLE):
        return decoder.decode(document)
    with suppress(*_UNREADABLE):
        return decoder.decode(_repair(document))
    return None


def _repair(document: bytes) -> bytes:
    """Return an object without members that are null."""
    members = _members.decode(document)
    present = {name: value for name, value in members.items() if bytes(value) != b"null"}
    return msgspec.json.encode(present)


def describe(result: CallResult) -> str:
    """Return the text of all parts; those that are no text are named, with their type and size."""
    return "\n".join(_describe_part(read_part(raw)) for raw in result.content)


def _describe_part(part: Part | None) -> str:
    if part is None:
        return "[a part that can't be read]"
    if part.type == "text":
        return part.text

    label = f"[{', '.join(_labels(part))}]"
    if part.resource is not None and part.resource.text is not None:
        return f"{label}\n{part.resource.text}"
    return label


def _labels(part: Part) -> Iterator[str]:
    """Yield the type of a part, its name or address, its media type, and its size."""
    resource = part.resource or _Resource()
    labels = (
        part.type or "part",
        part.name,
        part.uri or resource.uri,
        part.mime_type or resource.mime_type,
    )
    for label in labels:
        if label:
            yield label[:_MAX_LABEL]

    encoded = part.data or resource.blob
    if resource.text is not None:
        yield f"{len(resource.text.encode(errors='replace'))} bytes"
    elif encoded:
        # Four characters of base64 are three bytes, less one for each "=" at the end.
        yield f"{len(encoded) * 3 // 4 - encoded.count('=', -2)} bytes"
    elif isinstance(part.size, int):
        yield f"{part.size} bytes"
