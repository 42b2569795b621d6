"""Channels that are a URL to POST to."""

import asyncio
from typing import Final

import msgspec

from claw_contract.base import JsonObject
from claw_tools.errors import ToolError
from claw_tools.message.channel import Channel, refused, unknown_outcome
from claw_tools.settings import WebhookChannel
from claw_tools.web.dialer import Dialer, UnreachableError
from claw_tools.web.exchange import BrokenExchangeError, OutboundRequest, exchange
from claw_tools.web.urls import parse_url

_SECONDS: Final = 20.0
_SUCCESS = range(200, 300)
_SERVER_ERROR = range(500, 600)


class Webhook(Channel):
    """POSTs the message as JSON; a redirect is not followed."""

    def __init__(self, name: str, settings: WebhookChannel) -> None:
        """Raise ``ValueError`` for what is no URL."""
        try:
            self._url = parse_url(settings.url)
        except ToolError:
            raise ValueError(
                f"message.channels.{name}.webhook is no http:// or https:// URL."
            ) from None
        token = settings.token
        self._headers = {"content-type": "application/json"}
        self._headers |= {"authorization": f"Bearer {token.reveal()}"} if token is not None else {}
        self._dialer = Dialer(
            frozenset({self._url.host})
        )  # The operator named it: it may be private

    async def send(self, message: JsonObject) -> None:
        """POST the message once. Raise ``ToolError``."""
        request = OutboundRequest(self._url, self._headers, "POST", msgspec.json.encode(message))
        try:
            async with asyncio.timeout(_SECONDS), exchange(self._dialer, request) as response:
                status = response.status
        except UnreachableError as error:
            raise refused(f"can't be reached ({error}), and nothing was sent") from None
        except (BrokenExchangeError, TimeoutError):
            raise unknown_outcome("did not answer") from None
        if status in _SERVER_ERROR:
            raise unknown_outcome(f"answered with status {status}")
        if status not in _SUCCESS:
            raise refused(f"refused the message with status {status}")
