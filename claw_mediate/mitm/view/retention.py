"""How many flows are kept to be looked at (spec/inspect.md: memory stays bounded over days).

Beyond a number of flows, or of their bytes, the oldest go: a request with all that was asked for it, at once. None goes that is
under way, or that an operator has marked. Without a view nothing is kept, and nothing needs to go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mitmproxy import ctx, http
from mitmproxy.flow import Flow

from claw_mediate.mitm.view.hidden_flows import ENTRY, MARKS, PARENT

_OURS = frozenset({"", *MARKS.values()})
_EACH = 4096
"""What a flow takes beside its bodies, about."""
_LEFT = 0.9
"""Of what may be kept, what is left when some has to go: so that it need not be looked for with each request."""


class Keeping:
    """The addon. It stands behind the view, which knows of a flow by then."""

    name = "claw-keeping"

    def __init__(self) -> None:
        self.most_flows = 0
        self.most_bytes = 0
        """Told by the script; they hold when it is gone. Before it has told anything, nothing goes."""
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._retry = 0
        """How many flows there are when it is worth while to look again, where too few could go."""

    def response(self, flow: http.HTTPFlow) -> None:
        view: Any = ctx.master.addons.get("view")
        if view is None or not self.most_flows:
            return
        self._weigh(flow)
        count = view.store_count()
        if (count > self.most_flows or self._bytes > self.most_bytes) and count >= self._retry:
            self._trim(view)

    error = response

    def update(self, flows: Iterable[Flow]) -> None:
        for flow in flows:
            if flow.id in self._sizes:
                self._weigh(flow)

    def _weigh(self, flow: Flow) -> None:
        size = _size(flow)
        self._bytes += size - self._sizes.get(flow.id, 0)
        self._sizes[flow.id] = size

    def _trim(self, view: Any) -> None:
        flows: list[Flow] = view.resolve("@all")
        known = {flow.id for flow in flows}
        self._sizes = {each: size for each, size in self._sizes.items() if each in known}
        self._bytes = sum(self._sizes.values())
        count = len(flows)
        for family in _families(flows):
            if count <= self.most_flows * _LEFT and self._bytes <= self.most_bytes * _LEFT:
                break
            if any(map(_stays, family)):
                continue
            for flow in family:
                view.remove([flow])
                self._bytes -= self._sizes.pop(flow.id, 0)
            count -= len(family)
        self._retry = count + self.most_flows // 100 if count > self.most_flows or self._bytes > self.most_bytes else 0


def _families(flows: list[Flow]) -> list[list[Flow]]:
    """Each request with what was asked for it, in the order of their first ones."""
    families: dict[str, list[Flow]] = {}
    for flow in flows:
        families.setdefault(flow.metadata.get(PARENT, flow.id), []).append(flow)
    return list(families.values())


def _stays(flow: Flow) -> bool:
    return flow.live or flow.intercepted or flow.marked not in _OURS


def _size(flow: Flow) -> int:
    size = _EACH + len(flow.metadata.get(ENTRY, ""))
    if isinstance(flow, http.HTTPFlow):
        messages = (flow.request, flow.response)
        size += sum(len(message.raw_content or b"") for message in messages if message is not None)
    return size
