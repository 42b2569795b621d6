"""An addon with the hooks of ours, which do nothing: what mitmproxy's own dispatch costs (``mitmdump -s``)."""

from __future__ import annotations


class Empty:
    """The hooks of a request's way, as ours has them."""

    async def requestheaders(self, flow: object) -> None:
        """Do nothing."""

    async def request(self, flow: object) -> None:
        """Do nothing."""

    def responseheaders(self, flow: object) -> None:
        """Do nothing."""

    async def response(self, flow: object) -> None:
        """Do nothing."""

    def error(self, flow: object) -> None:
        """Do nothing."""

    async def server_connect(self, data: object) -> None:
        """Do nothing."""

    def client_disconnected(self, client: object) -> None:
        """Do nothing."""


addons = [Empty()]
