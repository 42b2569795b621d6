"""Check: names of services, and what ``count`` does to them (origin-compile.md 2.12; edge cases 24 to 29).

Rules. A counted service has no host of its own name. An ordinal's name is nobody else's. Some names are the compiler's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, Note, Span, quoted
from claw_compile.grammar.pod import PodSpec, ServiceSpec, written
from claw_compile.loading.load import Loaded
from claw_compile.policy.agent import Resolved

_RESERVED = re.compile(r"cllama(-.*)?|clawdash|claw-(api|wall)")
_COMPOSE_NAME = re.compile(r"(?!\.\.?$)[a-zA-Z0-9._-]+")


def check_names(pod: PodSpec) -> Iterator[Diagnostic]:
    """Every service's name, and every ordinal's."""
    hosts: dict[str, ServiceSpec] = {}
    names = {service.name.text: service for service in pod.services}
    for service in pod.services:
        name = service.name.text
        if _RESERVED.fullmatch(name.lower()):
            yield codes.RESERVED_NAME.at(service.name.span, f"{quoted(name)} is a name of the compiler's own services")
        if not _COMPOSE_NAME.fullmatch(name) and service.agent is None:
            yield codes.BAD_SERVICE_NAME.at(service.name.span, f"{quoted(name)} can't name a service")
        first = hosts.setdefault(name.lower(), service)
        if first is not service:
            notes = [Note(first.name.span, "the other one is here")]
            message = f"{quoted(name)} and {quoted(first.name.text)} are one host"
            yield codes.SAME_HOST.at(service.name.span, message, notes=notes)
        for host in service.hosts if service.count > 1 else ():
            if (other := names.get(host)) is not None:
                notes = [Note(service.count_key or service.name.span, f"'count' of {name} makes it")]
                message = f"{quoted(host)} is one of the agents of {quoted(name)}"
                yield codes.ORDINAL_COLLISION.at(other.name.span, message, notes=notes)


def check_counted(loaded: Loaded, resolved: Resolved) -> Iterator[Diagnostic]:
    """Whoever names a counted service names a host that does not exist."""
    for name, span in _named(loaded.pod, resolved):
        service = loaded.pod.service(name)
        if service is not None and service.count > 1:
            notes = [Note(service.count_key, "'count' is here")] if service.count_key else []
            help_text = "name one of them, or give what it provides a service of its own, without 'count'"
            message = f"no container is called {quoted(name)}: there are {service.hosts[0]} to {service.hosts[-1]}"
            yield codes.COUNTED_PROVIDER.at(span, message, notes=notes, help_text=help_text)


def _named(pod: PodSpec, resolved: Resolved) -> Iterator[tuple[str, Span]]:
    """Where services are named as hosts: grants, memories, surfaces, feeds."""
    for owner in pod.owners:
        yield from ((grant.service.text, grant.service.span) for grant in written(owner.tools))
        yield from ((each.target, each.span) for each in written(owner.surfaces) if each.scheme == "service")
        if owner.memory is not None and owner.memory.service is not None:
            yield owner.memory.service.text, owner.memory.service.span
    yield from ((feed.service, feed.span) for agent in resolved.agents for feed in agent.feeds)
