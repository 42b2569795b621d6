"""Retention of flows in the view: the oldest go, so that memory stays bounded over days.

Beyond a number of flows, or of their bytes, the oldest request goes, together with its hidden
flows. None goes that is under way, or that an operator has marked. Without a view nothing is kept
(``docs/spec/inspect.md``).
"""

from collections.abc import Iterable
from typing import Any

from mitmproxy import http
from mitmproxy.flow import Flow

from claw_mediate.mitm.addon_state import AddonState
from claw_mediate.mitm.view.hidden_flows import ENTRY, MARKS, PARENT

_OWN_MARKS = frozenset({"", *MARKS.values()})
_FLOW_BYTES = 4096
"""The approximate size of a flow without its messages."""
_TRIM_TO = 0.9
"""The part of each limit that is kept when flows go, so that not every request has to trim."""


class RetentionAddon:
    """The addon. It comes after the view, which knows of a flow by then."""

    name = "claw-retention"

    def __init__(self, addon_state: AddonState) -> None:
        self._addon_state = addon_state
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._retry = 0
        """The number of flows at which to trim again, after a time when too few could go."""

    def response(self, flow: http.HTTPFlow) -> None:
        limits = self._addon_state
        view = limits.builtin.view
        if view is None or not limits.max_flows:
            return

        self._weigh(flow)
        count = view.store_count()
        is_over = count > limits.max_flows or self._bytes > limits.max_bytes
        if is_over and count >= self._retry:
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
        """Remove the oldest requests until both limits have some room."""
        max_flows, max_bytes = self._addon_state.max_flows, self._addon_state.max_bytes
        flows: list[Flow] = view.resolve("@all")
        known = {flow.id for flow in flows}
        self._sizes = {each: size for each, size in self._sizes.items() if each in known}
        self._bytes = sum(self._sizes.values())

        count = len(flows)
        for family in _families(flows):
            if count <= max_flows * _TRIM_TO and self._bytes <= max_bytes * _TRIM_TO:
                break
            if any(_must_stay(flow) for flow in family):
                continue

            for flow in family:
                view.remove([flow])
                self._bytes -= self._sizes.pop(flow.id, 0)
            count -= len(family)

        is_still_over = count > max_flows or self._bytes > max_bytes
        self._retry = count + max_flows // 100 if is_still_over else 0


def _families(flows: list[Flow]) -> list[list[Flow]]:
    """Return each request with its hidden flows, the oldest first."""
    families: dict[str, list[Flow]] = {}
    for flow in flows:
        families.setdefault(flow.metadata.get(PARENT, flow.id), []).append(flow)
    return list(families.values())


def _must_stay(flow: Flow) -> bool:
    return flow.live or flow.intercepted or flow.marked not in _OWN_MARKS


def _size(flow: Flow) -> int:
    size = _FLOW_BYTES + len(flow.metadata.get(ENTRY, ""))
    if not isinstance(flow, http.HTTPFlow):
        return size

    size += len(flow.request.data.path)
    for message in (flow.request, flow.response):
        if message is not None:
            size += len(message.raw_content or b"")
            # A peer may send heads of megabytes, with or without a token.
            size += sum(len(name) + len(value) for name, value in message.headers.fields)
    return size
