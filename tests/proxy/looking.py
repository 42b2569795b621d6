"""An operator's view of a pod: the flows that ``-w`` saves, and mitmweb, asked as
its own page asks it.
"""

from __future__ import annotations

import json
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore", DeprecationWarning
    )  # pyparsing warns when mitmproxy's filters are made
    from mitmproxy import exceptions, flowfilter, http, io
    from mitmproxy.addons import dumper, save, savehar, tlsconfig, view
    from mitmproxy.test import taddons, tflow

from tests.peers import Provider, Service
from tests.proxy.pod import ANTHROPIC_KEY, MITMDUMP, PROVIDER_KEY, SECRET, TOOL_TOKEN, Pod
from tests.waiting import eventually, free_port

__all__ = ["dumper", "http", "io", "save", "savehar", "taddons", "tflow", "tlsconfig", "view"]
PLANTED = (PROVIDER_KEY, ANTHROPIC_KEY, TOOL_TOKEN, SECRET)
_PASSWORD = "password-of-mitmweb"


@contextmanager
def peopled(home: Path) -> Iterator[Pod]:
    """Yield a pod with two agents, not started: ``analyst`` has two tools, ``plain`` none."""
    provider, service = Provider(), Service()
    provider.start()
    service.start()
    pod = Pod(home, provider, service)
    trade = pod.tool(
        "trade", "POST", schema={"type": "object", "properties": {"symbol": {"type": "string"}}}
    )
    pod.agent("analyst", pod.tool("balance"), trade)
    pod.agent("plain")
    try:
        yield pod
    finally:
        pod.stop()
        provider.stop()
        service.stop()


@dataclass
class Saved:
    """A pod that saves its flows."""

    pod: Pod

    @property
    def file(self) -> Path:
        return self.pod.home / "flows"

    def flows(self) -> list[http.HTTPFlow]:
        """Return the flows that are saved completely so far."""
        found: list[http.HTTPFlow] = []
        with self.file.open("rb") as saved, suppress(exceptions.FlowReadException):
            found += (
                flow for flow in io.FlowReader(saved).stream() if isinstance(flow, http.HTTPFlow)
            )
        return found

    def found(self, wanted: str) -> list[http.HTTPFlow]:
        """Return the saved flows that match a filter of mitmproxy."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            matches = flowfilter.parse(wanted)
        return [flow for flow in self.flows() if flowfilter.match(matches, flow)]

    def last_turn(self, asked: int) -> tuple[http.HTTPFlow, list[http.HTTPFlow]]:
        """Return the flow of the analyst's last turn, and so many hidden flows made for it."""
        turn_id = self.pod.history("analyst")[-1]["turn_id"]

        def whole() -> list[http.HTTPFlow] | None:
            flows = [flow for flow in self.flows() if flow.metadata.get("claw.turn") == turn_id]
            return flows if len(flows) == asked + 1 else None

        *children, parent = eventually(whole, f"{asked} flows of {turn_id} are saved")
        assert {child.metadata["claw.parent"] for child in children} <= {parent.id}
        return parent, children


@dataclass
class Mitmweb:
    """mitmweb, through the interface of its own page."""

    port: int = field(default_factory=free_port)

    def start(self, pod: Pod, *arguments: str) -> None:
        pod.program = MITMDUMP.with_name("mitmweb")
        options = {"web_open_browser": "false", "web_port": self.port, "web_password": _PASSWORD}
        pod.start(
            *(part for name, value in options.items() for part in ("--set", f"{name}={value}")),
            *arguments,
        )

    def ask(self, path: str, *, method: str = "GET", body: Any = None) -> bytes:
        headers = {"authorization": f"Bearer {_PASSWORD}"}
        headers["content-type"] = (
            "application/octet-stream" if isinstance(body, bytes) else "application/json"
        )
        headers |= {"cookie": "_mitmproxy_xsrf=aabbccdd", "x-xsrftoken": "aabbccdd"}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, headers, method=method
        )
        with urllib.request.urlopen(asked, timeout=30) as response:
            said: bytes = response.read()
        return said

    def load(self, dump: bytes) -> None:
        """Load saved flows, as File → Open does."""
        self.ask("/flows/dump", method="POST", body=dump)

    def flows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.ask("/flows"))
        return found

    def commented(self, words: str) -> list[dict[str, Any]]:
        return [flow for flow in self.flows() if words in flow["comment"]]

    def everything(self) -> bytes:
        """Return everything that mitmweb shows of its flows: their list, each body,
        and the event log.
        """
        bodies = [
            f"/flows/{flow['id']}/{message}/content.data"
            for flow in self.flows()
            for message in ("request", "response")
            if flow.get(message) and flow[message]["contentLength"]
        ]
        return b"\n".join(map(self.ask, ["/flows", "/events", *bodies]))


def told(planted: bytes) -> list[str]:
    """Return the planted secrets in these bytes."""
    return [secret for secret in PLANTED if secret.encode() in planted]


def saved(pod: Pod, count: int = 1) -> Saved:
    """Return the pod's saved flows, once there are so many."""
    found = Saved(pod)
    eventually(lambda: len(found.flows()) >= count, "flows are saved")
    return found
