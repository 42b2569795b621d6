"""A message without its secrets, and what was there in their place: for the wire, which has it back (``veil``)."""

from __future__ import annotations

from dataclasses import dataclass, field

from mitmproxy import http

from claw_contract.secret import DOTS, Redactor
from claw_mediate.io.body import UnpackableError, codings, unpacked
from claw_mediate.io.headers import CREDENTIALS
from claw_mediate.mitm.shadow import MOST_SHOWN

type Field = tuple[bytes, bytes]

_NAMES = frozenset(name.encode() for name in (*CREDENTIALS, "set-cookie"))
_SHOWN = DOTS.encode()
_NOT_READ = b"(a body that can't be unpacked, and so is not shown)"
_MOST_TOKENS, _LONGEST_TOKEN = 6, 8 << 10
"""Headers in which a credential is looked for, and their bytes: anybody may send a megabyte of them."""
_MOST_UNPACKED, _SECONDS = 64 << 20, 1.0


@dataclass(slots=True)
class Aside:
    """What of one message is not shown."""

    fields: dict[Field, list[Field]] = field(default_factory=dict)
    """By what is shown of a header: what it is, and all others that are shown alike, in their order."""
    path: tuple[bytes, bytes] | None = None
    """What is shown, and what it is."""
    body: bytes | None = None


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


def conceal(message: http.Message, aside: Aside, redactor: Redactor | None) -> None:
    """The head of a message, without what must not be seen."""
    fields, clear = message.headers.fields, [_shown(each) for each in message.headers.fields]
    target = message.data.path if isinstance(message, http.Request) else b""
    if redactor is not None:
        told = [target, *(part for each in clear for part in each)]
        found = redactor.lines(told)
        if found is not told:
            clear = list(zip(found[1::2], found[2::2], strict=True))
            if isinstance(message, http.Request):
                message.data.path = found[0]
                aside.path = (found[0], target)
    for each, own in zip(clear, fields, strict=True):
        if each != own:
            aside.fields.setdefault((each[0].lower(), each[1]), []).append(own)
    if aside.fields:
        message.headers.fields = tuple(clear)


def _shown(own: Field) -> Field:
    return (own[0], _SHOWN) if own[0].lower() in _NAMES and own[1] else own


def conceal_body(message: http.Message, redactor: Redactor) -> bytes | None:
    """Keep a body to be looked at; what it was, where that is another one."""
    own = message.data.content
    if not own:
        return None
    applied = codings(message.headers.get_all("content-encoding"))
    try:
        plain = unpacked(own, applied, _MOST_UNPACKED, _SECONDS) if applied else own
    except UnpackableError:
        message.data.content = _NOT_READ
        return own
    clear = redactor.document(plain[: MOST_SHOWN + redactor.longest])
    if len(plain) > MOST_SHOWN:
        clear = redactor.cut(clear, MOST_SHOWN)
    if clear == plain:
        return None
    message.data.content = clear
    return own


def fields_of(message: http.Message, aside: Aside) -> list[Field]:
    """The headers as they are, in the order of those that are shown."""
    left = {shown: iter(own) for shown, own in aside.fields.items()}
    return [next(left.get((name.lower(), value), iter(())), (name, value)) for name, value in message.headers.fields]


def _twin[T](of: T) -> T:
    """A copy, without the checks that making one goes through."""
    twin = object.__new__(type(of))
    twin.__dict__.update(of.__dict__)
    return twin


def unveiled[M: http.Message](message: M, aside: Aside) -> M:
    if not aside.fields and aside.path is None and aside.body is None:
        return message
    whole = _twin(message)
    whole.data = _twin(message.data)
    whole.data.headers = _twin(message.data.headers)
    whole.data.headers.fields = tuple(fields_of(message, aside))
    if aside.path is not None and isinstance(whole, http.Request) and whole.data.path == aside.path[0]:
        whole.data.path = aside.path[1]
    if aside.body is not None:
        whole.data.content = aside.body
    return whole
