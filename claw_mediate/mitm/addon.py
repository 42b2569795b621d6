"""The addon: what mitmproxy tells us, put before the mediator, and its decision put back (spec/mediation.md section 1).

    requestheaders   is it governed, who asks; what need not be read is forwarded from here, streaming
    request          the body is there: mediate, or forward

Both deciding hooks fail closed. What comes behind a decision is in ``life``, which outlives this script.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from mitmproxy import ctx, exceptions, http

from claw_mediate.agents.authenticate import Admitted
from claw_mediate.core.http import Forward, Request, RunnerResponse, refuse
from claw_mediate.http.content_coding import DecodingError, codings, decode
from claw_mediate.mediator import Mediator
from claw_mediate.mitm import install, listeners, options
from claw_mediate.mitm.gate import guard, tls_ca
from claw_mediate.mitm.lifecycle import Life
from claw_mediate.mitm.passthrough import forward
from claw_mediate.mitm.view import hidden_flows
from claw_mediate.mitm.view import redaction as veil
from claw_mediate.settings import Settings

_log = logging.getLogger(__name__)

_AT_ONCE = 64 << 10
"""Packed bytes that are unpacked in the event loop; more have a thread."""
_UNPACK_SECONDS = 5.0


class Cllama:
    """One life of the script; the mediator, the door and the guard are the process's."""

    def __init__(self) -> None:
        self._mediator: Mediator | None = None

    def load(self, loader: Any) -> None:
        """Options, and the parts that outlive this script. A failure is one line, and mitmproxy does not start."""
        options.add(loader)
        try:
            listeners.survive_direct_connections()
            install.install()
        except (exceptions.OptionsError, RuntimeError) as error:
            _log.error("cllama: %s", error)

    def configure(self, updated: set[str]) -> None:
        """Settings → mediator. On start-up a failure is one line and the end; later mitmproxy takes the change back."""
        if not any(name.startswith("cllama_") or name == "server" for name in updated):
            return
        if not ctx.options.server and self._mediator is None:
            return  # flows of a file are looked at (-n): nobody can ask, and no pod need be there
        try:
            options.harden()
            settings = Settings.of(options.values())
            trust: tls_ca.Authorities = ctx.master.addons.get(tls_ca.Authorities.name)
            trust.check(settings)
            self._mediator = self._life().mediator(settings)
        except (ValueError, exceptions.OptionsError) as error:
            if self._mediator is not None:
                raise exceptions.OptionsError(f"cllama: {error}") from error
            _log.error("cllama: %s", error)
            return
        install.tell(settings, self._hosts, self._mediator.known)

    def done(self) -> None:
        """The script is gone, whatever comes next."""
        if self._mediator is not None:
            install.gone()

    def running(self) -> Any:
        """Open the entrances. No coroutine function: mitmproxy calls it from sync code on hot reload."""
        if not os.isatty(0):
            # In a container: "read your files again", which is done with each request. At a terminal: the end, as ever.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        return asyncio.ensure_future(listeners.reopen())

    @guard.fail_closed
    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Who asks, and what needs no body to be decided."""
        hosts = self._hosts()
        if not self._guard().governs(flow) or self._mediator is None or guard.is_recorded(flow):
            return  # what is not governed is egress's, and without a mediator the guard refuses
        if guard.is_answered(flow):
            return
        self._life().begins(flow)
        own = veil.real(flow)
        decision: RunnerResponse | Forward | Admitted
        if (problem := guard.malformed(own)) is not None:
            decision = refuse(own.path, 400, "malformed_request", problem)
        else:
            decision = await self._by_the_head(flow, _request(flow, own, b"", hosts))
        if isinstance(decision, RunnerResponse):
            await self._life().answer(flow, decision)
            if flow.request.headers.pop("expect", None) is not None and flow.response is not None:
                flow.response.headers["connection"] = "close"  # what the runner asked leave for is not to be sent
        elif isinstance(decision, Forward):
            forward.send(flow, self._mediator, decision)
            flow.request.stream = True
        else:
            self._life().admitted(flow, decision)

    async def _by_the_head(self, flow: http.HTTPFlow, request: Request) -> RunnerResponse | Forward | Admitted:
        """What can be decided without the body."""
        assert self._mediator is not None
        if any("websocket" in value.lower() for value in request.header("upgrade")):
            return refuse(request.path, 426, "upgrade_required", "WebSocket is not served; use POST")
        if (own := await self._mediator.own(request)) is not None:
            return own
        admitted = self._mediator.admit(request)
        if isinstance(admitted, RunnerResponse):
            return admitted
        veil.knows(flow, partial(self._mediator.secrets, admitted))
        if not self._mediator.must_read(admitted, request):
            return await self._mediator.other_paths.decide_unread(admitted, request)
        if _declared(flow) > options.most_bytes():
            return await self._mediator.exchange_unread(admitted, request, guard.TOO_LARGE)
        return admitted

    @guard.fail_closed
    async def request(self, flow: http.HTTPFlow) -> None:
        """The body is there."""
        admitted = None if guard.is_recorded(flow) else self._life().whose(flow)
        if admitted is None or flow.response is not None or self._mediator is None:
            return
        flow.metadata["claw.agent"] = admitted.agent.id
        request = _request(flow, veil.real(flow), b"", self._guard().hosts)
        try:
            exchange = self._mediator.exchange(admitted, replace(request, body=await _body(flow)))
        except DecodingError as error:
            problem = error.status, "unreadable_content_encoding", str(error)
            exchange = self._mediator.exchange_unread(admitted, request, problem)
        decision = await self._life().decided(flow, exchange)
        if isinstance(decision, RunnerResponse):
            await self._life().answer(flow, decision)
        else:
            forward.send(flow, self._mediator, decision)

    def _life(self) -> Life:
        found: Life = ctx.master.addons.get(Life.name)
        return found

    def _guard(self) -> guard.Guard:
        found: guard.Guard = ctx.master.addons.get(guard.Guard.name)
        return found

    def _hosts(self) -> Mapping[str, str]:
        """The governed hosts, told to the guard too, which keeps them when this script is gone."""
        if self._mediator is not None:
            self._guard().hosts = guard.governing(self._mediator.registry.hosts())
        return self._guard().hosts


def _declared(flow: http.HTTPFlow) -> int:
    """The length that the head tells, which mitmproxy has checked; 0: it tells none."""
    return int(flow.request.headers.get("content-length", "0"))


async def _body(flow: http.HTTPFlow) -> bytes:
    """The body, unpacked. Raises ``DecodingError``."""
    body = veil.body(flow)
    applied = codings(flow.request.headers.get_all("content-encoding"))
    if not applied:
        return body
    most = options.most_bytes()
    if len(body) < _AT_ONCE:
        return decode(body, applied, most, _UNPACK_SECONDS)
    return await asyncio.to_thread(decode, body, applied, most, _UNPACK_SECONDS)


def _request(flow: http.HTTPFlow, own: http.Request, body: bytes, hosts: Mapping[str, str]) -> Request:
    host = guard.destination(flow, hosts)
    assert host is guard.BASE_URL or host in hosts.values()
    headers = [(name, value) for name, value in own.headers.items(multi=True)]
    return Request(own.method, own.path, headers, body, host, hidden_flows.watching(flow))
