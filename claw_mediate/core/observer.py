"""Who looks on at a turn, and what they are told of it (spec/inspect.md): the requests that its runner does not see, as they
are made, and how the turn ended.

Nothing that is told holds a secret. Where nobody looks on, nothing is made ready to be told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from claw_contract.redaction.redactor import Redactor
from claw_contract.redaction.stream import redact_stream
from claw_contract.secret import DOTS

type Kind = Literal["model", "tool"]
type Fields = Sequence[tuple[str, str]]

ABANDONED = "nobody waits for it any longer: its time is over, or the runner has left"


class Subject(NamedTuple):
    """What a hidden request is for. ``name``: the provider's, or the tool's canonical one."""

    kind: Kind
    round: int
    name: str
    duplicate: bool = False
    replayed: bool = False
    """Whether its answer is known of an earlier attempt: it is not made again."""


class RequestInfo(NamedTuple):
    """A request. ``url`` is empty where none was made: then ``body`` is what was asked for."""

    method: str
    url: str
    headers: Fields
    body: bytes


class ResponseInfo(NamedTuple):
    """A response."""

    status: int
    content_type: str
    body: bytes
    size: int | None = None
    """How long the body was, of which this may be the beginning."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """A request that the runner does not see."""

    turn_id: str
    agent_id: str
    about: Subject
    asked: RequestInfo


class ExchangeObserver(Protocol):
    """Told once what became of a hidden request."""

    def answered(self, said: ResponseInfo) -> None: ...
    def failed(self, why: str) -> None: ...


class RequestObserver(Protocol):
    """Who looks on at one request of a runner."""

    def turn(self, turn_id: str, agent_id: str) -> None:
        """The request begins a turn, or joins one."""

    def asked(self, hidden: Hidden) -> ExchangeObserver: ...

    def ended(self, entry: bytes) -> None:
        """The turn is over; ``entry`` is its line of history, whether or not one is kept."""


class TurnObserver:
    """A turn, as it is told to whoever looks on at it, if anybody does."""

    def __init__(self, watch: RequestObserver | None, turn_id: str, agent_id: str, redactor: Redactor) -> None:
        self._watch = watch
        self._turn_id = turn_id
        self._agent_id = agent_id
        self._redactor = redactor

    @contextmanager
    def asking(
        self, about: Subject, asked: RequestInfo, redactor: Redactor | None = None
    ) -> Iterator[ExchangeObserver]:
        """A request that is made now. Its headers are without credentials; ``redactor`` knows more secrets than the turn's."""
        if self._watch is None:
            yield IGNORED
            return
        heard = _Redacted(self._told(about, asked, redactor or self._redactor), redactor or self._redactor)
        try:
            yield heard
        except BaseException:
            heard.failed(ABANDONED)
            raise
        if not heard.told:
            heard.failed(ABANDONED)

    def known(self, about: Subject, said: ResponseInfo) -> None:
        """What an earlier attempt was answered, and is not asked again."""
        if self._watch is not None:
            asked = RequestInfo("POST", "", (), b"")
            _Redacted(self._told(about._replace(replayed=True), asked, self._redactor), self._redactor).answered(said)

    def unmade(self, about: Subject, arguments: bytes, why: str) -> None:
        """A call that is answered without being made."""
        if self._watch is not None:
            asked = RequestInfo("POST", "", (), arguments)
            _Redacted(self._told(about, asked, self._redactor), self._redactor).failed(why)

    def _told(self, about: Subject, asked: RequestInfo, redactor: Redactor) -> ExchangeObserver:
        assert self._watch is not None
        clear = RequestInfo(
            asked.method,
            redactor.text(asked.url),
            [(name, redactor.text(value)) for name, value in asked.headers],
            redactor.document(asked.body),
        )
        about = about._replace(name=redactor.text(about.name))
        return self._watch.asked(Hidden(self._turn_id, self._agent_id, about, clear))


def unnamed(credentials: Fields) -> Fields:
    """Headers whose values nobody sees."""
    return [(name, DOTS) for name, _ in credentials]


class _Redacted:
    """Tells the first thing that is said, without secrets."""

    def __init__(self, heard: ExchangeObserver, redactor: Redactor) -> None:
        self._heard = heard
        self._redactor = redactor
        self.told = False

    def answered(self, said: ResponseInfo) -> None:
        if not self.told:
            self.told = True
            kind = self._redactor.text(said.content_type)
            body = redact_stream(said.body, self._redactor) if "event-stream" in kind else said.body
            self._heard.answered(said._replace(content_type=kind, body=self._redactor.document(body)))

    def failed(self, why: str) -> None:
        if not self.told:
            self.told = True
            self._heard.failed(self._redactor.text(why))


class _Nobody:
    def answered(self, said: ResponseInfo) -> None: ...
    def failed(self, why: str) -> None: ...


IGNORED: ExchangeObserver = _Nobody()
"""Of whom nobody is told."""
NOBODY = TurnObserver(None, "", "", Redactor(()))
