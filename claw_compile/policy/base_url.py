"""The base URL of a provider (docs/spec/compile.md "base_url").

Rules. ``x-claw.base-url``, else the first TCP port of ``expose``, else of the container side of
``ports``, else 80. UDP is passed over; a range is an error; several ports without a choice warn.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Span, quote
from claw_compile.grammar.pod import ServiceSpec
from claw_compile.grammar.reader import problem_at
from claw_compile.parsing.interpolation import Lookup, interpolate
from claw_compile.parsing.node import ListNode, MapNode, Node, ScalarNode
from claw_contract.manifest import BaseUrl

_PORT = re.compile(r"(?P<port>[0-9]{1,5})(?P<range>-[0-9]{1,5})?(/(?P<protocol>[a-z]+))?")
_URL = TypeAdapter[str](BaseUrl)
_HTTP_PORT = 80


@dataclass(frozen=True)
class _Port:
    number: int
    is_range: bool
    span: Span
    shown: str


def base_url(service: ServiceSpec, lookup: Lookup, diagnostics: list[Diagnostic]) -> str | None:
    """Return ``http://<service>:<port>``, or the provider's own base URL; None when it can't be known."""
    if service.base_url is not None:
        return _explicit_url(service.base_url, diagnostics)
    port_reader = _PortReader(lookup, diagnostics)
    ports = port_reader.tcp_ports(service.expose, "expose") or port_reader.tcp_ports(service.ports, "ports")
    if port_reader.failed:
        return None
    name = service.name.text
    if not ports:
        help_text = "add 'expose: [\"PORT\"]', or set 'x-claw.base-url'"
        message = f"{name} has no TCP port; http://{name}:80 is taken"
        diagnostics.append(codes.NO_PORT.at(service.name.span, message, help_text=help_text))
        return f"http://{name}:{_HTTP_PORT}"
    first, *others = ports
    for port in ports:
        if port.is_range:
            message = f"{quote(port.shown)} does not say where {name} listens"
            diagnostics.append(codes.PORT_RANGE.at(port.span, message, help_text="set 'x-claw.base-url'"))
            return None
    if others:
        message = f"{name} has several TCP ports; {quote(first.shown)} is taken"
        notes = [Note(first.span, "this one is taken")]
        diagnostics.append(
            codes.SEVERAL_PORTS.at(others[0].span, message, notes=notes, help_text="set 'x-claw.base-url'")
        )
    return f"http://{name}:{first.number}"


def _explicit_url(written: ScalarNode, diagnostics: list[Diagnostic]) -> str | None:
    url = written.text.rstrip("/")
    try:
        sound = re.fullmatch(r"[!-~]+", url) is not None and bool(_URL.validate_python(url)) and _has_port(url)
    except ValidationError:
        sound = False
    if not sound:
        diagnostics.append(codes.BAD_BASE_URL.at(written.span, f"{quote(written.shown)} is not a base URL"))
        return None
    return url


def _has_port(url: str) -> bool:
    host = url.partition("://")[2].partition("/")[0].rpartition("]")[2]
    _, colon, port = host.rpartition(":")
    return not colon or (re.fullmatch(r"[0-9]{1,5}", port) is not None and 0 < int(port) <= MAX_PORT)


MAX_PORT = 65535


@dataclass
class _PortReader:
    lookup: Lookup
    diagnostics: list[Diagnostic]
    failed: bool = False

    def tcp_ports(self, node: Node | None, key: str) -> list[_Port]:
        """Return the TCP ports of ``expose`` or ``ports``, each once."""
        if node is None or (isinstance(node, ScalarNode) and node.is_null):
            return []
        if not isinstance(node, ListNode):
            self._report_bad_port(node.span, f"{quote(key)} is a list")
            return []
        ports: dict[tuple[int, bool], _Port] = {}
        for item in node.items:
            port = self._port(item)
            if port is not None:
                ports.setdefault((port.number, port.is_range), port)
        return list(ports.values())

    def _port(self, node: Node) -> _Port | None:
        if isinstance(node, MapNode):
            target, protocol = node.value("target"), node.value("protocol")
            if isinstance(protocol, ScalarNode) and protocol.text.lower() not in {"", "tcp"}:
                return None
            if isinstance(target, ScalarNode):
                return self._port(target)
        if not isinstance(node, ScalarNode):
            self._report_bad_port(node.span, "this entry holds no port")
            return None
        filled = interpolate(node.text, self.lookup)
        if filled.problems:
            self.diagnostics.extend(problem_at(node, problem) for problem in filled.problems)
            self.failed = True
            return None
        # The container's side is behind the last colon; a host address may hold colons of its own.
        match = _PORT.fullmatch(filled.text.strip().lower().rpartition(":")[2])
        if match is None or not 0 < int(match["port"]) <= MAX_PORT:
            self._report_bad_port(node.span, f"{quote(node.text)} holds no port")
            return None
        if match["protocol"] not in {None, "tcp"}:
            return None
        return _Port(int(match["port"]), match["range"] is not None, node.span, node.text)

    def _report_bad_port(self, span: Span, message: str) -> None:
        self.failed = True
        self.diagnostics.append(codes.BAD_PORT.at(span, message, help_text="set 'x-claw.base-url'"))
