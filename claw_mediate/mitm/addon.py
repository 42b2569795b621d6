"""The addon of the script: it puts mitmproxy's requests to the mediator, and applies the decisions.

    requestheaders   is the host governed, and who asks? A request that need not be read is
                     forwarded from here, streaming
    request          the body is there: mediate, or forward

Both deciding hooks fail closed. What follows a decision is in ``lifecycle``, which outlives this
script.
"""

import asyncio
import logging
import os
import signal
from dataclasses import replace
from functools import partial
from typing import Any

from mitmproxy import ctx, exceptions, http

from claw_contract.content_coding import DecodingError, coding_names, decode
from claw_mediate.agents.authenticate import Identity
from claw_mediate.core.http import Forward, Request, RunnerResponse, refuse
from claw_mediate.mediator import Mediator
from claw_mediate.mitm import listeners, options
from claw_mediate.mitm.addon_state import BASE_URL, AddonState, BuiltinAddons, destination
from claw_mediate.mitm.connections import ConnectionsAddon, take_room
from claw_mediate.mitm.fast_dispatch import DispatchAddon
from claw_mediate.mitm.flow_state import is_recorded
from claw_mediate.mitm.gate import guard
from claw_mediate.mitm.gate.egress import EgressAddon
from claw_mediate.mitm.gate.guard import GuardAddon
from claw_mediate.mitm.gate.tls_ca import TlsCaAddon
from claw_mediate.mitm.lifecycle import Lifecycle
from claw_mediate.mitm.metrics import MetricsAddon
from claw_mediate.mitm.passthrough import forward
from claw_mediate.mitm.response_stream import door
from claw_mediate.mitm.response_stream.door import DoorAddon
from claw_mediate.mitm.view import hidden_flows
from claw_mediate.mitm.view.commands import CommandsAddon
from claw_mediate.mitm.view.redaction import (
    RedactionAddon,
    add_secrets,
    original_body,
    original_request,
)
from claw_mediate.mitm.view.retention import RetentionAddon
from claw_mediate.settings import Settings
from claw_mediate.workers import worker as workers


def install_addons(builtin: BuiltinAddons) -> Lifecycle:
    """Install what is not there yet, and return the lifecycle.

    Raise ``RuntimeError`` if mitmproxy is built differently.
    """
    addons = ctx.master.addons
    installed: Lifecycle | None = addons.get(Lifecycle.name)
    if installed is not None:
        return installed

    addon_state = AddonState(options.event_log(builtin), builtin)
    worker = workers.current()
    if worker is not None:
        addon_state.events.origin = {"worker": worker.number}
    RedactionAddon(addon_state).install()

    metrics = MetricsAddon(addon_state)
    tls_ca = TlsCaAddon(addon_state)
    retention = RetentionAddon(addon_state)
    observers = (builtin.view, retention, builtin.dumper, builtin.save, builtin.savehar)
    addon_state.observers = tuple(each for each in observers if each is not None)

    # The order is the order in which they hear of an event. Egress comes before the guard,
    # which lets ungoverned flows stream.
    addons.add(
        ConnectionsAddon(addon_state),
        DoorAddon(addon_state),
        EgressAddon(addon_state),
        GuardAddon(addon_state),
        tls_ca,
    )
    addons.add(DispatchAddon(addon_state), retention, metrics, CommandsAddon(addon_state))

    # The lifecycle goes to the very front: its drain comes before the ends of the others.
    lifecycle = Lifecycle(addon_state, metrics, tls_ca)
    addons.add(lifecycle)
    addons.chain.insert(0, addons.chain.pop())
    return lifecycle


_log = logging.getLogger(__name__)

_MAX_PACKED_IN_LOOP = 4 << 10
"""Packed bytes that are unpacked in the event loop.

More are unpacked in a thread: they may become a thousand times as many.
"""

_UNPACK_SECONDS = 5.0


