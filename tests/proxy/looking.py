"""What an operator sees of a pod: the flows that ``-w`` saves, and mitmweb as its own page asks it."""

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
    warnings.simplefilter("ignore", DeprecationWarning)  # of pyparsing, at which mitmproxy's filters are made
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
    """A pod with two agents, which the test starts: ``analyst`` has two tools, ``plain`` none."""
    provider, service = Provider(), Service()
    provider.start()
    service.start()
    pod = Pod(home, provider, service)
    trade = pod.tool("trade", "POST", schema={"type": "object", "properties": {"symbol": {"type": "string"}}})
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
    """A pod whose flows are saved."""

    pod: Pod

    @property
    def file(self) -> Path:
        return self.pod.home / "flows"

    def flows(self) -> list[http.HTTPFlow]:
        """Those that are saved by now; the last one may just be being written."""
        found: list[http.HTTPFlow] = []
        with self.file.open("rb") as saved, suppress(exceptions.FlowReadException):
            found += (flow for flow in io.FlowReader(saved).stream() if isinstance(flow, http.HTTPFlow))
        return found

    def found(self, wanted: str) -> list[http.HTTPFlow]:
        """Those that a filter of mitmproxy's finds."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            matches = flowfilter.parse(wanted)
        return [flow for flow in self.flows() if flowfilter.match(matches, flow)]

    def last_turn(self, asked: int) -> tuple[http.HTTPFlow, list[http.HTTPFlow]]:
        """The analyst's last turn: its request, and so many that were made for it."""
        turn_id = self.pod.history("analyst")[-1]["turn_id"]

        def whole() -> list[http.HTTPFlow] | None:
            flows = [flow for flow in self.flows() if flow.metadata.get("claw.turn") == turn_id]
            return flows if len(flows) == asked + 1 else None

        *children, parent = eventually(whole, f"{asked} flows of {turn_id} are saved")
        assert {child.metadata["claw.parent"] for child in children} <= {parent.id}
        return parent, children


@dataclass
class Mitmweb:
    """mitmweb's own interface."""

    port: int = field(default_factory=free_port)

    def start(self, pod: Pod, *arguments: str) -> None:
        pod.program = MITMDUMP.with_name("mitmweb")
        options = {"web_open_browser": "false", "web_port": self.port, "web_password": _PASSWORD}
        pod.start(*(part for name, value in options.items() for part in ("--set", f"{name}={value}")), *arguments)

    def ask(self, path: str, *, method: str = "GET", body: Any = None) -> bytes:
        headers = {"authorization": f"Bearer {_PASSWORD}"}
        headers["content-type"] = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        headers |= {"cookie": "_mitmproxy_xsrf=aabbccdd", "x-xsrftoken": "aabbccdd"}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        with urllib.request.urlopen(asked, timeout=30) as response:
            said: bytes = response.read()
        return said

    def load(self, dump: bytes) -> None:
        """File → Open."""
        self.ask("/flows/dump", method="POST", body=dump)

    def flows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.ask("/flows"))
        return found

    def commented(self, words: str) -> list[dict[str, Any]]:
        return [flow for flow in self.flows() if words in flow["comment"]]

    def everything(self) -> bytes:
        """All that mitmweb tells of its flows: their list, each body as it is, and the event log."""
        bodies = [
            f"/flows/{flow['id']}/{message}/content.data"
            for flow in self.flows()
            for message in ("request", "response")
            if flow.get(message) and flow[message]["contentLength"]
        ]
        return b"\n".join(map(self.ask, ["/flows", "/events", *bodies]))


def told(planted: bytes) -> list[str]:
    """The planted secrets that stand in these bytes."""
    return [secret for secret in PLANTED if secret.encode() in planted]


def saved(pod: Pod, count: int = 1) -> Saved:
    """The pod's flows, once so many are saved."""
    found = Saved(pod)
    eventually(lambda: len(found.flows()) >= count, "flows are saved")
    return found
