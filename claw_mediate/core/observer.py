"""The port through which an observer sees a turn (docs/spec/inspect.md).

It sees the requests that the runner does not see, as they are made, and how the turn ended. Nothing
that it receives holds a secret. Without an observer nothing is prepared.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from claw_contract.redaction.redactor import Redactor
from claw_contract.redaction.stream import redact_stream
from claw_contract.secret import DOTS

type Kind = Literal["model", "tool"]
type Headers = Sequence[tuple[str, str]]

ABANDONED = "nobody waits for it any longer: its time is over, or the runner has left"


class Subject(NamedTuple):
    """The purpose of a hidden request. ``name``: the provider's, or the tool's canonical one."""

    kind: Kind
    round: int
    name: str
    duplicate: bool = False
    # True if an earlier attempt has its response, so that it is not made again
    replayed: bool = False


class RequestInfo(NamedTuple):
    """A hidden request."""

    method: str
    url: str  # "" if no request was made: then ``body`` is what the model asked for
    headers: Headers
    body: bytes
    server: str = ""  # The name that an MCP server gives itself


class ResponseInfo(NamedTuple):
    """The response to a hidden request."""

    status: int
    content_type: str
    body: bytes
    size: int | None = None  # The length of the whole body, if ``body`` is only its beginning


@dataclass(frozen=True, slots=True)
class HiddenRequest:
    """A request that the runner does not see."""

    turn_id: str
    agent_id: str
    subject: Subject
    request: RequestInfo


class ExchangeObserver(Protocol):
    """An observer of one hidden request. One of the methods is called, once."""

    def on_response(self, response: ResponseInfo) -> None: ...
    def on_failure(self, reason: str) -> None: ...


class RequestObserver(Protocol):
    """An observer of one request of a runner."""

    def on_turn(self, turn_id: str, agent_id: str) -> None:
        """Note that the request begins a turn, or joins one."""

    def on_request(self, hidden: HiddenRequest) -> ExchangeObserver:
        """Return the observer of a hidden request that is about to be made."""

    def on_end(self, entry: bytes) -> None:
        """Note that the turn is over.

        ``entry`` is its line of history, whether or not history is written.
        """


class TurnObserver:
    """A turn's reports to the observer of its request, if there is one."""

    def __init__(
        self, observer: RequestObserver | None, turn_id: str, agent_id: str, redactor: Redactor
    ) -> None:
        self._observer = observer
        self._turn_id = turn_id
        self._agent_id = agent_id
        self.redactor = redactor
        """Knows all secrets of the turn."""

    @contextmanager
    def observe(
        self,
        subject: Subject,
        describe: Callable[[], RequestInfo],
        redactor: Redactor | None = None,
    ) -> Iterator[ExchangeObserver]:
        """Report a request that is made in this context, without credentials.

        ``describe`` returns the request; it is called only if there is an observer. ``redactor``
        knows the request's own secrets besides the turn's; None: the turn's redactor.
        """
        if self._observer is None:
            yield NO_EXCHANGE_OBSERVER
            return

        exchange = self._begin(subject, describe(), redactor or self.redactor)
        try:
            yield exchange
        except BaseException:
            exchange.on_failure(ABANDONED)
            raise

        if not exchange.has_reported:
            exchange.on_failure(ABANDONED)

    def report_replayed(self, subject: Subject, response: ResponseInfo) -> None:
        """Report a response that an earlier attempt got, so that the request is not made again."""
        if self._observer is None:
            return

        request = RequestInfo("POST", "", (), b"")
        exchange = self._begin(subject._replace(replayed=True), request, self.redactor)
        exchange.on_response(response)

    def report_not_made(self, subject: Subject, arguments: bytes, reason: str) -> None:
        """Report a call that is answered without being made."""
        if self._observer is None:
            return

        request = RequestInfo("POST", "", (), arguments)
        exchange = self._begin(subject, request, self.redactor)
        exchange.on_failure(reason)

    def _begin(
        self, subject: Subject, request: RequestInfo, redactor: Redactor
    ) -> "_RedactingObserver":
        assert self._observer is not None

        clear = RequestInfo(
            request.method,
            redactor.text(request.url),
            [(name, redactor.text(value)) for name, value in request.headers],
            redactor.document(request.body),
            redactor.text(request.server),
        )
        subject = subject._replace(name=redactor.text(subject.name))
        hidden = HiddenRequest(self._turn_id, self._agent_id, subject, clear)
        return _RedactingObserver(self._observer.on_request(hidden), redactor)


def mask_values(credentials: Headers) -> Headers:
    """Return the headers with dots for their values."""
    return [(name, DOTS) for name, _ in credentials]


class _RedactingObserver:
    """Passes on the first report, without secrets."""

    def __init__(self, observer: ExchangeObserver, redactor: Redactor) -> None:
        self._observer = observer
        self._redactor = redactor
        self.has_reported = False

    def on_response(self, response: ResponseInfo) -> None:
        if self.has_reported:
            return
        self.has_reported = True

        content_type = self._redactor.text(response.content_type)
        body = response.body
        if "event-stream" in content_type:
            # A secret may be spread over several events.
            body = redact_stream(body, self._redactor)
        body = self._redactor.document(body)
        self._observer.on_response(response._replace(content_type=content_type, body=body))

    def on_failure(self, reason: str) -> None:
        if self.has_reported:
            return
        self.has_reported = True

        self._observer.on_failure(self._redactor.text(reason))


class _NullExchangeObserver:
    def on_response(self, response: ResponseInfo) -> None: ...
    def on_failure(self, reason: str) -> None: ...


NO_EXCHANGE_OBSERVER: ExchangeObserver = _NullExchangeObserver()
NO_OBSERVER = TurnObserver(None, "", "", Redactor(()))
