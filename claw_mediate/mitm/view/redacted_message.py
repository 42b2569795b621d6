"""A message without its secrets, and what was there in their place: for the wire, which has it back (``veil``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from urllib.parse import unquote_to_bytes

from mitmproxy import http
from mitmproxy.net.http.status_codes import RESPONSES

from claw_contract.redaction.redactor import Redactor
from claw_contract.secret import DOTS
from claw_mediate.http.content_coding import DecodingError, coding_names, decode_known
from claw_mediate.http.headers import CREDENTIALS
from claw_mediate.mitm.view.hidden_flows import MOST_SHOWN

type Field = tuple[bytes, bytes]
type Fields = tuple[Field, ...]

_NAMES = frozenset(name.encode() for name in (*CREDENTIALS, "set-cookie"))
_SHOWN = DOTS.encode()
_NOT_READ = b"(a body that can't be unpacked, and so is not shown)"
_MOST_TOKENS, _LONGEST_TOKEN = 6, 8 << 10
"""Headers in which a credential is looked for, and their bytes: anybody may send a megabyte of them."""
_MOST_UNPACKED, _SECONDS = 64 << 20, 1.0


@dataclass(slots=True)
class Aside:
    """What of one message is not shown: each part of it, by what is shown in its place."""

    fields: dict[Field, Field] = field(default_factory=dict)
    """No two headers are shown alike: each leads back to its own, wherever it stands by then."""
    head: tuple[Fields, Fields] | None = None
    """All headers, as long as nobody has edited one."""
    line: tuple[bytes, bytes] | None = None
    """A request's target, a response's reason phrase."""
    body: tuple[bytes, bytes] | None = None
    """The very object that is shown: whatever else is there by then is an edit."""
    head_searched: bool = False
    body_searched: bool = False
    """Whether known secrets were looked for."""

    def own_body(self, message: http.Message) -> bytes | None:
        content = message.data.content
        return self.body[1] if self.body is not None and content is self.body[0] else content


def shown_tokens(request: http.Request) -> list[str]:
    """What the request shows as credentials, whoever knows them: whole, without their scheme, and the secret half. More of
    them, and longer ones, are no credentials: they are not shown, and not looked for elsewhere.
    """
    values = [value for name, value in request.headers.fields if name.lower() in _NAMES][:_MOST_TOKENS]
    shown = []
    for value in (each.decode(errors="surrogateescape") for each in values if len(each) <= _LONGEST_TOKEN):
        token = value.strip().rpartition(" ")[2]
        shown += [value, token, token.partition(":")[2]]
    return [each for each in shown if each]


def conceal(message: http.Message, redactor: Redactor | None) -> Aside:
    """The head of a message, without what must not be seen."""
    aside, fields, line = Aside(head_searched=redactor is not None), message.data.headers.fields, _line(message)
    shown = [(each[0], _SHOWN) if each[0].lower() in _NAMES and each[1] else each for each in fields]
    if redactor is not None:
        own = getattr(message.data, line)
        told = [own, *chain.from_iterable(shown)]
        if (found := redactor.lines(told)) is not told:
            shown = list(zip(found[1::2], found[2::2], strict=True))
        if found[0] != own:
            clear = standard_phrase(message.status_code) if isinstance(message, http.Response) else found[0]
            setattr(message.data, line, clear)
            aside.line = (clear, own)
    for place, (each, came) in enumerate(zip(shown, fields, strict=True)):
        if each != came or _SHOWN in came[1]:
            shown[place] = _apart(each, place, came, aside)
    if aside.fields:
        message.data.headers.fields = tuple(shown)
    aside.head = (message.data.headers.fields, fields)
    return aside


def _apart(shown: Field, place: int, own: Field, aside: Aside) -> Field:
    """Who would be shown like another has its place behind it."""
    name, value = shown
    while (key := (name.lower(), value)) in aside.fields:
        value = b"%b %d" % (value, place)
    aside.fields[key] = own
    return name, value


def standard_phrase(status: int) -> bytes:
    """What a status is called by everybody."""
    return RESPONSES.get(status, "").encode()


def _line(message: http.Message) -> str:
    """Which part of a first line is in the words of whoever sent it."""
    return "path" if isinstance(message, http.Request) else "reason"


def _is_dotted(each: Field) -> bool:
    return _SHOWN in each[1] or _SHOWN in each[0]


def has_dots(target: bytes) -> bool:
    """Whether dots stand in a target, as they are or as whoever edits a query spells them."""
    return _SHOWN in unquote_to_bytes(target)


def conceal_body(message: http.Message, aside: Aside, redactor: Redactor) -> None:
    """Keep a body to be looked at."""
    own = message.data.content
    if not own:
        return
    aside.body_searched = True
    try:
        plain = decode_known(own, coding_names(message.headers.get_all("content-encoding")), _MOST_UNPACKED, _SECONDS)
    except DecodingError:
        clear = _NOT_READ
    else:
        clear = redactor.document(plain[: MOST_SHOWN + redactor.max_form_bytes])
        if len(plain) > MOST_SHOWN:
            clear = redactor.cut(clear, MOST_SHOWN)
        if clear == plain:
            return
    message.data.content = clear
    aside.body = (clear, own)


def fields_of(message: http.Message, aside: Aside) -> Fields:
    """The headers as they are. One that was put together from dots is nobody's, and is left out."""
    fields = message.data.headers.fields
    if aside.head is not None and fields is aside.head[0]:
        return aside.head[1]
    own = (aside.fields.get((each[0].lower(), each[1])) if _is_dotted(each) else each for each in fields)
    return tuple(each for each in own if each is not None)


def _twin[T](of: T) -> T:
    """A copy, without the checks that making one goes through."""
    twin = object.__new__(type(of))
    twin.__dict__.update(of.__dict__)
    return twin


def unveiled[M: http.Message](message: M, aside: Aside) -> M:
    """The message as it is, with whatever was edited in it meanwhile."""
    fields, body = fields_of(message, aside), aside.own_body(message)
    line = aside.line is not None and getattr(message.data, _line(message)) == aside.line[0]
    if fields is message.data.headers.fields and aside.body is None and not line:
        return message
    whole = _twin(message)
    whole.data = _twin(message.data)
    whole.data.headers = _twin(message.data.headers)
    whole.data.headers.fields = fields
    if aside.line is not None and line:
        setattr(whole.data, _line(message), aside.line[1])
    if aside.body is not None:
        whole.data.content = body
        if "content-length" in whole.headers:  # whatever was edited: it tells what is sent
            whole.headers["content-length"] = str(len(body or b""))
    return whole