class Cllama:
    """One load of the script; the mediator, the door and the guard belong to the process."""

    def __init__(self) -> None:
        self._builtin = BuiltinAddons()
        self._lifecycle: Lifecycle | None = None
        self._mediator: Mediator | None = None
        """None until this script was configured; until then the guard refuses."""

    def load(self, loader: Any) -> None:
        """Add options, and the parts that outlive this script.

        A failure is one line, and mitmproxy does not start.
        """
        options.add(loader)
        self._builtin = BuiltinAddons.find()
        try:
            options.survive_direct_connections(self._builtin)
            self._lifecycle = install_addons(self._builtin)
        except (exceptions.OptionsError, RuntimeError) as error:
            _log.error("cllama: %s", error)

    def configure(self, updated: set[str]) -> None:
        """Apply the settings.

        On start-up a failure is one line and the end; later mitmproxy takes the change back.
        """
        is_concerned = any(name.startswith("cllama_") or name == "server" for name in updated)
        if not is_concerned:
            return
        if not ctx.options.server and self._mediator is None:
            return  # flows of a file are looked at (-n): nobody can ask, and there may be no pod
        if self._lifecycle is None:
            return  # ``load`` has logged why

        try:
            options.harden(self._builtin)
            self._mediator = self._lifecycle.apply(Settings.of(options.values()))
        except (ValueError, exceptions.OptionsError) as error:
            if self._mediator is not None:
                raise exceptions.OptionsError(f"cllama: {error}") from error
            _log.error("cllama: %s", error)

    def done(self) -> None:
        """Note that this script is gone, whatever comes next."""
        if self._mediator is not None:
            self._installed().addon_state.has_script = False

    def running(self) -> Any:
        """Open the listeners.

        No coroutine function, because mitmproxy calls it from sync code on hot reload.
        """
        if not os.isatty(0):
            # In a container SIGHUP means "read your files again", which every request does. At a
            # terminal it ends the proxy.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        return asyncio.ensure_future(listeners.open_all(self._builtin))

    @guard.fail_closed
    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Identify the agent, and decide what needs no body."""
        lifecycle = self._installed()
        addon_state = lifecycle.addon_state
        addon_state.refresh_hosts()
        if not addon_state.governs(flow) or self._mediator is None or is_recorded(flow):
            return  # an ungoverned flow is egress's, and without a mediator the guard refuses
        if guard.is_answered(flow):
            return

        lifecycle.begin(flow)
        own = original_request(flow)
        problem = guard.head_problem(own)
        decision: RunnerResponse | Forward | Identity
        if problem is not None:
            decision = refuse(own.path, 400, "malformed_request", problem)
        else:
            decision = await self._decide_by_head(flow, _request(flow, own, addon_state))

        if isinstance(decision, RunnerResponse):
            await lifecycle.answer(flow, decision)
            announced = flow.request.headers.pop("expect", None)
            if announced is not None and flow.response is not None:
                # The body that the runner announced (Expect: 100-continue) is not to be sent.
                flow.response.headers["connection"] = "close"
        elif isinstance(decision, Forward):
            forward.send(flow, self._mediator, decision)
            flow.request.stream = True
        else:
            lifecycle.await_body(flow, decision)

    async def _decide_by_head(
        self, flow: http.HTTPFlow, request: Request
    ) -> RunnerResponse | Forward | Identity:
        """Decide what needs no body; return the agent if the body is needed."""
        assert self._mediator is not None
        if any("websocket" in value.lower() for value in request.header("upgrade")):
            return refuse(
                request.path, 426, "upgrade_required", "WebSocket is not served; use POST"
            )

        own = await self._mediator.readiness.answer(request)
        if own is not None:
            return own

        admitted = self._mediator.admit(request)
        if isinstance(admitted, RunnerResponse):
            return admitted
        if not take_room(self._installed().addon_state, flow, admitted.agent.id):
            return self._installed().refuse_connection(flow, admitted)
        add_secrets(flow, partial(self._mediator.redactors.secrets, admitted))

        if not self._mediator.must_read(admitted, request):
            return await self._mediator.other_paths.decide_unread(admitted, request)

        # The body is needed, and so it must fit into memory.
        declared = guard.declared_length(flow.request)
        if declared <= options.max_body_bytes():
            return self._installed().hold_body(flow, admitted, declared) or admitted
        if not self._mediator.is_ours(request):
            return await self._mediator.other_paths.decide_unread(
                admitted, request, guard.TOO_LARGE[2]
            )
        return refuse(request.path, *guard.TOO_LARGE)

    @guard.fail_closed
    async def request(self, flow: http.HTTPFlow) -> None:
        """Decide about a request whose body is there."""
        lifecycle = self._installed()
        admitted = lifecycle.take_admitted(flow)
        if admitted is None or flow.response is not None or self._mediator is None:
            return

        flow.metadata[hidden_flows.AGENT] = admitted.agent.id
        request = _request(flow, original_request(flow), lifecycle.addon_state)
        again = self._mediator.admit_again(admitted, request)
        if isinstance(again, RunnerResponse):
            await lifecycle.answer(flow, again)
            return

        admitted = again
        try:
            packed = original_body(flow)
            body = await _body(flow)
            if body is not packed:  # both are held now
                refusal = lifecycle.hold_body(flow, admitted, len(packed) + len(body))
                if refusal is not None:
                    await lifecycle.answer(flow, refusal)
                    return

            exchange = self._mediator.exchange(admitted, replace(request, body=body))
        except DecodingError as error:
            exchange = self._mediator.exchange_packed(admitted, request, error)

        decision = await lifecycle.decide(flow, exchange)
        if isinstance(decision, RunnerResponse):
            await lifecycle.answer(flow, decision)
        else:
            forward.send(flow, self._mediator, decision)

    def _installed(self) -> Lifecycle:
        assert self._lifecycle is not None, "the parts of the addon are not installed"
        return self._lifecycle


async def _body(flow: http.HTTPFlow) -> bytes:
    """Return the body of the request, unpacked.

    Raise ``DecodingError`` if it can't be unpacked within the limits.
    """
    body = original_body(flow)
    applied = coding_names(flow.request.headers.get_all("content-encoding"))
    if not applied:
        return body

    limit = options.max_body_bytes()
    if len(body) < _MAX_PACKED_IN_LOOP:
        return decode(body, applied, limit, _UNPACK_SECONDS)
    return await asyncio.to_thread(decode, body, applied, limit, _UNPACK_SECONDS)


def _request(flow: http.HTTPFlow, own: http.Request, addon_state: AddonState) -> Request:
    """Return the request for the mediator, without its body."""
    host = destination(flow, addon_state.hosts)
    assert host is BASE_URL or host in addon_state.hosts.values()
    headers = [(name, value) for name, value in own.headers.items(multi=True)]
    observer = hidden_flows.observe(flow, addon_state)
    can_be_cut = door.is_framed(own)
    return Request(own.method, own.path, headers, b"", host, observer, can_be_cut)
