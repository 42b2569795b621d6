"""A pod on loopback around the real ``mitmdump -s addons/cllama.py``."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai

from tests.events import known
from tests.fork_server import CLAW, PROXIES, ForkedProcess, fork_server, may_be_forked
from tests.peers import Provider, Service
from tests.waiting import eventually, free_port

ROOT = Path(__file__).parent.parent.parent
MITMDUMP = Path(sys.executable).parent / "mitmdump"
PROVIDER_KEY = "sk-provider-key-planted-0001"
ANTHROPIC_KEY = "sk-ant-provider-key-planted-0004"
TOOL_TOKEN = "tool-token-planted-0002"
SECRET = "agent-secret-planted-0003"
_LOADED = "own script loaded"
_SETS = """
import sys
from mitmproxy import ctx, exceptions
class Setter:
    def running(self):
        try:
            ctx.options.update(**{options!r})
        except exceptions.OptionsError as error:
            print(error, file=sys.stderr)
        print({told!r}, file=sys.stderr, flush=True)
addons.append(Setter())
"""


@dataclass
class Pod:
    """Directories, provider, service, and the process of the proxy."""

    home: Path
    provider: Provider
    service: Service
    port: int = field(default_factory=free_port)
    proxy_port: int = field(default_factory=free_port)
    script: Path = ROOT / "addons" / "cllama.py"
    environment: dict[str, str] = field(default_factory=dict)
    program: Path = MITMDUMP
    launcher: tuple[str, ...] = ()
    """The command that starts the proxy, and becomes it."""
    workers: int = 1
    process: subprocess.Popen[bytes] | ForkedProcess | None = None
    clients: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """SDK clients, closed with the pod: the garbage collector might collect their
    sockets before them.
    """

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def tool(
        self, name: str, method: str = "GET", path: str | None = None, **more: Any
    ) -> dict[str, Any]:
        """Return a manifest entry of the service ``desk``."""
        execution = {
            "transport": "http",
            "service": "desk",
            "base_url": self.service.url,
            "method": method,
            "path": path or f"/{name}",
            "auth": {"type": "bearer", "token": TOOL_TOKEN},
        }
        schema = more.pop("schema", {"type": "object", "properties": {}})
        annotations = more.pop("annotations", {"readOnly": method == "GET"})
        return {
            "name": f"desk.{name}",
            "description": f"The {name} of the desk.",
            "inputSchema": schema,
            "annotations": annotations,
            "execution": {**execution, **more},
        }

    def balance_and_trade(self) -> list[dict[str, Any]]:
        """Return the tools of most tests: a read, and a write with a symbol."""
        schema = {"type": "object", "properties": {"symbol": {"type": "string"}}}
        return [self.tool("balance"), self.tool("trade", "POST", schema=schema)]

    def agent(self, agent_id: str, *tools: dict[str, Any], **policy: Any) -> str:
        """Write (or rewrite) an agent's context directory; return its token."""
        token = self.token(agent_id)
        new = self.home / "staged" / agent_id
        new.mkdir(parents=True)
        metadata = {"service": agent_id, "pod": "test", "type": "generic", "token": token}
        (new / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
        if tools:
            manifest = {"version": 1, "tools": list(tools), "policy": policy}
            (new / "tools.json").write_text(json.dumps(manifest), encoding="utf-8")
        final = self.home / "context" / agent_id
        final.parent.mkdir(exist_ok=True)
        if final.exists():
            final.rename(self.home / f"old-{time.monotonic_ns()}")
        new.rename(final)
        return token

    def put(self, agent_id: str, name: str, document: Any) -> None:
        """Write (or rewrite) one more file of an agent's context directory."""
        file = self.home / "context" / agent_id / name
        staged = file.with_name(f"{name}.new")
        staged.write_text(json.dumps(document), encoding="utf-8")
        staged.rename(file)

    def budget(self, agent_id: str, **budget: Any) -> None:
        """Set the agent's budget from now on."""
        about = {
            "service": agent_id,
            "pod": "test",
            "type": "generic",
            "token": self.token(agent_id),
            "budget": budget,
        }
        self.put(agent_id, "metadata.json", about)

    def token(self, agent_id: str = "analyst") -> str:
        return f"{agent_id}:{SECRET}-{agent_id}"

    def client(self, agent_id: str = "analyst", **more: Any) -> openai.OpenAI:
        """Return the real OpenAI SDK, with the base-URL entrance and the agent's
        token as its key.
        """
        options = {
            "base_url": f"{self.url}/v1",
            "api_key": self.token(agent_id),
            "max_retries": 0,
            "timeout": 30,
        }
        return self.clients.enter_context(openai.OpenAI(**(options | more)))

    def claude(self, agent_id: str = "analyst", **more: Any) -> anthropic.Anthropic:
        """Return the real Anthropic SDK.

        It sends its key as a bearer, unless ``default_headers`` says otherwise.
        """
        options = {
            "base_url": self.url,
            "api_key": self.token(agent_id),
            "max_retries": 0,
            "timeout": 30,
        }
        return self.clients.enter_context(anthropic.Anthropic(**(options | more)))

    def env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home / "home"),
            "PYTHONPATH": str(ROOT),  # the code beside these tests, in every worktree
            "PYTHONUNBUFFERED": "1",
            "LISTEN_ADDR": f"127.0.0.1:{self.port}",
            "CLAW_PROXY_ADDR": f"127.0.0.1:{self.proxy_port}",
            "CLAW_CONTEXT_ROOT": str(self.home / "context"),
            "CLAW_AUTH_DIR": str(self.home / "auth"),
            "CLAW_SESSION_HISTORY_DIR": str(self.home / "history"),
            "CLAW_STATE": str(self.home / "state.db"),
            "OPENAI_API_KEY": PROVIDER_KEY,
            "OPENAI_BASE_URL": f"{self.provider.url}/v1",
            "ANTHROPIC_API_KEY": ANTHROPIC_KEY,
            "ANTHROPIC_BASE_URL": f"{self.provider.url}/v1",
            # The hosts of others are on loopback, too.
            "CLLAMA_EGRESS": "allow",
            "CLLAMA_EGRESS_NETWORKS": "127.0.0.0/8,::1",
            "CLLAMA_FILE_LOOK_MS": "0",  # A test that changes a file asks at once
            "CLLAMA_KEEPALIVE_MS": "200",
            "CLLAMA_KEEPALIVE_FIRST_MS": "300",
            **{name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")},
            **self.environment,
        }

    def start(self, *arguments: str, wait: bool = True) -> None:
        """Start ``mitmdump -s addons/cllama.py``, with no other flag unless the
        test is about flags.
        """
        (self.home / "home").mkdir(exist_ok=True)
        command = [*self.launcher, str(self.program), "-s", str(self.script), *arguments]
        if self.workers > 1:
            self.program = MITMDUMP.with_name("workers")
            command = [str(self.program), str(self.workers), *command[1:]]
            if not self._may_be_forked():
                command = [
                    *self.launcher,
                    *CLAW,
                    "proxy",
                    "--workers",
                    str(self.workers),
                    *arguments,
                ]
        with (
            self.stdout.open("ab") as out,
            self.stderr.open("ab") as err,
            Path(os.devnull).open("rb") as nothing,
        ):
            if self._may_be_forked():
                self.process = fork_server("proxy").start(
                    command, self.home, self.env(), [nothing, out, err]
                )
            else:
                self.process = subprocess.Popen(
                    command, cwd=self.home, env=self.env(), stdin=nothing, stdout=out, stderr=err
                )
        if wait:
            eventually(self._ready, f"the proxy is ready; it said: {self.said()}")

    def start_claw(self, *arguments: str) -> None:
        """Start ``claw proxy`` with one worker, which becomes mitmdump."""
        (self.home / "home").mkdir(exist_ok=True)
        with self.stdout.open("ab") as out, self.stderr.open("ab") as err:
            self.process = subprocess.Popen(
                [*CLAW, "proxy", *arguments],
                cwd=self.home,
                env=self.env(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        eventually(self._ready, f"the proxy is ready; it said: {self.said()}")

    def stop(self) -> None:
        self.clients.close()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(timeout=10)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(timeout=10)

    @property
    def stdout(self) -> Path:
        return self.home / "stdout.log"

    @property
    def stderr(self) -> Path:
        return self.home / "stderr.log"

    def said(self) -> str:
        return "".join(
            file.read_text(encoding="utf-8") for file in (self.stdout, self.stderr) if file.exists()
        )

    def log(self) -> list[dict[str, Any]]:
        """Return the log so far; each line must be one of the contract. mitmproxy
        says "Loading script" before any script can stop it.
        """
        return [known(line) for line in whole_lines(self.stdout) if "] Loading script " not in line]

    def memory(self, *, anew: bool = False) -> int:
        """Return the most bytes of memory that the proxy's process has used;
        ``anew``: and count from now on.
        """
        assert self.process is not None
        if anew:
            Path(f"/proc/{self.process.pid}/clear_refs").write_text("5", encoding="utf-8")
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return next(
            int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM")
        )

    def history(self, agent_id: str) -> list[dict[str, Any]]:
        """Return the lines of an agent's history; those of other workers come after
        the first one's.
        """
        places = [self.home / "history", *sorted(self.home.glob("history/.worker-*"))]
        files = [place / agent_id / "history.jsonl" for place in places]
        return [json.loads(line) for file in files if file.exists() for line in whole_lines(file)]

    def own_script(self) -> Path:
        """Copy the addon's script into a folder of its own, so that it can be
        changed; it says when it is loaded.
        """
        self.script = self.home / "addons" / "cllama.py"
        self.script.parent.mkdir()
        source = (ROOT / "addons" / "cllama.py").read_text(encoding="utf-8")
        self.script.write_text(
            f"{source}\nprint({_LOADED!r}, file=__import__('sys').stderr, flush=True)\n",
            encoding="utf-8",
        )
        return self.script

    def write_script(self, source: str) -> None:
        """Rewrite the script, with a modification time that the watcher takes for newer."""
        newer = self.script.stat().st_mtime + 5
        self.script.write_text(source, encoding="utf-8")
        os.utime(self.script, (newer, newer))

    def reload(self) -> None:
        """Reload the unchanged script, and wait until it is loaded."""
        loaded = self.said().count(_LOADED)
        self.write_script(self.script.read_text(encoding="utf-8"))
        eventually(lambda: self.said().count(_LOADED) > loaded, "the script is loaded anew")

    def set_options(self, source: str, **options: str) -> None:
        """Reload the script with code that sets options of mitmproxy; wait until
        they are set or refused.
        """
        told = f"told options {time.monotonic_ns()}"
        self.write_script(source + _SETS.format(options=options, told=told))
        eventually(lambda: told in self.said(), "the options are set")

    def _may_be_forked(self) -> bool:
        """Return True if this pod's settings change nothing that Python reads
        before our code runs.
        """
        is_plain = not self.launcher and self.program in {
            MITMDUMP.with_name(name) for name in PROXIES
        }
        return is_plain and may_be_forked(self.environment)

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the proxy ended: {self.said()}"
        try:
            with urllib.request.urlopen(f"{self.url}/ready", timeout=2) as response:
                return bool(response.status == 200)
        except OSError:
            return False


@contextlib.contextmanager
def pod_at(
    home: Path, provider: Provider | None = None, service: Service | None = None, **options: Any
) -> Iterator[Pod]:
    """Yield a pod whose provider and service run, and whose proxy the test starts; end all three.

    ``options``: further fields of ``Pod``.
    """
    pod = Pod(home, provider or Provider(), service or Service(), **options)
    with contextlib.ExitStack() as running:
        for peer in (pod.provider, pod.service):
            peer.start()
            running.callback(peer.stop)
        running.callback(pod.stop)
        yield pod


def whole_lines(file: Path) -> list[str]:
    """Return the lines of a file, without one that is just being written."""
    return file.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()


def headers(pod: Pod, agent_id: str = "plain") -> dict[str, str]:
    return {"authorization": f"Bearer {pod.token(agent_id)}", "content-type": "application/json"}


def authority(pod: Pod) -> str:
    """Return the path of mitmproxy's CA, as a runner gets it."""
    return str(pod.home / "home" / ".mitmproxy" / "mitmproxy-ca-cert.pem")


def through(pod: Pod, cafile: str) -> httpx2.Client:
    context = ssl.create_default_context(cafile=cafile)
    return httpx2.Client(
        proxy=f"http://127.0.0.1:{pod.proxy_port}", verify=context, trust_env=False, timeout=30
    )
