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
    """What the request shows as credentials, whoever knows them: whole, without their scheme, and the secret half."""
    shown = []
    for name, value in request.headers.items(multi=True):
        if name.lower().encode(errors="surrogateescape") in _NAMES:
            token = value.strip().rpartition(" ")[2]
            shown += [value, token, token.partition(":")[2]]
    return [each for each in shown if each]


def conceal(message: http.Message, aside: Aside, redactor: Redactor | None) -> None:
    """The head of a message, without what must not be seen."""
    fields = message.headers.fields
    target = message.data.path if isinstance(message, http.Request) else b""
    if redactor is not None:
        told = b"\n".join([target, *(part for each in fields for part in each)])
        redactor = redactor if redactor.data(told) != told else None
    shown = [_shown(each, redactor) for each in fields]
    for each, own in zip(shown, fields, strict=True):
        if each != own:
            aside.fields.setdefault((each[0].lower(), each[1]), []).append(own)
    if aside.fields:
        message.headers.fields = tuple(shown)
    if redactor is not None and isinstance(message, http.Request):
        message.data.path = redactor.data(target)
        aside.path = (message.data.path, target)


def _shown(own: Field, redactor: Redactor | None) -> Field:
    name, value = own
    if name.lower() in _NAMES and value:
        return name, _SHOWN
    return own if redactor is None else (redactor.data(name), redactor.data(value))


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
