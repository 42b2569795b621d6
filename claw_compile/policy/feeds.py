"""Feeds: a name → the service that declares it.

Rules. A name that several services declare is said in full, ``service/name``. ``{claw_id}`` in a name or a path is the agent's
id, filled in here. A feed that the pod declares itself bypasses the descriptors; its service must exist all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from claw_compile import codes
from claw_compile.descriptors.descriptor import ServiceDescriptor
from claw_compile.diagnostics.diagnostic import Diagnostic, did_you_mean, quote
from claw_compile.grammar.pod import Feed, NamedFeed, OwnFeed, PodSpec
from claw_compile.parsing.node import ScalarNode
from claw_compile.policy.agent import ResolvedFeed
from claw_contract.descriptor import DescriptorFeed

CLAW_ID = "{claw_id}"


@dataclass(frozen=True)
class OfferedFeed:
    """A feed that a service's descriptor declares."""

    service: str
    feed: DescriptorFeed

    @property
    def full_name(self) -> str:
        return f"{self.service}/{self.feed.name}"


class Feeds:
    """Every feed that the pod's descriptors declare. ``unread``: a descriptor is missing, so that a name may be in it."""

    def __init__(self, pod: PodSpec, descriptors: Mapping[str, ServiceDescriptor | None]) -> None:
        self._services = [service.name.text for service in pod.services]
        self._offered = [
            OfferedFeed(name, feed)
            for name, each in sorted(descriptors.items())
            if each is not None
            for feed in each.descriptor.feeds
        ]
        self._unread = any(each is None for each in descriptors.values())

    def resolve(self, feeds: Iterable[Feed], agent_id: str, diagnostics: list[Diagnostic]) -> tuple[ResolvedFeed, ...]:
        """Return an agent's feeds in their order, each once."""
        resolved: dict[tuple[str, str, str], ResolvedFeed] = {}
        for feed in feeds:
            if (offered := self._resolve(feed, diagnostics)) is not None:
                name, path = offered.name.replace(CLAW_ID, agent_id), offered.path.replace(CLAW_ID, agent_id)
                resolved.setdefault((name, offered.service, path), replace(offered, name=name, path=path))
        return tuple(resolved.values())

    def check(self, feeds: Iterable[Feed], diagnostics: list[Diagnostic]) -> None:
        """Check feeds that no agent may have taken: the pod's defaults are judged all the same."""
        for feed in feeds:
            self._resolve(feed, diagnostics)

    def _resolve(self, feed: Feed, diagnostics: list[Diagnostic]) -> ResolvedFeed | None:
        match feed:
            case NamedFeed():
                if (offered := self._find(feed.name, diagnostics)) is None:
                    return None
                own = offered.feed
                return ResolvedFeed(own.name, offered.service, own.path, own.ttl, own.description, feed.name.span)
            case OwnFeed():
                if feed.source.text not in self._services:
                    message, hint = (
                        f"no service {quote(feed.source.shown)}",
                        did_you_mean(feed.source.text, self._services),
                    )
                    diagnostics.append(codes.UNKNOWN_SERVICE.at(feed.source.span, message, hint=hint))
                    return None
                path, name = feed.path.text, feed.name.text
                return ResolvedFeed(name, feed.source.text, path, feed.ttl, feed.description, feed.span)
        assert_never(feed)

    def _find(self, name: ScalarNode, diagnostics: list[Diagnostic]) -> OfferedFeed | None:
        candidates = [each for each in self._offered if name.text in {each.feed.name, each.full_name}]
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            names = ", ".join(quote(each.full_name) for each in candidates)
            message = f"several services declare a feed {quote(name.shown)}"
            diagnostics.append(codes.AMBIGUOUS_FEED.at(name.span, message, help_text=f"write one of {names}"))
        elif not self._unread:
            known = [spelling for each in self._offered for spelling in (each.feed.name, each.full_name)]
            listed = ", ".join(sorted({each.full_name for each in self._offered}))
            help_text = f"the pod has {listed}" if listed else "no service of the pod declares a feed"
            message = f"no service declares a feed {quote(name.shown)}"
            hint = did_you_mean(name.text, known)
            diagnostics.append(codes.UNKNOWN_FEED.at(name.span, message, hint=hint, help_text=help_text))
        return None
