"""addons/cllama.py for a mitmdump whose kernel takes few bytes for each runner, so that short
answers wait in the proxy.
"""

import socket as _socket

from mitmproxy import ctx as _ctx

from claw_mediate.mitm.addon import Cllama as _Cllama

_SEND_BUFFER = 4096


class _NarrowSockets:
    def client_connected(self, client):  # type: ignore[no-untyped-def]
        handler = _ctx.master.addons.get("proxyserver").connections[client.id]
        kernel = handler.transports[client].writer.get_extra_info("socket")
        kernel.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, _SEND_BUFFER)


addons = [_Cllama(), _NarrowSockets()]
