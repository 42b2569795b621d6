"""The real mitmweb, asked as its own page asks it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.proxy.pod import ROOT, Pod
from tests.waiting import eventually, free_port

MITMWEB = Path(sys.executable).parent / "mitmweb"
PASSWORD = "password-of-mitmweb"


@dataclass
class Mitmweb:
    """mitmweb, through the interface of its own page."""

    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def arguments(self) -> list[str]:
        settings = {"web_open_browser": "false", "web_port": self.port, "web_password": PASSWORD}
        return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]

    def start(self, pod: Pod, *arguments: str) -> None:
        """Start the pod's proxy as mitmweb."""
        pod.program = MITMWEB
        pod.start(*self.arguments, *arguments)

    def fetch(
        self, path: str, body: Any = None, *, method: str | None = None, password: str = PASSWORD
    ) -> bytes:
        """Return the bytes of an answer; ``body``: bytes as they are, all else as JSON."""
        is_raw = isinstance(body, bytes)
        headers = {
            "authorization": f"Bearer {password}",
            "content-type": "application/octet-stream" if is_raw else "application/json",
            "cookie": "_mitmproxy_xsrf=aabbccdd",
            "x-xsrftoken": "aabbccdd",
        }
        data = body if is_raw or body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(asked, timeout=30) as response:
            said: bytes = response.read()
        return said

    def ask(self, path: str, body: Any = None, **how: Any) -> Any:
        """Return the document of an answer, if it has one; ``how``: as for ``fetch``."""
        said = self.fetch(path, body, **how)
        return json.loads(said) if said else None

    def command(self, name: str, *arguments: str) -> Any:
        """Run a command; return its result, or ``{"error": …}``."""
        said = self.ask(f"/commands/{name}", {"arguments": arguments})
        return said.get("value", said)

    def flows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("/flows")
        return found

    def load(self, dump: bytes) -> None:
        """Load saved flows, as File → Open does."""
        self.fetch("/flows/dump", dump, method="POST")

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
        return b"\n".join(map(self.fetch, ["/flows", "/events", *bodies]))

    def turns(self) -> list[dict[str, Any]]:
        """Return the runners' flows, in their order."""
        return [
            flow for flow in self.flows() if "llama" in flow["marked"] or flow["marked"] == "🦙"
        ]

    def view(
        self, flow: dict[str, Any], name: str = "auto", message: str = "response"
    ) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(f"/flows/{flow['id']}/{message}/content/{name}.json")
        return found


def offline(home: Path, flows: Path, context: Path) -> tuple[Mitmweb, subprocess.Popen[bytes]]:
    """Start ``mitmweb -n -r FILE``, which shows flows of a file without keys, a pod
    or a listener.
    """
    web = Mitmweb()
    script = ["-s", str(ROOT / "addons" / "cllama.py"), "--set", f"cllama_context={context}"]
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT)}
    env |= {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
    said = home / "mitmweb.log"
    with said.open("wb") as out:
        process = subprocess.Popen(
            [str(MITMWEB), "-n", "-r", str(flows), *script, *web.arguments],
            cwd=home,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )

    def loaded() -> bool:
        assert process.poll() is None, said.read_text(encoding="utf-8")
        try:
            return bool(web.turns())
        except urllib.error.URLError:
            return False

    eventually(loaded, "mitmweb has read its file")
    return web, process
