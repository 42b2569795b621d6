"""An addon with the hooks of ours, which do nothing: what mitmproxy's own dispatch
costs (``mitmdump -s``).
"""

from __future__ import annotations

from mitmproxy.http import HTTPFlow


class Empty:
    """The hooks of a request's way, as ours has them.

    A stream is streamed, else it would be another kind of work.
    """

    async def requestheaders(self, flow: HTTPFlow) -> None:
        """Do nothing."""

    async def request(self, flow: HTTPFlow) -> None:
        """Do nothing."""

    def responseheaders(self, flow: HTTPFlow) -> None:
        assert flow.response is not None
        flow.response.stream = flow.response.headers.get("content-type") == "text/event-stream"

    async def response(self, flow: HTTPFlow) -> None:
        """Do nothing."""

    def error(self, flow: HTTPFlow) -> None:
        """Do nothing."""

    async def server_connect(self, data: object) -> None:
        """Do nothing."""

    def client_disconnected(self, client: object) -> None:
        """Do nothing."""


addons = [Empty()]
