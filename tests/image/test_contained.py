"""The deployed proxy: the settings of compose.generated.yml, a read-only root, and
a user without rights.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
import yaml

from claw_compile.compiler import compile_pod
from tests.compile.composed import DESCRIPTOR, MASTER, agent
from tests.image.contained import SITE, Container, Mount, of_compose, path, refused
from tests.image.dockerfile import commanded, copied_context, installed, last
from tests.peers import JSONResponse, Provider, Service, calls, text
from tests.waiting import eventually, free_port

pytestmark = pytest.mark.skipif(refused() is not None, reason=str(refused()))
KEY = "sk-planted-provider-key"
NOBODY = 54_321
"""A user that no file of the system knows."""


@dataclass
class DeployedPod:
    """A compiled pod, and its proxy with the image's files."""

    home: Path
    site: Path
    addons: Path
    provider: Provider
    service: Service
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.home / "said.log"

    def compiled(self) -> dict[str, Any]:
        """Compile the pod; return ``cllama`` of compose.generated.yml."""
        pod = self.home / "pod"
        pod.mkdir()
        env = f"OPENAI_API_KEY: {KEY}, OPENAI_BASE_URL: '{self.provider.url}/v1'"
        text = (
            agent(", cllama-env: {ENV}").replace("4000", str(self.service.port)).replace("ENV", env)
        )
        for name, content in (
            ("AGENTS.md", "# Contract\n"),
            ("desk.json", DESCRIPTOR),
            ("claw-pod.yml", text),
        ):
            (pod / name).write_text(content, encoding="utf-8")
        result = compile_pod(pod / "claw-pod.yml", {"CLAW_MASTER_SECRET": MASTER})
        assert result.value is not None, result.diagnostics
        proxy: dict[str, Any] = yaml.safe_load((pod / "compose.generated.yml").read_text("utf-8"))[
            "services"
        ]["cllama"]
        return proxy

    def start(
        self, command: list[str], environment: dict[str, str], mounts: list[Mount], uid: int
    ) -> None:
        hosts = self.home / "hosts"
        if not hosts.exists():
            self.resolves(desk="127.0.0.1")
        workdir = last("WORKDIR").rest
        image = [
            Mount(self.site, SITE),
            Mount(self.addons, f"{workdir}/addons"),
            Mount(hosts, "/etc/hosts"),
        ]
        ours = {"PATH": path(), "PYTHONPATH": SITE}
        # The container has no network of its own here, so each test has ports of its own.
        addresses = {
            "LISTEN_ADDR": f"127.0.0.1:{self.port}",
            "CLAW_PROXY_ADDR": f"127.0.0.1:{free_port()}",
        }
        variables = ours | environment | addresses
        contained = Container(self.home, [*image, *mounts], variables, command, workdir, uid)
        self.process = contained.start(self.log)
        eventually(lambda: self.answers("/health") == 200, "the proxy is there")

    def resolves(self, **names: str) -> None:
        """Give these names these addresses in the container from now on, and no others."""
        lines = [
            f"{address} {name}\n" for name, address in {"localhost": "127.0.0.1", **names}.items()
        ]
        (self.home / "hosts").write_text("".join(lines), encoding="utf-8")

    def token(self) -> str:
        env = (self.home / "pod" / ".claw-runtime" / "agents" / "one" / "env").read_text(
            encoding="utf-8"
        )
        return next(
            line.partition("=")[2]
            for line in env.splitlines()
            if line.startswith("OPENAI_API_KEY=")
        )

    def ask(self, token: str) -> str | None:
        """Run a turn with a tool call; return the answer."""
        self.service.routes["GET", "/get"] = JSONResponse({"found": 1})
        self.provider.says(calls(("c1", "desk__get", {})), text("Done."))
        with openai.OpenAI(
            base_url=f"http://127.0.0.1:{self.port}/v1", api_key=token, max_retries=0
        ) as client:
            messages: Any = [{"role": "user", "content": "Go"}]
            return (
                client.chat.completions.create(model="gpt-test", messages=messages)
                .choices[0]
                .message.content
            )

    def told(self) -> str:
        """Return the last tool result that the model was sent."""
        content: str = self.provider.received[-1].json["messages"][-1]["content"]
        return content

    def status(self) -> dict[str, str]:
        """Return the kernel's status of the process."""
        assert self.process is not None
        lines = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def inside(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run another command in the container."""
        assert self.process is not None
        entered = ["chroot", f"/proc/{self.process.pid}/root", "env", f"PATH={path()}", *command]
        return subprocess.run(entered, capture_output=True, text=True, check=False, timeout=60)

    def end(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout=60)

    def answers(self, path: str) -> int | None:
        """Return the status of the response, or None while nobody listens."""
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text(encoding="utf-8")
        try:
            return httpx2.get(f"http://127.0.0.1:{self.port}{path}", timeout=30).status_code
        except httpx2.TransportError:
            return None


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the directory that ``docker build`` would make site-packages, and its
    copy of addons/.
    """
    home = tmp_path_factory.mktemp("built")
    context = copied_context(home)
    return installed(context, home), context / "addons"


@pytest.fixture
def deployed(tmp_path: Path, built: tuple[Path, Path]) -> Iterator[DeployedPod]:
    provider, service = Provider(), Service()
    provider.start()
    service.start()
    made = DeployedPod(tmp_path, *built, provider, service)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait(timeout=10)
    provider.stop()
    service.stop()


def owned(directory: Path, uid: int) -> None:
    """Give the tree to the user who compiles: ``claw up`` runs the proxy as them."""
    for top, _, files in os.walk(directory):
        os.chown(top, uid, uid)
        for name in files:
            os.chown(Path(top, name), uid, uid, follow_symlinks=False)


def written(volumes: Path) -> set[str]:
    return {str(file.relative_to(volumes)) for file in volumes.rglob("*") if file.is_file()}


@pytest.mark.requirement("contained:compose")
def test_the_command_of_compose_mediates_a_turn_without_rights_and_writes_to_its_volumes_only(
    deployed: DeployedPod,
) -> None:
    proxy = deployed.compiled()
    assert (proxy["read_only"], proxy["cap_drop"], proxy["user"]) == (
        True,
        ["ALL"],
        "${CLAW_UID:-1000}:${CLAW_GID:-1000}",
    )
    assert proxy["security_opt"] == ["no-new-privileges:true"]
    pod, volumes = deployed.home / "pod", deployed.home / "volumes"
    lines = (pod / proxy["env_file"][0]["path"]).read_text(encoding="utf-8").splitlines()
    environment = dict(line.split("=", 1) for line in lines) | proxy["environment"]
    owned(pod / ".claw-runtime", 1000)
    mounts = of_compose(proxy, pod, volumes)
    deployed.start(proxy["command"], environment, mounts, 1000)
    assert deployed.answers("/ready") == 200
    assert deployed.ask(deployed.token()) == "Done."
    status = deployed.status()
    assert status["Uid"].split() == ["1000"] * 4
    assert {status[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")} == {
        "0" * 16
    }
    assert status["NoNewPrivs"] == "1"
    health = [
        word.replace(":8080", f":{deployed.port}") for word in proxy["healthcheck"]["test"][1:]
    ]
    assert deployed.inside(*health).returncode == 0
    assert (
        deployed.inside(
            "sh", "-c", "touch /claw/x || touch /claw/runtime/x || touch /etc/x || touch /usr/x"
        ).returncode
        != 0
    )
    made = deployed.inside(
        "find", "/tmp", "-mindepth", "1", "-maxdepth", "1", "-uid", "1000"
    ).stdout.split()
    assert made == ["/tmp/mitmproxy"]
    kept = written(volumes)
    assert {"claw-history/one/history.jsonl", "claw-state/state.db"} <= kept
    assert {name.partition("/")[0] for name in kept} == {"claw-history", "claw-state"}
    assert deployed.end() == 0
    said = deployed.log.read_text(encoding="utf-8")
    assert "Read-only" not in said
    assert "Traceback" not in said
    assert KEY not in said


@pytest.mark.requirement("contained:any-user")
def test_the_images_own_command_runs_for_a_user_that_the_system_does_not_know_and_that_has_no_home(
    deployed: DeployedPod,
) -> None:
    deployed.compiled()
    context, state = deployed.home / "pod" / ".claw-runtime" / "context", deployed.home / "state"
    state.mkdir()
    state.chmod(0o1777)
    owned(deployed.home / "pod" / ".claw-runtime", NOBODY)
    environment = {
        "CLAW_CONTEXT_ROOT": "/context",
        "CLAW_SESSION_HISTORY_DIR": "/state/history",
        "CLAW_STATE": "/state/state.db",
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": f"{deployed.provider.url}/v1",
        "HOME": "/nonexistent",
        "TMPDIR": "/tmp",
    }
    mounts = [Mount(context.resolve(), "/context"), Mount(state, "/state", read_only=False)]
    deployed.start(commanded(last("CMD")), environment, mounts, NOBODY)
    assert deployed.ask(deployed.token()) == "Done."
    assert written(state) >= {"history/one/history.jsonl", "state.db"}
    assert deployed.end() == 0
    assert "Traceback" not in deployed.log.read_text(encoding="utf-8")


@pytest.mark.requirement("start:in-any-order")
def test_it_starts_before_its_keys_its_peers_and_their_names_are_there_and_works_as_soon_as_they_are(
    deployed: DeployedPod,
) -> None:
    deployed.compiled()
    auth = deployed.home / "auth"
    auth.mkdir()
    (auth / "providers.json").write_text('{"providers": {}}', encoding="utf-8")
    context = deployed.home / "pod" / ".claw-runtime" / "context"
    owned(deployed.home / "pod" / ".claw-runtime", NOBODY)
    environment = {
        "CLAW_CONTEXT_ROOT": "/context",
        "CLAW_AUTH_DIR": "/auth",
        "CLAW_KEY_STATES_DIR": "/tmp/key-states",
    }
    mounts = [Mount(context.resolve(), "/context"), Mount(auth, "/auth")]
    deployed.resolves()
    deployed.start(commanded(last("CMD")), environment, mounts, NOBODY)
    assert (deployed.answers("/health"), deployed.answers("/ready")) == (200, 503)
    assert "no key of any provider is usable now" in deployed.log.read_text(encoding="utf-8")
    assert refusal(deployed) == (502, "no_provider_key")

    url = f"http://models:{deployed.provider.port}/v1"
    keyed = {"providers": {"openai": {"api_key": KEY, "base_url": url}}}
    (auth / "providers.json").write_text(json.dumps(keyed), encoding="utf-8")
    eventually(lambda: deployed.answers("/ready") == 200, "the key is found")
    assert refusal(deployed) == (502, "provider_unreachable")

    deployed.resolves(models="127.0.0.9")  # an address without a listener
    assert refusal(deployed) == (502, "provider_unreachable")

    deployed.resolves(models="127.0.0.1")
    assert deployed.ask(deployed.token()) == "Done."
    assert "request_failed" in deployed.told()
    deployed.resolves(models="127.0.0.1", desk="127.0.0.1")
    assert deployed.ask(deployed.token()) == "Done."
    assert '"found": 1' in deployed.told() or '"found":1' in deployed.told()
    assert deployed.end() == 0


def refusal(deployed: DeployedPod) -> tuple[int, str]:
    with pytest.raises(openai.APIStatusError) as raised:
        deployed.ask(deployed.token())
    deployed.provider.script.clear()
    return raised.value.status_code, str(raised.value.code)
