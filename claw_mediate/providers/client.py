"""The client of all providers, and the results of a request to one."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import assert_never

import httpx2
import msgspec

from claw_mediate.core.model_policy import PoolKey, Provider
from claw_mediate.core.observer import RequestInfo
from claw_mediate.dialects.base import FailedResponseError, UnreadableResponseError
from claw_mediate.http.bounded_body import read_bounded
from claw_mediate.http.client import ConnectionPools, Response
from claw_mediate.http.headers import provider_auth, raw_headers, runner_headers
from claw_mediate.providers.key_answers import key_question
from claw_mediate.providers.live_reply import (
    BROKE_OFF,
    FLOW_SPENT,
    IDLE,
    MAX_REPLY_BYTES,
    NOT_READ,
    BrokenReplyError,
    LiveReply,
    ReplyTooLargeError,
    is_event_stream,
    read_reply,
)

MAX_RESPONSE_BYTES = MAX_REPLY_BYTES  # A longer response is a fault of the provider
CONNECT_SECONDS = 10.0
_IDLE_SECONDS = 4.0
"""Less than the 5 s after which common servers close: a request sent at that moment is lost."""
_OWN_QUESTIONS = ""  # The connection pool of our own questions: no agent has this id
_QUESTION_SECONDS = 20.0
_ERROR_BYTES = 64 << 10

MISCONFIGURED = "provider_misconfigured"
PROVIDER_TIMEOUT = "provider_timeout"
BAD_REPLY = "provider_bad_response"
UNREACHABLE = "provider_unreachable"
TOO_LARGE = "provider_response_too_large"
_BREAKS = {
    BROKE_OFF: "broke off its response",
    IDLE: "fell silent in its response",
    FLOW_SPENT: "did not end its response in time",
    NOT_READ: "waited in vain for a runner that reads no more",
}
"""The end of the message for each reason why a reply has no end."""


class ProviderResponse(msgspec.Struct, frozen=True):
    """A whole response of any status."""

    status: int
    content_type: str
    body: bytes
    retry_after: str = ""
    headers: tuple[tuple[str, str], ...] = ()  # Those that the runner may see
    is_about_key: bool = False  # True if another key may get another answer


class TransportFailure(msgspec.Struct, frozen=True):
    """No usable response.

    ``message`` names no address; ``status`` and ``retry_after`` are for the runner.
    """

    code: str
    message: str
    status: int = 502
    retry_after: str = ""


class CutReply(msgspec.Struct, frozen=True):
    """A live reply that failed when the runner had something of it already.

    No call of it runs, and it is not asked for again.
    """

    code: str
    message: str
    is_cut: bool
    """True if the reply has no end, so that the runner's stream gets none; else it gets an error.

    (docs/spec/live.md section 9)
    """
    error: bytes | None = None  # The body of the error that the provider told
    usage: bytes | None = None  # The usage that the provider told so far, as JSON
    status: int = 502  # The status that the error means


type WholeResult = ProviderResponse | TransportFailure
type ProviderResult = WholeResult | CutReply


def too_large(provider: Provider) -> TransportFailure:
    return TransportFailure(TOO_LARGE, f"the response of {provider.name!r} is too large")


def cut_if_shown(live: LiveReply | None, result: WholeResult) -> ProviderResult:
    """Return a result, or the ``CutReply`` that a failure is once the runner has something."""
    if live is None or not live.has_shown:
        return result

    match result:
        case TransportFailure(code, message):
            return CutReply(code, message, is_cut=code in _BREAKS, usage=live.usage)
        case ProviderResponse(HTTPStatus.OK):
            return result
        case ProviderResponse(status):
            message = f"the provider told an error with status {status} in its stream"
            code = f"provider_http_{status}"
            return CutReply(
                code,
                message,
                is_cut=False,
                error=result.body,
                usage=live.usage,
                status=status,
            )
        case _:
            assert_never(result)


class ProviderClient:
    """Client of all providers.

    Each agent has a connection pool of its own, so that no agent can read another's response.
    """

    def __init__(self) -> None:
        self._pools = ConnectionPools[str](idle=_IDLE_SECONDS, connect=CONNECT_SECONDS)

    async def send(self, agent_id: str, provider: Provider, request: RequestInfo) -> WholeResult:
        """Send a request, whose URL is a path (with query) below the provider's base URL.

        The caller bounds the time.
        """
        return await self._exchange(agent_id, provider, request, _read_whole)

    async def stream(
        self, agent_id: str, provider: Provider, request: RequestInfo, live: LiveReply
    ) -> WholeResult:
        """Send a request whose reply is shown while it comes, and return the whole of it.

        Its body says what ``stream: false`` would have said. Any other response than a stream with
        status 200 is returned as ``send`` does.
        """
        return await self._exchange(agent_id, provider, request, partial(_read_live, live))

    async def _exchange(
        self,
        agent_id: str,
        provider: Provider,
        request: RequestInfo,
        read: Callable[[Response], Awaitable[ProviderResponse]],
    ) -> WholeResult:
        """Send a request, and return its response as ``read`` reads it, or the failure."""
        name = provider.name
        pool = self._pools[agent_id]
        body = request.body or None
        headers = raw_headers([*request.headers])
        try:
            async with pool.stream(
                request.method, provider.base_url, headers, body, path=request.url
            ) as response:
                return await read(response)
        except (httpx2.InvalidURL, httpx2.LocalProtocolError, UnicodeError):
            message = f"the configuration of the provider {name!r} is not usable"
            return TransportFailure(MISCONFIGURED, message)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            return TransportFailure(UNREACHABLE, f"the provider {name!r} can't be reached")
        except httpx2.HTTPError:
            return TransportFailure(BROKE_OFF, f"the provider {name!r} {_BREAKS[BROKE_OFF]}")
        except ReplyTooLargeError:
            return too_large(provider)
        except BrokenReplyError as error:
            return TransportFailure(error.code, f"the provider {name!r} {_BREAKS[error.code]}")
        except UnreadableResponseError as error:
            return TransportFailure(BAD_REPLY, str(error))

    async def ask_about(self, provider: Provider, key: PoolKey) -> tuple[int, bytes] | None:
        """Ask the provider whether a key is sound, by a GET of our own.

        Return the status and the beginning of an error's body; None if no answer came.
        """
        path, headers = key_question(provider)
        headers = [*headers, *provider_auth(provider, key.secret)]
        pool = self._pools[_OWN_QUESTIONS]
        try:
            question = pool.stream("GET", provider.base_url, raw_headers(headers), None, path=path)
            async with asyncio.timeout(_QUESTION_SECONDS), question as response:
                # A few compressed bytes could unpack to gigabytes.
                is_compressed = bool(response.headers.get_list("content-encoding"))
                if response.status_code < HTTPStatus.BAD_REQUEST or is_compressed:
                    return response.status_code, b""

                body, _ = await read_bounded(response, _ERROR_BYTES, _ERROR_BYTES)
                return response.status_code, body
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, UnicodeError):
            return None

    async def close(self) -> None:
        await self._pools.close()


async def _read_whole(response: Response) -> ProviderResponse:
    """Return a response when all of it is there."""
    content, size = await read_bounded(response, MAX_RESPONSE_BYTES, MAX_RESPONSE_BYTES)
    if size > MAX_RESPONSE_BYTES:
        raise ReplyTooLargeError

    headers = response.headers
    return ProviderResponse(
        response.status_code,
        headers.get("content-type", "application/json"),
        content,
        headers.get("retry-after", ""),
        runner_headers(headers.items()),
    )


async def _read_live(live: LiveReply, response: Response) -> ProviderResponse:
    """Return a response when all of it is there; the reply in it is shown while it comes."""
    live.was_streamed = response.status_code == HTTPStatus.OK and is_event_stream(response)
    if not live.was_streamed:
        return await _read_whole(response)

    headers = runner_headers(response.headers.items())
    live.on_head(headers)
    try:
        body = await read_reply(response, live)
    except FailedResponseError as error:
        return ProviderResponse(error.status, "application/json", error.body, "", headers)
    return ProviderResponse(HTTPStatus.OK, "application/json", body, "", headers)
