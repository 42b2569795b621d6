"""A message without its secrets, and its originals, which are put back into what is sent.

``redaction`` decides when.
"""

from itertools import chain
from urllib.parse import unquote_to_bytes

from mitmproxy import http
from mitmproxy.net.http.status_codes import RESPONSES

from claw_contract.content_coding import DecodingError, coding_names, decode_known
from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import DOTS
from claw_mediate.http.headers import CREDENTIALS
from claw_mediate.mitm.flow_state import HeaderField, HeaderFields, Originals
from claw_mediate.mitm.view.hidden_flows import MAX_SHOWN

_NAMES = frozenset(name.encode() for name in (*CREDENTIALS, "set-cookie"))
_DOTS = DOTS.encode()
_UNREADABLE_BODY = b"(a body that can't be unpacked, and so is not shown)"
_MAX_TOKENS = 6
"""Headers in which a credential is searched for: anybody may send a megabyte of them."""
_MAX_TOKEN_LENGTH = 8 << 10
"""Bytes of such a header."""
_MAX_UNPACKED = 64 << 20
_UNPACK_SECONDS = 1.0


def shown_tokens(request: http.Request) -> list[str]:
    """Return what the request has as credentials, known or not.

    Each is whole, without its scheme, and as its secret half.
    """
    # More headers, or longer ones, are no credentials. They are not shown either, but not
    # searched for elsewhere.
    values = [value for name, value in request.headers.fields if name.lower() in _NAMES]
    tokens = []
    for value in values[:_MAX_TOKENS]:
        if len(value) > _MAX_TOKEN_LENGTH:
            continue

        text = value.decode(errors="surrogateescape")
        token = text.strip().rpartition(" ")[2]
        tokens += [text, token, token.partition(":")[2]]
    return [each for each in tokens if each]


def redact_head(message: http.Message, redactor: Redactor | None) -> Originals:
    """Redact the head of a message in place, and return its originals.

    Credentials always become dots; known secrets do with a redactor.
    """
    originals = Originals(head_searched=redactor is not None)
    fields = message.data.headers.fields
    shown = [(each[0], _DOTS) if each[0].lower() in _NAMES and each[1] else each for each in fields]

    if redactor is not None:
        # All texts of the head are searched at once: the target or the reason phrase, then each
        # header's name and value. Without a secret the very same list comes back.
        attribute = _line(message)
        own_line = getattr(message.data, attribute)
        texts = [own_line, *chain.from_iterable(shown)]
        clear = redactor.lines(texts)
        if clear is not texts:
            shown = list(zip(clear[1::2], clear[2::2], strict=True))

        if clear[0] != own_line:
            shown_line = clear[0]
            if isinstance(message, http.Response):
                shown_line = standard_phrase(message.status_code)
            setattr(message.data, attribute, shown_line)
            originals.line = (shown_line, own_line)

    # A header that came with dots of its own is noted, too: without an original it is not sent.
    for place, (each, original) in enumerate(zip(shown, fields, strict=True)):
        if each != original or original[1].find(_DOTS) >= 0:
            shown[place] = _number(each, place, original, originals)
    if originals.fields:
        message.data.headers.fields = tuple(shown)
    originals.head = (message.data.headers.fields, fields)
    return originals


def _number(
    shown: HeaderField, place: int, original: HeaderField, originals: Originals
) -> HeaderField:
    """Return the header as it is shown, and note its original.

    One that is shown like another gets the number of its place, so that each finds its own.
    """
    name, value = shown
    while (key := (name.lower(), value)) in originals.fields:
        value = b"%b %d" % (value, place)
    originals.fields[key] = original
    return name, value


def standard_phrase(status: int) -> bytes:
    return RESPONSES.get(status, "").encode()


def _line(message: http.Message) -> str:
    return "path" if isinstance(message, http.Request) else "reason"


def has_dots(target: bytes) -> bool:
    """Return whether a target contains the dots.

    They are there as they are, or as an editor of queries encodes them.
    """
    return _DOTS in unquote_to_bytes(target)


def redact_body(message: http.Message, originals: Originals, redactor: Redactor) -> None:
    """Redact a body in place, and cut a long one. Keep the original."""
    own = message.data.content
    if not own:
        return

    originals.body_searched = True
    codings = coding_names(message.headers.get_all("content-encoding"))
    try:
        plain = decode_known(own, codings, _MAX_UNPACKED, _UNPACK_SECONDS)
    except DecodingError:
        clear = _UNREADABLE_BODY
    else:
        # A secret that the cut goes through is found, too.
        clear = redactor.document(plain[: MAX_SHOWN + redactor.max_form_bytes])
        if len(plain) > MAX_SHOWN:
            clear = redactor.cut(clear, MAX_SHOWN)
        if clear == plain:
            return

    message.data.content = clear
    originals.body = (clear, own)


def original_fields(message: http.Message, originals: Originals) -> HeaderFields:
    """Return the headers to send.

    One that somebody put together from dots has no original, and is left out.
    """
    fields = message.data.headers.fields
    if originals.head is not None and fields is originals.head[0]:
        return originals.head[1]

    own: list[HeaderField] = []
    for name, value in fields:
        if _DOTS not in value and _DOTS not in name:
            own.append((name, value))
            continue

        original = originals.fields.get((name.lower(), value))
        if original is not None:
            own.append(original)

    return tuple(own)


def _copy[T](of: T) -> T:
    """Return a shallow copy, without the checks of the class's constructor."""
    twin = object.__new__(type(of))
    twin.__dict__.update(of.__dict__)
    return twin


def _original_line(message: http.Message, originals: Originals) -> bytes | None:
    """Return the original target or reason phrase; None if it is shown as it is, or was edited."""
    if originals.line is None:
        return None

    shown, original = originals.line
    return original if getattr(message.data, _line(message)) == shown else None


def restore[M: http.Message](message: M, originals: Originals) -> M:
    """Return the message to send: with its originals, and with what was edited meanwhile.

    The given one stays redacted.
    """
    fields = original_fields(message, originals)
    body = originals.own_body(message)
    line = _original_line(message, originals)
    if fields is message.data.headers.fields and originals.body is None and line is None:
        return message

    whole = _copy(message)
    whole.data = _copy(message.data)
    whole.data.headers = _copy(message.data.headers)
    whole.data.headers.fields = fields
    if line is not None:
        setattr(whole.data, _line(message), line)
    if originals.body is not None:
        whole.data.content = body
        # Also after an edit it must be the length of what is sent.
        if "content-length" in whole.headers:
            whole.headers["content-length"] = str(len(body or b""))
    return whole
